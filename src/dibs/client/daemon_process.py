"""The daemon's process as the kernel sees it, for a daemon that does not answer.

A slow machine must never make a healthy daemon look dead. So only what the kernel proves counts: the process is
stopped, or its main thread sleeps and has not run at all while our request lies unread. Else the caller waits on.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.errors import NoDaemon
from dibs.system import paths, processes
from dibs.system.lean import closing_fd, signal

if TYPE_CHECKING:
    # `fast_add` has no other socket at hand.
    from _socket import socket as Socket

#: Seconds until the first look at a process that has not answered, and between looks.
LOOK_EVERY_S = 0.25
#: Seconds without an answer after which the user gets a note; a daemon that hangs is known by then.
NOTE_AFTER_S = 2.5
#: Seconds for which the main thread must have slept, without ever running, beside an unread request.
HUNG_AFTER_S = 2.0
#: The request code of SIOCOUTQ, from <linux/sockios.h>: bytes that the other side has not read yet.
SIOCOUTQ = 0x5411

#: What the letters of proc(5) mean to a user.
MEANINGS = {
    "R": "running, but busy",
    "S": "sleeping",
    "D": "waiting for a disk (uninterruptible sleep)",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
}


class Unresponsive(NoDaemon):
    """The daemon is there but cannot answer, as the kernel proves. What it has stored can still be read."""

    def __init__(self, pid: int, state: str, *, was_asked: bool) -> None:
        if state in "Tt":
            what, cure = f"is {MEANINGS[state]} (state {state})", f"Continue it with `kill -CONT {pid}`, or replace it:"
        else:
            what, cure = f"hangs: it is sleeping (state {state}) and reads no requests", "Replace it:"
        sent = " The request may still be processed." if was_asked else ""
        super().__init__(
            f"the daemon (pid {pid}) {what}.{sent}", f"{cure} `dibs daemon restart --force`. Jobs keep running."
        )
        self.pid = pid
        self.what = what


@dataclass(frozen=True, slots=True)
class Look:
    """A process at one moment: its state, and how often its main thread has been scheduled."""

    state: str
    switches: int

    @property
    def is_stopped(self) -> bool:
        return self.state in "Tt"


def look(pid: int) -> Look | None:
    """Return the main thread of a process; None if it has ended or is not visible here."""
    found = processes.look(pid)
    if found is None or found.is_dead:
        return None
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    counts = [line.split()[1] for line in status.split(b"\n") if b"_ctxt_switches:" in line]
    return Look(found.state, sum(int(count) for count in counts))


def is_hung(looks: list[tuple[float, Look]], unread: int) -> bool:
    """Return whether the main thread slept through all these looks, with our request unread.

    A thread that was woken and waits for a processor is in state R, and one that waits for the interpreter's lock wakes
    up many times a second, so a loaded machine does not look like this.
    """
    if not unread or not looks or looks[-1][0] - looks[0][0] < HUNG_AFTER_S:
        return False
    return all(seen.state == "S" and seen.switches == looks[0][1].switches for _, seen in looks)


def listener_of(sock: Socket) -> int | None:
    """Return the pid of the process that listens on the other side; None if it is in a foreign pid namespace."""
    import _socket

    # Three ints: pid, uid, gid.
    creds = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(creds[:4], sys.byteorder) or None


def lock_holder(home: Path) -> int | None:
    """Return the pid of the process that holds the daemon's lock; None if nobody does."""
    return next((pid for pid in lockers(home) if look(pid) is not None), None)


def lockers(home: Path) -> list[int]:
    """Return the pids that the kernel's table names for the daemon's lock.

    A child that a dying daemon was forking keeps the lock until its exec; the table names the dead daemon.
    """
    # Imported late: few commands need it.
    from dibs.system import locks

    try:
        lock = os.lstat(paths.daemon_lock(home))
    except OSError:
        return []
    table = locks.flocked()
    # On btrfs the table has another device than the file, so processes show by what they have open which is meant.
    return table.get(locks.key(lock), []) or [
        pid for pid in locks.with_inode(table, lock.st_ino) if _has_open(pid, lock)
    ]


def require_running(pid: int | None) -> None:
    """Raise if a process is stopped, before it is asked anything: it would do later what the user gave up."""
    if pid is not None and _is_stopped(pid):
        # A debugger, or a shell, stops a process for moments.
        time.sleep(LOOK_EVERY_S)
        if _is_stopped(pid):
            raise Unresponsive(pid, _state(pid), was_asked=False)


def _is_stopped(pid: int) -> bool:
    found = processes.look(pid)
    return found is not None and found.is_stopped


def _state(pid: int) -> str:
    found = processes.look(pid)
    return "S" if found is None else found.state


def wait_for_answer(sock: Socket, patience_s: float, *, is_poll: bool = False) -> None:
    """Wait until an answer begins; raise TimeoutError after `patience_s`, or `Unresponsive` as soon as that is proven.

    A client that waits longer than usual gets a note, except for a poll, which is meant to wait.
    """
    pid = listener_of(sock)
    began = time.monotonic()
    looks: list[tuple[float, Look]] = []
    is_noted = is_poll or pid is None
    while not _is_readable(sock, min(LOOK_EVERY_S, began + patience_s - time.monotonic())):
        now = time.monotonic()
        if now >= began + patience_s:
            raise TimeoutError
        seen = None if pid is None else look(pid)
        if pid is None or seen is None:
            # A dead process closes the connection; one that we cannot see may be alive.
            continue
        if seen.is_stopped and looks and looks[-1][1].is_stopped:
            raise Unresponsive(pid, seen.state, was_asked=True)
        looks = [each for each in looks if now - each[0] <= 2 * HUNG_AFTER_S] + [(now, seen)]
        if is_hung(looks, unread(sock)):
            raise Unresponsive(pid, seen.state, was_asked=True)
        if not is_noted and now - began > NOTE_AFTER_S:
            is_noted = True
            _note(pid, seen)


def _note(pid: int, seen: Look) -> None:
    what = MEANINGS.get(seen.state, f"in state {seen.state}")
    print(
        f"dibs: the daemon (pid {pid}) has not answered yet: it is {what}. Still waiting.", file=sys.stderr, flush=True
    )


def _is_readable(sock: Socket, timeout_s: float) -> bool:
    # poll, unlike select, takes descriptors above 1023.
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return bool(waiting.poll(max(0.0, timeout_s) * 1000))


def unread(sock: Socket) -> int:
    """Return how many bytes of our request the other side has not read."""
    answer = fcntl.ioctl(sock.fileno(), SIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


def replace(home: Path, deadline_s: float) -> int | None:
    """Kill the process that holds the daemon's lock and wait until the lock is free; return its pid, None if none did.

    The pid comes from the kernel's table of locks, where that of a dead process may stay. So only a process that still
    has the lock's file open after we opened its pidfd is killed, and no other that got the same pid.
    """
    until = time.monotonic() + deadline_s
    killed: int | None = None
    while (pid := lock_holder(home)) is not None:
        starttime = processes.identity(pid)
        pidfd = None if starttime is None else processes.open_verified(pid, starttime)
        if pidfd is not None:
            with closing_fd(pidfd):
                if _has_open(pid, paths.daemon_lock(home).stat()):
                    killed = pid
                    _kill(pidfd, pid, until)
        if time.monotonic() > until:
            raise NoDaemon(f"the lock of the daemon (pid {pid}) is still held.", f"See {paths.daemon_log(home)}.")
        # A child that it was forking keeps the lock until its exec.
        time.sleep(LOOK_EVERY_S / 10)
    return killed


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    """Return whether a process of ours has a file open."""
    folder = f"/proc/{pid}/fd"
    try:
        return any(_is_at(f"{folder}/{name}", wanted) for name in os.listdir(folder))
    except OSError:
        # It ended meanwhile.
        return False


def _is_at(path: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), wanted)
    except FileNotFoundError:
        # Closed meanwhile.
        return False


def _kill(pidfd: int, pid: int, until: float) -> None:
    processes.send(pidfd, signal.SIGKILL)
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
        state = _state(pid)
        what = MEANINGS.get(state, f"in state {state}")
        raise NoDaemon(f"the daemon (pid {pid}) was killed but does not end: it is {what}.", "Check the disk.")
