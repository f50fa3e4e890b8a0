"""Processes that outlive their starter: only their pid is known, and they may stay zombies for minutes."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from dibs.system import processes

#: Seconds for a process to end by itself before it is killed.
GRACE_S = 15.0


def start(words: Sequence[str], environ: Mapping[str, str], log: Path) -> int:
    """Start a program in its own session, with its output in a file; return its pid."""
    return os.posix_spawn(
        words[0],
        words,
        environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def is_running(pid: int) -> bool:
    """Tell whether a process exists and is not a zombie."""
    found = processes.look(pid)
    return found is not None and not found.is_dead


def end(pid: int | None, signum: int, grace_s: float = GRACE_S) -> None:
    """Send a signal and wait for the end; kill what is still there after the grace."""
    if pid is None:
        return
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for each in (signum, signal.SIGKILL):
            processes.send(pidfd, each)
            # Readable when it is dead, even before it is reaped.
            if select.select([pidfd], [], [], grace_s)[0]:
                return
    finally:
        os.close(pidfd)
