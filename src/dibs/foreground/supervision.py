"""Supervision for programs that run commands without a daemon, and for `dibs-compat` above all.

A supervisor calls `become_supervisor`, starts one command, and waits with `supervise`, or in a loop of its own around
a `command_tree`. It returns when no process of the command's tree is left. The work is done by `runner.supervision`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable

from dibs.runner import records
from dibs.runner import supervision as runner
from dibs.system import process_tree, processes


def become_supervisor(signums: Iterable[int] = runner.WAKE) -> set[int]:
    """Adopt all orphans below this process and block the signals it waits for; return the mask from before."""
    processes.become_subreaper()
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, signums))


def die_with(parent: int, signum: int) -> None:
    """Have the kernel send this process a signal when its parent dies."""
    processes.die_with(parent, signum)


def supervise(pid: int, grace_s: float, new_orders: Callable[[], list[list[str]]]) -> records.Final:
    """Wait until nothing of a command's tree is left. TERM is an order to stop it; after USR1 orders are read."""
    return runner.supervise(_spec(grace_s), pid, new_orders, lambda kind, names: None)


def command_tree(pid: int, grace_s: float, on_stuck: Callable[[str], None]) -> runner.Tree:
    """Return the tree of a command, for a loop of `Tree.reap`, `Tree.act` and `wait_for_signal`."""
    return runner.Tree(_spec(grace_s), pid, time.monotonic(), lambda kind, names: on_stuck(names))


def wait_for_signal(signums: Collection[int], until: float) -> int | None:
    """Wait for one of these blocked signals, until a moment of the monotonic clock at the latest; return its number."""
    came = process_tree.wait_for_signal(signums, until)
    return None if came is None else came.si_signo


def kill_orphans(supervisors: Collection[int]) -> None:
    """KILL and reap all children of this process but these: what a supervisor that was killed has left to us."""
    me = os.getpid()
    while orphans := [proc for proc in processes.descendants(me) if proc.ppid == me and proc.pid not in supervisors]:
        processes.send_all(orphans, signal.SIGKILL)
        for orphan in orphans:
            os.waitpid(orphan.pid, 0)


def _spec(grace_s: float) -> records.Spec:
    """Return a spec of which only the grace period matters."""
    return records.Spec(0, 0, 0, "", (), (), b"", b"", grace_s=grace_s)
