"""The parent process of one task: stops it on request, and ends the processes it leaves behind.

It holds the leases and the folder lock until no process of the task is left. If the foreman dies, the kernel sends a
signal and we stop the task with grace; if we are killed, the kernel kills the task.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Collection

from dibs.foreground import supervision
from dibs_compat.gpu_tasks import messages


def begin(kept: Collection[int], inherited: Collection[int], grace_s: float) -> tuple[int, socket.socket] | None:
    """Fork the parent of a task and the task; return the parent and the line to it, or None in the task itself.

    The parent has these descriptors and no others of ours, the task only those it inherits.
    """
    ours, its = messages.pair()
    foreman = os.getpid()
    pid = os.fork()
    if pid:
        its.close()
        return pid, ours
    task = -1
    try:
        _close_all_but({0, 1, 2, its.fileno(), *kept, *inherited})
        task = _prepare(foreman)
        if task:
            its.setblocking(False)
            final = supervision.supervise(task, grace_s, lambda: _orders(its))
            messages.send(its, final.code, final.signal, final.leftovers, final.note)
    except BaseException:  # noqa: BLE001 - must not return into the foreman's code
        sys.excepthook(*sys.exc_info())
    if task:
        # Skip the cleanup of the forked interpreter; the foreman sees our exit.
        os._exit(1)
    _close_all_but({0, 1, 2, *inherited})
    for sock in (ours, its):
        sock.detach()
    return None


def _prepare(foreman: int) -> int:
    """Become a subreaper and fork the task; return its pid, 0 in the task."""
    before = supervision.become_supervisor()
    supervision.die_with(foreman, signal.SIGTERM)
    me = os.getpid()
    task = os.fork()
    if task == 0:
        supervision.die_with(me, signal.SIGKILL)
        # Its own group, so that a signal to its group does not reach us.
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return task


def _orders(line: socket.socket) -> list[list[str]]:
    """Return the orders of the foreman; its death arrives as a signal."""
    found: list[list[str]] = []
    with contextlib.suppress(BlockingIOError):
        while (got := messages.receive(line)) is not None:
            found.append([str(word) for word in got[0]])
    return found


def order(pid: int, line: socket.socket, *words: object) -> None:
    """Ask the parent of a task for something; for the foreman, whose child it is."""
    if messages.send(line, *words):
        os.kill(pid, signal.SIGUSR1)


def _close_all_but(kept: Collection[int]) -> None:
    for number in {int(name) for name in os.listdir("/proc/self/fd")}.difference(kept):
        # The one that was open for listing the others is closed already.
        with contextlib.suppress(OSError):
            os.close(number)
