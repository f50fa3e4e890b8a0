"""What `dibs-compat` needs from this machine: GPUs, programs, processes, shared files, and the user of a connection.

Of `devices` and `system`, the old tools may import only the settings; they use this module instead.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

from dibs.devices import probe
from dibs.model.devices import Inventory
from dibs.system import commands, locks, peers, processes
from dibs.system.settings import Settings

#: Flags to open a file that any user may have replaced: no links, no devices that block.
OPEN_FLAGS = locks.OPEN_FLAGS


def read_gpus(values: Settings) -> Inventory:
    """Return the GPUs of this machine that these settings allow."""
    return probe.read(values)


def is_program(word: str) -> bool:
    """Return whether a command that begins with `word` can be started here."""
    return commands.is_found(word, os.environ.get("PATH", os.defpath), os.getcwd())


def check_arguments(texts: Sequence[str]) -> None:
    """Refuse texts that the kernel cannot pass to a program, or that are not UTF-8."""
    for text in texts:
        commands.check_text(text)


def running_for_s(pid: int) -> float | None:
    """Return for how many seconds a process has been running; None if it has ended."""
    found = processes.look(pid)
    if found is None or found.is_dead:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - found.starttime / os.sysconf("SC_CLK_TCK")


def processes_with_open(path: str) -> list[processes.Proc]:
    """Return the other processes that have a file open, as far as we have access."""
    wanted = os.stat(path)
    return [proc for proc in processes.everybody() if proc.pid != os.getpid() and _has_open(proc.pid, wanted)]


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_is_same(f"/proc/{pid}/fd/{fd}", wanted) for fd in fds)


def _is_same(path: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), wanted)
    except OSError:
        return False


def is_same(fd: int, path: str) -> bool:
    """Return whether `path` still names the open file."""
    return locks.is_same(fd, path)


def read_shared(path: str, size: int) -> str | None:
    """Return the text of a regular file that any user may have written; None if it cannot be read."""
    found = locks.read_small(path, size=size)
    return None if found is None else found[1]


def send_signal(procs: Sequence[processes.Proc], number: int) -> None:
    """Signal these processes, and none that has since reused one of their pids."""
    processes.send_all(procs, number)


def describe(procs: Sequence[processes.Proc]) -> str:
    """Return names and pids of processes as readable text."""
    return processes.names(procs)


def signal_name(number: int) -> str:
    """Return the name of a signal: SIGTERM."""
    return processes.signal_name(number)


def peer_uid(sock: socket.socket) -> int | None:
    """Return the user at the other end of a loopback TCP connection; None if the kernel names no owner."""
    return peers.of_tcp(sock).uid
