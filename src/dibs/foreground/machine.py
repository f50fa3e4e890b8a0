"""What `dibs-compat` needs from this machine: GPUs, programs, processes, shared files, and the user of a connection.

Of `devices` and `system`, the old tools may import only the settings; they use this module instead.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

from dibs.devices import probe
from dibs.system import commands, locks, peers, processes

# What the old tools use as it is, under names that say what they need it for.
OPEN_FLAGS = locks.OPEN_FLAGS
is_same = locks.is_same
read_gpus = probe.read
send_signal = processes.send_all
describe = processes.names
signal_name = processes.signal_name
listeners = peers.listeners


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
    everybody = (proc for proc in processes.everybody() if proc.pid != os.getpid())
    return [proc for proc in everybody if path in processes.open_files(proc.pid)]


def read_shared(path: str, size: int) -> str | None:
    """Return the text of a regular file that any user may have written; None if it cannot be read."""
    found = locks.read_small(path, size=size)
    return None if found is None else found[1]


def peer_uid(sock: socket.socket) -> int | None:
    """Return the user at the other end of a loopback TCP connection; None if the kernel names no owner."""
    return peers.of_tcp(sock).uid
