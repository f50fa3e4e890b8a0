"""Six jobs that do nothing, posted to the old addresses of GPUPeasy's server with two GPUs: how long it takes."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

from benchmarks import runs, sandboxes
from benchmarks.errors import Failed
from benchmarks.plans import Plan
from benchmarks.sandboxes import PATIENCE_S, Sandbox
from benchmarks.series import Book, Key

NAME = "peasy"
TITLE = "Six trivial jobs on two GPUs through GPUPeasy's addresses"
SUBJECT = "gpupeasy-server"

JOBS, GPUS = 6, ("0", "1")
#: Seconds between two looks at the list of ended jobs, as somebody would look who waits for them.
LOOK_S = 0.01
OLD = "the original took 18.2 s, nearly all of it its sleep of 5 s (observed once, on another machine of two cores)"
START = "import sys; from dibs_compat.gpupeasy import commands; sys.exit(commands.server())"


def measure(plan: Plan, book: Book) -> None:
    """Post the six jobs to a server of their own, round by round."""
    book.note(NAME, OLD)
    runs.alone(plan, book, NAME, lambda box: _one(book, box))


def _one(book: Book, box: Sandbox) -> None:
    leases = box.folder / "leases"
    leases.mkdir()
    box.environ.update(DIBS_LEASE_DIR=str(leases), DIBS_DEVICES=f"fake:{len(GPUS)}")
    # Not installed beside the peers: dibs-compat has the name of one of them.
    box.environ["PYTHONPATH"] = str(sandboxes.ROOT / "compat" / "src")
    words = [sys.executable, "-c", START, "--port", "0", "--gpus", *GPUS]
    server = subprocess.Popen(words, env=box.environ, cwd=box.folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        said = server.stdout.readline()
        found = re.search(r":(\d+)/", said)
        if found is None:
            raise Failed(f"gpupeasy-server said {said!r}")
        book.add(Key(NAME, SUBJECT, "all"), "s", _post_and_wait(int(found[1]), box))
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=PATIENCE_S)


def _post_and_wait(port: int, box: Sandbox) -> float:
    began = time.perf_counter()
    for number in range(JOBS):
        job = {"jobName": f"job{number}", "outFile": str(box.folder / f"{number}.out"), "jobCommand": ["true"]}
        answer = _ask(port, "POST", "/addnewjob", {"job": job})
        if answer["status"] != "successful":
            raise Failed(f"a job was refused: {answer}")
    while len(_ask(port, "GET", "/successfuljobs")["value"]) < JOBS:
        if time.perf_counter() - began > PATIENCE_S:
            raise Failed(f"six jobs were not done within {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)
    return time.perf_counter() - began


def _ask(port: int, method: str, path: str, body: Any = None) -> Any:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        payload = None if body is None else json.dumps(body)
        link.request(method, path, payload, {"Content-Type": "application/json"})
        return json.loads(link.getresponse().read())
    finally:
        link.close()
