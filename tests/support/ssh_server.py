"""A real ssh server for one test, and the tunnel that `dibs web` prints over it."""

from __future__ import annotations

import contextlib
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
from typing import Any

import pytest

from bench import PATIENCE_S, Bench, wait_for
from browsers import quiet_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

is_needed = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="needs the Debian packages openssh-server and openssh-client"
)


class Sshd:
    """An ssh server for this user only, with separate keys; each connection is handed to a `sshd -i`."""

    def __init__(self, folder: Path) -> None:
        assert SSHD is not None
        folder.mkdir(mode=0o700)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        if os.geteuid() == 0:
            # The chroot of its unprivileged part.
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
        """Run a command on the server."""
        words = ["ssh", *self.options, *self.place, command]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, (done.stderr, self._errors.read_text())
        return done.stdout

    def close(self) -> None:
        """End it."""
        # A thread that waits in accept does not notice a close, but it does notice a shutdown.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE_S)
        for child in self._children:
            child.kill()
            child.wait(PATIENCE_S)


@contextlib.contextmanager
def tunnel(bench: Bench, folder: Path) -> Iterator[dict[str, Any]]:
    """Request the page over ssh, run the printed command unchanged, and yield the printed link."""
    sshd = Sshd(folder)
    try:
        environ = " ".join(f"{name}={shlex.quote(value)}" for name, value in bench.environ.items() if name != "HOME")
        port = quiet_port()
        told = json.loads(sshd.run(f"env {environ} {shlex.quote(sys.executable)} -P -m dibs web --json --port {port}"))
        first, *rest = shlex.split(told["ssh"])
        with subprocess.Popen([first, *sshd.options, *rest], stdin=subprocess.DEVNULL) as process:
            try:
                wait_for(lambda: can_connect(port) or process.poll() is not None)
                assert process.poll() is None
                assert told["link"].startswith(f"http://127.0.0.1:{port}/#code=")
                yield told
            finally:
                process.kill()
    finally:
        sshd.close()


def can_connect(port: int) -> bool:
    """Return whether somebody listens."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return False
    return True
