"""The page through ssh: what `dibs web` prints over a real ssh connection is typed as it stands, and works."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench, wait_for
from browsers import Browser, quiet_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

pytestmark = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="needs the Debian packages openssh-server and openssh-client"
)


class Sshd:
    """An ssh server for this user alone, with keys of its own; each connection is handed to a `sshd -i`."""

    def __init__(self, folder: Path) -> None:
        assert SSHD is not None
        folder.mkdir(mode=0o700)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        if os.geteuid() == 0:
            # Where it shuts the part of itself in that has no rights.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = folder / "sshd_config"
        config.write_text(
            f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nLogLevel ERROR\n"
        )
        self._command = [SSHD, "-i", "-f", str(config)]
        self._errors = folder / "errors"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._children: list[subprocess.Popen[bytes]] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        port = self._listening.getsockname()[1]
        self.options = [
            *(
                "-F",
                "none",
                "-i",
                str(folder / "user"),
                "-o",
                f"UserKnownHostsFile={folder}/known",
                "-o",
                "BatchMode=yes",
            ),
            *("-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR", "-o", "ExitOnForwardFailure=yes"),
        ]
        self.place = ["-p", str(port), f"{getpass.getuser()}@127.0.0.1"]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, open(self._errors, "ab") as errors:
                child = subprocess.Popen(self._command, stdin=connection, stdout=connection, stderr=errors)
                self._children.append(child)

    def run(self, command: str) -> str:
        """Run a command over there."""
        words = ["ssh", *self.options, *self.place, command]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, (done.stderr, self._errors.read_text())
        return done.stdout

    def close(self) -> None:
        """End it."""
        # A thread that waits to accept does not notice a close, but it does a shutdown.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE_S)
        for child in self._children:
            child.kill()
            child.wait(PATIENCE_S)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """An ssh server."""
    own = Sshd(tmp_path / "ssh")
    yield own
    own.close()


def test_the_line_that_is_printed_over_ssh_lets_a_browser_in(bench: Bench, sshd: Sshd) -> None:
    bench.start()
    environ = " ".join(f"{name}={shlex.quote(value)}" for name, value in bench.environ.items() if name != "HOME")
    port = quiet_port()
    told = json.loads(sshd.run(f"env {environ} {shlex.quote(sys.executable)} -P -m dibs web --json --port {port}"))
    # Nothing was opened on the server for it.
    assert told["port"] is None
    first, *rest = shlex.split(told["ssh"])
    with subprocess.Popen([first, *sshd.options, *rest], stdin=subprocess.DEVNULL) as tunnel:
        try:
            wait_for(lambda: can_connect(port) or tunnel.poll() is not None)
            assert tunnel.poll() is None
            address, _, code = told["link"].partition("#code=")
            assert address == f"http://127.0.0.1:{port}/"
            browser = Browser(address, {"Sec-Fetch-Site": "same-origin", "Origin": address.rstrip("/")})
            assert browser.ask("GET", "/").status == 200
            assert browser.ask("GET", "/v1/jobs").status == 401
            browser.sign_in(code)
            assert browser.ask("GET", "/v1/jobs").status == 200
            # A page of another site does not get in by the same way, not even with a name that leads here.
            stranger = Browser(address, {"Host": f"evil.example:{port}"})
            assert stranger.ask("GET", "/v1/jobs").status == 403
            assert Browser(address, {"Origin": "http://evil.example"}).ask("POST", "/v1/queue", {}).status == 403
            assert Browser(address).ask("GET", "/v1/jobs").status == 401
            bench.cli("web", "--rotate")
            assert browser.ask("GET", "/v1/jobs").status == 401
        finally:
            tunnel.kill()


def can_connect(port: int) -> bool:
    """Tell whether somebody listens."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return False
    return True
