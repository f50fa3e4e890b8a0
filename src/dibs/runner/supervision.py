"""Supervision of a command by its parent, until no process of its tree is left.

It waits for the command, obeys orders, enforces the time limit, and ends what the command leaves running. The caller
must be a subreaper without other children and have the signals of `WAKE` blocked: then a wait that finds no child means
that the whole tree is gone, and no signal is lost between a check and the next wait.
"""

from __future__ import annotations

import os
import sys
import time

from dibs.runner import records
from dibs.system import process_tree, processes
from dibs.system.crash_points import crash_point
from dibs.system.lean import signal
from dibs.system.process_tree import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from resource import struct_rusage

#: The signals that wake the loop: a child ended, an order arrived, or we must stop.
WAKE = frozenset((signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM))

#: Seconds until a warning that no process catches is sent again.
WARN_AGAIN_S = 1.0
#: Seconds until the next attempt after an internal error.
AFTER_ERROR_S = 1.0
#: Seconds until a command that still runs is announced: of a shorter one only its end is worth a message.
ANNOUNCE_AFTER_S = 0.01
#: Seconds between looks at the orders on a node of an engine, which may have no way to signal us.
LOOK_EVERY_S = 2.0


def supervise(
    spec: records.Spec,
    pid: int,
    new_orders: Callable[[], list[list[str]]],
    tell: Callable[[str, str], None],
    mark: Callable[[], None] | None = None,
    announce: Callable[[], None] | None = None,
) -> records.Final:
    """Return how the command ended, once no process of its tree is left.

    `mark` marks its leases as evictable; `announce` tells others that it runs, unless it ends at once.
    """
    begun_at = time.monotonic()
    tree = Tree(spec, pid, begun_at, tell, mark)
    announce_at = begun_at + ANNOUNCE_AFTER_S if announce is not None else NEVER
    asked: list[list[str]] = []
    while not tree.reap(time.monotonic()):
        try:
            now = time.monotonic()
            for order in [*asked, *_read(new_orders)]:
                tree.obey(order, now)
            if announce is not None and now >= announce_at:
                announce_at = NEVER
                announce()
            wake_at = min(tree.act(now), announce_at)
            if spec.engine:
                wake_at = min(wake_at, now + LOOK_EVERY_S)
        except Exception:  # noqa: BLE001 - the command runs: an internal error must not abandon it
            sys.excepthook(*sys.exc_info())
            wake_at = time.monotonic() + AFTER_ERROR_S
        woken_by = process_tree.wait_for_signal(WAKE, wake_at)
        is_term = woken_by is not None and woken_by.si_signo == signal.SIGTERM
        asked = [["stop"]] if is_term else []
    return tree.final()


def _read(new_orders: Callable[[], list[list[str]]]) -> list[list[str]]:
    """Return new orders; a disk error must not delay the time limit or a kill."""
    try:
        return new_orders()
    except OSError:
        sys.excepthook(*sys.exc_info())
        return []


class Stopwatch:
    """Counts the seconds towards the time limit, without pauses."""

    __slots__ = ("_before_s", "_since")

    def __init__(self, now: float) -> None:
        self._before_s = 0.0
        self._since: float | None = now

    @property
    def is_paused(self) -> bool:
        """Return whether the clock is stopped."""
        return self._since is None

    def pause(self, now: float) -> None:
        """Stop counting. Idempotent."""
        self._before_s, self._since = self.ran_for(now), None

    def resume(self, now: float) -> None:
        """Continue counting. Idempotent."""
        self._before_s, self._since = self.ran_for(now), now

    def ran_for(self, now: float) -> float:
        """Return the seconds counted until `now`."""
        return self._before_s + (0.0 if self._since is None else now - self._since)


class Tree:
    """A command and all its descendants: their orders, and how they ended."""

    __slots__ = (
        "_final",
        "_has_ended",
        "_is_warned",
        "_limit_s",
        "_mark",
        "_pid",
        "_settled_at",
        "_spec",
        "_stop_at",
        "_stop_grace_s",
        "_tell",
        "_termination",
        "_watch",
    )

    def __init__(
        self,
        spec: records.Spec,
        pid: int,
        now: float,
        tell: Callable[[str, str], None],
        mark: Callable[[], None] | None = None,
    ) -> None:
        self._mark = mark
        self._spec = spec
        self._pid = pid
        self._tell = tell
        self._watch = Stopwatch(now)
        self._limit_s = NEVER if spec.time_limit_s is None else spec.time_limit_s
        self._is_warned = not spec.warn_signal
        self._final = records.Final("")
        #: Whether the command itself has ended; its leftovers may still run.
        self._has_ended = False
        #: When TERM follows a warning signal, and the grace after that.
        self._stop_at = NEVER
        self._stop_grace_s = 0.0
        #: When helper processes have had time to end by themselves.
        self._settled_at = NEVER
        self._termination = process_tree.Termination()

    # -- waiting

    def reap(self, now: float) -> bool:
        """Record every child that ended; return True when no process of the tree is left."""

        def record(pid: int, status: int, usage: struct_rusage) -> None:
            self._final.max_rss_kib = max(self._final.max_rss_kib, usage.ru_maxrss)
            self._final.utime_s += usage.ru_utime
            self._final.stime_s += usage.ru_stime
            if pid == self._pid and not self._has_ended:
                self._record_end(status, now)

        return process_tree.reap(record)

    def _record_end(self, status: int, now: float) -> None:
        """Fix the result: later signals and leftovers do not change it."""
        self._final.ended_at_ns = time.time_ns()
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            self._final.kind, self._final.signal = "signalled", -code
        else:
            self._final.kind, self._final.code = "exited", code
        self._has_ended = True
        self._settled_at = now if self._termination.has_begun else now + process_tree.SETTLE_S
        crash_point("runner:reaped")

    def final(self) -> records.Final:
        """Return the result; raise if the command was reaped elsewhere, because then the result is unknown."""
        if not self._has_ended:
            raise ChildProcessError(f"the end of {self._pid} was never seen")
        return self._final

    # -- orders

    def obey(self, order: list[str], now: float) -> None:
        """Carry out one order; ignore an unknown one, which comes from a newer daemon."""
        verb, *words = order
        try:
            if verb == "stop":
                grace_s = _seconds(words[0]) if words else self._spec.grace_s
                self._stop(grace_s, now, is_warning="warn" in words[1:])
            elif verb == "limit":
                self._limit_s = NEVER if words[0] == "none" else _seconds(words[0])
                self._is_warned = not self._spec.warn_signal
            elif verb == "signal":
                processes.send_all(process_tree.living(), int(words[0]))
            elif verb == "evictable" and self._mark is not None:
                self._mark()
            elif verb == "pause" and not self._termination.has_begun:
                self._watch.pause(now)
                self._freeze()
            elif verb == "resume" and self._watch.is_paused:
                self._watch.resume(now)
                processes.send_all(process_tree.living(), signal.SIGCONT)
        except (ValueError, IndexError, OSError):
            # A bad order must not prevent the next ones.
            sys.excepthook(*sys.exc_info())

    def _stop(self, grace_s: float, now: float, *, is_warning: bool) -> None:
        """End the tree within the grace; if it handles the warning signal, TERM comes after half of it."""
        if self._is_waited_for:
            self._final.stopped = True
        if is_warning and self._spec.warn_signal and not self._termination.has_begun:
            if self._stop_at < NEVER:
                return
            self._watch.resume(now)
            if self._warn():
                self._stop_at, self._stop_grace_s = now + grace_s / 2, grace_s / 2
                return
        self._end(grace_s, now)

    def _freeze(self) -> None:
        """Stop all processes, and those forked meanwhile, until a scan finds no new one."""
        told: set[tuple[int, int]] = set()
        while fresh := [proc for proc in process_tree.living() if not proc.is_stopped and proc.key not in told]:
            processes.send_all(fresh, signal.SIGSTOP)
            told.update(proc.key for proc in fresh)

    # -- ending

    @property
    def _is_waited_for(self) -> bool:
        """Return whether the job still runs: with `wait_tree` it lasts as long as any process of its tree."""
        return not self._has_ended or self._spec.wait_tree

    def act(self, now: float) -> float:
        """Do what is due, and return when to check again if no signal arrives first."""
        if not self._is_waited_for and now >= self._settled_at:
            self._end_leftovers(now)
        if now >= self._stop_at:
            self._end(self._stop_grace_s, now)
            self._stop_at = NEVER
        limit_at = self._limit_at(now)
        if now >= limit_at:
            self._final.timed_out = True
            self._end(self._spec.grace_s, now)
            limit_at = NEVER
        warn_at = NEVER if self._is_warned else limit_at - self._spec.warn_s
        if now >= warn_at:
            warn_at = NEVER if self._warn() else now + WARN_AGAIN_S
        if now >= self._termination.kill_at:
            return self._kill(now)
        due = (warn_at, limit_at, self._stop_at, self._termination.kill_at)
        return min(*due, NEVER if self._is_waited_for else self._settled_at)

    def _limit_at(self, now: float) -> float:
        if not self._is_waited_for or self._termination.has_begun or self._watch.is_paused:
            return NEVER
        return now + self._limit_s - self._watch.ran_for(now)

    def _warn(self) -> bool:
        """Signal the processes that catch the warning; return whether there were any.

        A process without a handler would die of the signal; a program may still be loading when the warning is due.
        """
        signum = self._spec.warn_signal
        listening = [proc for proc in process_tree.living() if processes.catches(proc.pid, signum)]
        processes.send_all(listening, signum)
        self._is_warned = bool(listening)
        return self._is_warned

    def _end_leftovers(self, now: float) -> None:
        """End what the command left running, and record it unless the tree was already being ended."""
        self._settled_at = NEVER
        if not self._termination.has_begun:
            self._final.leftovers = processes.names(process_tree.living())
        self._end(self._spec.leftover_grace_s, now)

    def _end(self, grace_s: float, now: float) -> None:
        self._watch.resume(now)
        self._termination.begin(grace_s, now)

    def _kill(self, now: float) -> float:
        """KILL the tree, record once what survives, and return when the next round is due."""
        again_at = self._termination.kill(now)
        if self._termination.is_stuck(now) and not self._final.note and (stuck := process_tree.living()):
            self._final.note = process_tree.describe_stuck(stuck)
            self._tell("stuck", processes.names(stuck)[: records.TEXT_MAX])
        return again_at


def _seconds(word: str) -> float:
    value = float(word)
    if value != value:  # NaN: every comparison with it is false
        raise ValueError(f"expected seconds, got {word}")
    return value
