"""Helpers for tests of leases and tickets: controlled processes, and waiting for a condition with a deadline."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from dibs.leases import device_lease, holders, served_records, tickets
from dibs.system import locks

#: Seconds after which a wait has failed: less than the 30 s after which every waiter checks again anyway.
DEADLINE_S = 25.0

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: needs root to act as several users")

PROGRAMS = Path(__file__).parent / "programs"


def wait_for(what: str, condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Poll until `condition` holds; fail with its last value."""
    until = time.monotonic() + deadline_s
    while not (seen := condition()):
        assert time.monotonic() < until, f"{what}: still {seen!r} after {deadline_s} s"
        select.select((), (), (), 0.002)


def hangs_up(fd: int, within_s: float) -> bool:
    """Return whether a watch hangs up within a time; 0 means that it already has."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def start(program: str, *words: object) -> subprocess.Popen[bytes]:
    """Start a helper program with pipes to talk to it."""
    command = [sys.executable, str(PROGRAMS / program), *map(str, words)]
    return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def tell(process: subprocess.Popen[bytes], line: str) -> None:
    """Write a line to a helper program."""
    assert process.stdin
    process.stdin.write(line.encode() + b"\n")


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a helper program and close all its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def race(program: str, first: object, second: object, *words: object, racers: int = 8) -> list[str]:
    """Run copies of a program that start together, each with its number as third argument; return their outputs."""
    running = [start(program, first, second, number, *words) for number in range(racers)]
    try:
        for process in running:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
        for process in running:
            tell(process, "go")
        outputs = [process.communicate(timeout=480)[0].decode().strip() for process in running]
    finally:
        for process in running:
            end(process)
    assert [process.returncode for process in running] == [0] * racers
    return outputs


class Puppet:
    """A process that holds leases and tickets on command."""

    def __init__(self, folder: str, uid: int | None = None) -> None:
        self.process = start("puppet.py", folder)
        self.pid = self.process.pid
        self.children: list[int] = []
        self.heard = b""
        if uid is not None:
            assert self.ask(f"uid {uid}") == "changed"

    def tell(self, order: str) -> None:
        """Send a command without waiting for the answer."""
        tell(self.process, order)

    def hear(self, deadline_s: float = DEADLINE_S) -> str:
        """Return the next answer."""
        assert self.process.stdout
        while b"\n" not in self.heard:
            ready, _, _ = select.select([self.process.stdout], [], [], deadline_s)
            assert ready, f"no answer of the puppet after {deadline_s} s"
            part = os.read(self.process.stdout.fileno(), 4096)
            assert part, "the puppet died"
            self.heard += part
        answer, _, self.heard = self.heard.partition(b"\n")
        return answer.decode()

    def ask(self, order: str) -> str:
        """Send a command and return the answer."""
        self.tell(order)
        return self.hear()

    def spawn(self) -> int:
        """Let it start a child that inherits all its leases; return the child's pid."""
        self.children.append(int(self.ask("spawn")))
        return self.children[-1]

    def stop(self) -> None:
        """Suspend it, as Ctrl-Z does, and wait until it is stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        """Kill it with -9; its children live on."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it and its children."""
        end(self.process)
        for child in self.children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass


@pytest.fixture
def place() -> Iterator[device_lease.Folder]:
    """A lease folder that every user can reach, unlike pytest's own."""
    path = tempfile.mkdtemp(prefix="dibs-test-", dir="/tmp")
    os.chmod(path, 0o1777)
    yield device_lease.Folder(path)
    shutil.rmtree(path)


@pytest.fixture
def puppet(place: device_lease.Folder) -> Iterator[Callable[..., Puppet]]:
    """Makes controlled processes, and ends them."""
    made: list[Puppet] = []

    def make(uid: int | None = None) -> Puppet:
        made.append(Puppet(place.path, uid))
        return made[-1]

    yield make
    for one in made:
        one.close()


def close(taken: list[device_lease.Lease]) -> None:
    """Release several leases."""
    for lease in taken:
        lease.close()


def shares(place: device_lease.Folder, device: str) -> dict[int, int]:
    """Return the MiB of each slot in which the device is shared now."""
    return {socket.slot: socket.mib for socket in holders.sockets(place, [device]) if socket.mib is not None}


def served(place: device_lease.Folder) -> dict[int, int]:
    """Return when each user last got a device."""
    names = [
        name.removeprefix(served_records.SERVED)
        for name in os.listdir(place.path)
        if name.startswith(served_records.SERVED)
    ]
    return served_records.of_users(place, [int(name) for name in names if name.isdecimal()])


def watch_line(place: device_lease.Folder, line: Iterable[tickets.Ticket]) -> list[int]:
    """Return a descriptor for each ticket that hangs up when it is dropped."""
    names = [tickets.socket_name(place, ticket.name) for ticket in line]
    return [fd for name in names if (fd := locks.connect(name)) is not None]
