"""GPUPeasy's server and page as users start them, and a client for them."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote_plus, urlencode

import forking
from bench import Bench, wait_for

FORM = "application/x-www-form-urlencoded"


class Answer(NamedTuple):
    """An answer of a server."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """Return it as JSON."""
        return json.loads(self.text)

    @property
    def location(self) -> str:
        """Return where it redirects a browser, decoded."""
        return unquote_plus(self.headers["Location"])

    @property
    def messages(self) -> Any:
        """Return the messages in the address of its redirect."""
        return json.loads(self.location.partition("?messages=")[2])


class Server:
    """One of the two programs, or the named one, running."""

    def __init__(self, bench: Bench, program: str | None, *words: str) -> None:
        self.said = bench.folder / f"said-{os.urandom(4).hex()}"
        out = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(os.devnull, "rb") as nothing:
            self.process = forking.start(program, words, bench.environ, bench.folder, [nothing.fileno(), out, out])
        os.close(out)
        found = wait_for(lambda: re.search(r" on http://\S+?:(\d+)/\n", self.text()) or self.process.poll() is not None)
        assert isinstance(found, re.Match), self.text()
        self.port = int(found[1])

    def text(self) -> str:
        """Return what it has printed."""
        return self.said.read_text()

    def ask(
        self, method: str, path: str, body: str | bytes | None = None, kind: str | None = None, **more: str
    ) -> Answer:
        """Return the answer to a request; `more` are headers, with _ for -."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        if kind is not None:
            headers["Content-Type"] = kind
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=forking.PATIENCE_S)
        try:
            link.request(method, path, body, headers)
            answer = link.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            link.close()

    def get(self, path: str) -> Any:
        """Return the JSON at an address."""
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def post(self, path: str, body: Any) -> Answer:
        """Post JSON."""
        return self.ask("POST", path, json.dumps(body), "application/json")

    def form(self, path: str, **fields: str) -> Answer:
        """Post a form."""
        return self.ask("POST", path, urlencode(fields), FORM)

    def add(self, name: str, output: Path, command: Any) -> int:
        """Add a job; return its number."""
        answer = self.post("/addnewjob", {"job": {"jobName": name, "outFile": str(output), "jobCommand": command}})
        assert answer.json["status"] == "successful", answer
        return int(answer.json["jobID"])

    def info(self, number: int) -> dict[str, Any]:
        """Return the facts about one job."""
        return dict(self.get(f"/jobinfo/{number}")["value"])

    def until(self, number: int, *status: str) -> dict[str, Any]:
        """Wait until a job has a state; return it."""
        return wait_for(lambda: self.info(number), lambda info: info["status"] in (status or ("Succeeded", "Failed")))

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send one signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait()


class Peasy:
    """A queue, a server with a list of GPUs, and its page."""

    def __init__(self, bench: Bench, *gpus: str, port: int = 0) -> None:
        self.bench = bench
        self.out = bench.folder / "out"
        self.out.mkdir(exist_ok=True)
        bench.start()
        self.core = Server(bench, "gpupeasy-server", "--port", str(port), "--gpus", *gpus)
        self._page: Server | None = None

    @property
    def page(self) -> Server:
        """Return the page, started on first use."""
        if self._page is None:
            self._page = Server(self.bench, "gpupeasy-gui", "--port", "0", "--core-port", str(self.core.port))
        return self._page

    def add(self, name: str, command: Any) -> int:
        """Add a job whose output has its name."""
        return self.core.add(name, self.out / name, command)

    def close(self) -> None:
        """End both."""
        for server in filter(None, (self._page, self.core)):
            server.process.kill()
            server.process.wait()
