"""Ending a process tree: TERM once to each process, KILL after a grace period, and a report of what survives KILL.

The tree is everything below this process, which must be a subreaper and have one thread. No descendant can then escape
by forking twice, and a wait that finds no child means that the whole tree is gone. The caller decides when to end a
tree and with which grace period.

Lean.
"""

from __future__ import annotations

import os
import time

from dibs.system import processes
from dibs.system.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from resource import struct_rusage

#: A deadline that never comes.
NEVER = float("inf")
#: Longest sleep in seconds; longer waits are split.
LONGEST_S = 3600.0
#: Seconds for helpers to end by themselves after their command (a resource tracker notices a closed pipe).
SETTLE_S = 0.2
#: Seconds between TERM and KILL for what a command leaves running when it ends.
LEFTOVER_GRACE_S = 10.0
#: Seconds between rounds of KILL; the end of a child wakes the caller earlier.
KILL_EVERY_S = 0.02
#: Seconds of KILL after which a surviving process counts as stuck, and between later rounds.
STUCK_S = 5.0
KILL_STUCK_EVERY_S = 1.0


def living() -> list[processes.Proc]:
    """Return all processes below this one that have not ended."""
    return [proc for proc in processes.descendants(os.getpid()) if not proc.is_dead]


def reap(record: Callable[[int, int, struct_rusage], None]) -> bool:
    """Pass pid, wait status and usage of every child that ended to `record`; return True when no child is left."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
        record(pid, status, usage)


def exit_code(status: int) -> int:
    """Return the exit code a shell would report for a wait status: 128 + N after signal N."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def wait_for_signal(signums: Iterable[int], until: float) -> signal.struct_siginfo | None:
    """Wait for one of these blocked signals, until a time of the monotonic clock or for `LONGEST_S`."""
    return signal.sigtimedwait(signums, min(LONGEST_S, max(0.0, until - time.monotonic())))


def describe_stuck(procs: Iterable[processes.Proc]) -> str:
    """Return the message about processes that KILL does not end."""
    return f"survived KILL for {STUCK_S:.0f} s: {processes.names(procs)}"


class Termination:
    """The state of a termination: which processes got TERM, when KILL begins, and since when it is being sent."""

    def __init__(self) -> None:
        #: When KILL begins. A finite value means that termination has begun.
        self.kill_at = NEVER
        self._killing_since = NEVER
        self._terminated: set[tuple[int, int]] = set()
        #: Pids of children that got KILL.
        self._killed: set[int] = set()

    @property
    def has_begun(self) -> bool:
        """Return whether the tree has been asked to end."""
        return self.kill_at < NEVER

    def is_stuck(self, now: float) -> bool:
        """Return whether KILL has been sent long enough that the remaining processes will not end."""
        return now - self._killing_since > STUCK_S

    def has_terminated(self, proc: processes.Proc) -> bool:
        """Return whether a process got TERM."""
        return proc.key in self._terminated

    def begin(self, grace_s: float, now: float) -> None:
        """Send TERM to the whole tree and schedule KILL. Of several grace periods, the one that ends first applies."""
        self.kill_at = min(self.kill_at, now + max(grace_s, 0.0))
        if grace_s > 0:
            self.terminate(living())

    def terminate(self, procs: Iterable[processes.Proc]) -> None:
        """Send TERM once to each process: a second one makes many programs abort saving."""
        for proc in procs:
            if proc.key not in self._terminated:
                self._terminated.add(proc.key)
                # A stopped process handles TERM only after CONT.
                processes.send_all([proc], signal.SIGTERM, signal.SIGCONT)

    def kill(self, now: float) -> float:
        """Send one round of KILL, and return when the next one is due.

        Kill children first, and again while new ones appear: when a parent dies, its children become ours, which
        catches processes that fork faster than a scan of /proc. The scan finds the descendants of a process that cannot
        die.
        """
        self._killing_since = min(self._killing_since, now)
        is_stuck = self.is_stuck(now)
        fresh = processes.kill_children() - self._killed
        self._killed |= fresh
        if fresh and not is_stuck:
            return now
        processes.send_all(living(), signal.SIGKILL)
        return now + (KILL_STUCK_EVERY_S if is_stuck and not fresh else KILL_EVERY_S)

    def run(self, grace_s: float, is_gone: Callable[[], bool], sleep: Callable[[float], None]) -> None:
        """End the tree and return when it is gone, or when only stuck processes are left.

        `is_gone` reaps; `sleep` waits until a time of the monotonic clock, or less.
        """
        self.begin(grace_s, time.monotonic())
        while not is_gone() and not self.is_stuck(now := time.monotonic()):
            sleep(self.kill(now) if now >= self.kill_at else self.kill_at)
