"""Run one task in its own session, and supervise it until its whole process tree has exited.

The task inherits the leases, so it keeps its GPUs until its last process exits, even if we are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from dibs.errors import DibsError
from dibs.foreground import supervision
from dibs.leases import device_lease
from dibs_compat import ids
from dibs_compat.schedule import screen
from dibs_compat.schedule.gpu_wait import Grant

#: Seconds after TERM in which Ctrl-C is ignored, because people press it several times.
IGNORE_S = 3.0

#: Grace after Ctrl-C: wait until the next one.
PATIENT_S = 1e9

WAKE = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StartError(DibsError):
    """The command of the task cannot be executed."""

    exit_code = 1

    def __init__(self, word: str, error: OSError) -> None:
        super().__init__(f"cannot run {word!r}: {error.strerror}.")
        #: What a shell would exit with.
        self.shell_code = 127 if isinstance(error, FileNotFoundError) else 126


@dataclass(frozen=True)
class End:
    """How a task ended."""

    #: Its own code, or 128 and the signal that ended it.
    code: int
    #: Seconds since 1970.
    at: float
    #: The signal that stopped the scheduler.
    stop_signal: int | None


class Step(Enum):
    """What the next Ctrl-C does."""

    WARN = "warn"
    TERMINATE = "terminate"
    KILL = "kill"
    NOTHING = "nothing"


def block() -> set[int]:
    """Hold back the signals that are answered while a task runs; return what was held back before."""
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, WAKE))


def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    grant: Grant,
    mask: set[int],
    stdout: int | None = None,
    stderr: int | None = None,
) -> int:
    """Start a task; return its pid. It does not see Ctrl-C, and holds the leases itself.

    We must be a subreaper with our signals blocked, or `supervise` misses its end.
    """

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    inherited = device_lease.duplicate_fds(grant.leases)
    try:
        child = subprocess.Popen(
            argv, env=env, stdout=stdout, stderr=stderr, pass_fds=inherited, start_new_session=True, preexec_fn=prepare
        )
    except OSError as error:
        raise StartError(argv[0], error) from error
    finally:
        for fd in inherited:
            os.close(fd)
    # Its end is seen by the supervision of the whole tree.
    child.returncode = 0
    return child.pid


def supervise(
    pid: int, first: Step, grace_s: float, complain: Callable[[str], None], limit_s: float | None = None
) -> End:
    """Wait until no process of the task is left, handle signals meanwhile, and end it when its time is over."""
    tree = supervision.command_tree(pid, grace_s, lambda who: complain(f"survived KILL: {who}"), limit_s)
    signals = StopSignals(pid, first, grace_s)
    # Signals ignored by our parent (nohup) stay ignored, except Ctrl-C.
    wake = [n for n in WAKE if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN]
    while not tree.reap(now := time.monotonic()):
        wake_at = tree.act(now)
        came = supervision.wait_for_signal(wake, wake_at)
        if came is not None and came != signal.SIGCHLD:
            now = time.monotonic()
            seconds = signals.answer(came, now)
            if seconds is not None:
                tree.obey(["stop", str(seconds)], now)
    final = tree.final()
    if final.timed_out:
        complain(f"the task was ended: {ids.limit_reached(limit_s)}")
    if final.leftovers and signals.stop_signal is None:
        complain(f"the task ended and left processes behind; they were ended: {final.leftovers}")
    code = 128 + final.signal if final.signal else final.code or 0
    return End(code, final.ended_at_ns / 1e9, signals.stop_signal)


class StopSignals:
    """Maps signals to grace periods, and prints what happens."""

    def __init__(self, group: int, first: Step, grace_s: float) -> None:
        self._group = group
        self._step = first
        self._grace_s = grace_s
        self._ignore_until = 0.0
        self.stop_signal: int | None = None

    def answer(self, number: int, now: float) -> float | None:
        """Return the seconds until KILL; None: do not stop the task."""
        if number == signal.SIGINT:
            return self._interrupted(now)
        is_second = self.stop_signal is not None
        self.stop_signal = self.stop_signal or number
        return self._kill() if is_second else self._terminate(now, self._grace_s)

    def _interrupted(self, now: float) -> float | None:
        if now < self._ignore_until:
            return None
        if self._step is Step.WARN:
            screen.say(f"\nNext Ctrl-C terminate the task (PGID: {self._group}).")
            self._step = Step.TERMINATE
            return None
        if self._step is Step.TERMINATE:
            return self._terminate(now, PATIENT_S)
        return self._kill() if self._step is Step.KILL else None

    def _terminate(self, now: float, grace_s: float) -> float:
        screen.say(f"\nThe task (PGID: {self._group}) was terminated.")
        self._step, self._ignore_until = Step.KILL, now + IGNORE_S
        return grace_s

    def _kill(self) -> float:
        screen.say(f"\nThe task (PGID: {self._group}) was killed.")
        self._step = Step.NOTHING
        return 0.0


def die_by(number: int) -> int:
    """Die by the signal, so that our parent sees it; return the exit code if we survive."""
    sys.stdout.flush()
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    return 128 + number
