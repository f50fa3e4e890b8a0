"""A private dibs for measuring: what a user can do from outside, and gates that hold jobs back until opened."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.errors import Failed
from benchmarks.sandboxes import PATIENCE_S, Sandbox
from benchmarks.stamps import Sheet

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon."""

    pid: int
    socket: str


@dataclass(frozen=True, slots=True)
class Queue:
    """One user's dibs in a sandbox."""

    box: Sandbox

    @property
    def database(self) -> Path:
        """Return the file the queue is kept in."""
        return Path(self.box.environ["DIBS_HOME"], "dibs.db")

    def daemon(self) -> Daemon:
        """Return the daemon that answers."""
        told = json.loads(self.box.run(["dibs", "daemon", "status", "--json"]))
        return Daemon(int(told["pid"]), str(told["socket"]))

    def add(self, command: str) -> int:
        """Queue one job; return its id."""
        return int(self.box.run(["dibs", "add", command]))

    def wait_started(self, job_id: int) -> None:
        """Wait until a job runs."""
        show = ["dibs", "show", str(job_id), "--json"]
        wait_for("the state of the first job", lambda: json.loads(self.box.run(show))["state"], "running".__eq__)


@dataclass(frozen=True, slots=True)
class Gate:
    """A job that waits until it is released, and then stamps."""

    path: Path

    def command(self, sheet: Sheet, number: int) -> str:
        """Return the command line of the job that waits here."""
        return f"read go < {self.path}; exec {sheet.command(number)}"

    def open(self) -> None:
        """Let the job go; it must run, or be about to."""
        fd = wait_for("the reader of a gate", self._try_open, lambda fd: fd >= 0)
        os.write(fd, b"go\n")
        os.close(fd)

    def _try_open(self) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            # Nobody reads yet.
            return -1


def start(box: Sandbox, devices: str) -> Queue:
    """Start a daemon with so many pretend devices."""
    box.environ.update(
        DIBS_HOME=str(box.folder / "state"), DIBS_LEASE_DIR=str(box.folder / "leases"), DIBS_DEVICES=devices
    )
    (box.folder / "leases").mkdir()
    box.run(["dibs", "daemon", "start"])
    return Queue(box)


def gate(box: Sandbox, name: str) -> Gate:
    """Make a closed gate."""
    path = box.folder / name
    os.mkfifo(path)
    return Gate(path)


def get(daemon: Daemon, path: str) -> bytes:
    """Return the body of an answer of the daemon, asked over its socket without anybody's client."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(daemon.socket)
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: dibs\r\nConnection: close\r\n\r\n".encode())
        parts = []
        while part := sock.recv(1 << 18):
            parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].decode(errors="replace")
    if " 200 " not in status:
        raise Failed(f"GET {path} was answered {status}")
    return body


def wait_for(about: str, look: Callable[[], T], until: Callable[[T], bool]) -> T:
    """Return the first value of `look` that satisfies `until`; a run in which it never comes has failed."""
    deadline = time.monotonic() + PATIENCE_S
    while not until(seen := look()):
        if time.monotonic() > deadline:
            raise Failed(f"{about}: still {seen!r} after {PATIENCE_S:.0f} s")
        time.sleep(0.005)
    return seen
