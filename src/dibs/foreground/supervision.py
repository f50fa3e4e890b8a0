"""Supervision for programs that run commands without a daemon, mainly `dibs-compat`.

A supervisor calls `become_supervisor`, starts one command, and waits with `supervise`, or in its own loop around a
`command_tree`. It returns when no process of the command's tree is left. `runner.supervision` does the work.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable

from dibs.runner import records
from dibs.runner import supervision as runner
from dibs.system import process_tree, processes

die_with = processes.die_with


def become_supervisor(signums: Iterable[int] = runner.WAKE) -> set[int]:
    """Adopt all orphans below this process and block the signals it waits for; return the previous mask."""
    processes.become_subreaper()
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, signums))


def supervise(
    pid: int, grace_s: float, new_orders: Callable[[], list[list[str]]], limit_s: float | None = None
) -> records.Final:
    """Wait until the command's process tree has ended. TERM stops it; USR1 makes it read `new_orders`."""
    return runner.supervise(_spec(grace_s, limit_s), pid, new_orders, lambda kind, names: None)


def command_tree(
    pid: int, grace_s: float, on_stuck: Callable[[str], None], limit_s: float | None = None
) -> runner.Tree:
    """Return the tree of a command, for a loop of `Tree.reap`, `Tree.act` and `wait_for_signal`."""
    return runner.Tree(_spec(grace_s, limit_s), pid, time.monotonic(), lambda kind, names: on_stuck(names))


def wait_for_signal(signums: Collection[int], until: float) -> int | None:
    """Wait for one of these blocked signals, at most until this time of the monotonic clock; return its number."""
    came = process_tree.wait_for_signal(signums, until)
    return None if came is None else came.si_signo


def kill_orphans(supervisors: Collection[int]) -> None:
    """KILL and reap all children of this process except `supervisors`: orphans of supervisors that were killed."""
    me = os.getpid()
    while orphans := [proc for proc in processes.descendants(me) if proc.ppid == me and proc.pid not in supervisors]:
        processes.send_all(orphans, signal.SIGKILL)
        for orphan in orphans:
            os.waitpid(orphan.pid, 0)


def _spec(grace_s: float, limit_s: float | None) -> records.Spec:
    """Return a spec in which only the grace period and the time limit matter."""
    return records.Spec(0, 0, 0, "", (), (), b"", b"", grace_s=grace_s, time_limit_s=limit_s)
