"""The warning before a stop, for a program that runs as a job: `on_stop` and `is_stopping`.

The environment says which signals announce the end and how many seconds are left then: DIBS_WARN (`--signal`), and
DIBS_STOP (TERM: a cancel or the time limit; KILL follows). Python runs handlers of signals only in the main thread and
only between two steps of its own, so a second thread listens too: it steps in when the main thread is busy in C for
longer than `PATIENCE_S`. If that C code keeps the interpreter's lock, nothing of Python runs, and nothing can be done.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, TypeVar

from dibs.errors import UserError

#: Seconds that the main thread may take until another one calls the callbacks in its place.
PATIENCE_S = 1.0
#: What announces the end, by the variables of a job.
ANNOUNCEMENTS = ("DIBS_WARN", "DIBS_STOP")

Callback = TypeVar("Callback", bound=Callable[[float], object])
Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


def announced(environ: Mapping[str, str]) -> dict[int, float]:
    """Return the signals that announce the end of this job, and the seconds left when each comes."""
    found: dict[int, float] = {}
    for variable in ANNOUNCEMENTS:
        word, _, seconds = environ.get(variable, "").partition("@")
        if word:
            try:
                found[signal.Signals[f"SIG{word}"]] = float(seconds)
            except (KeyError, ValueError):
                raise UserError(
                    f'{variable}: expected a signal and seconds such as USR1@120, got "{environ[variable]}".'
                ) from None
    return found


class Stop:
    """What this process does when its end is announced; there is one of it, made when it is first needed."""

    def __init__(self, left_s: dict[int, float]) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise UserError("on_stop and is_stopping expect their first call in the main thread, as signals do.")
        self.has_come = False
        #: Whether the program looks by itself, and can be trusted to end.
        self.is_looked_at = False
        self._left_s = left_s
        self._main_thread = threading.get_ident()
        self._callbacks: list[Callable[[float], object]] = []
        self._before: dict[int, Handler] = {number: signal.signal(number, self._hear) for number in left_s}
        self._listen()
        os.register_at_fork(after_in_child=self._let_go)

    def _let_go(self) -> None:
        """Be as if nothing had been done here: a forked worker ends without a word, its parent is the one to answer."""
        signal.set_wakeup_fd(-1)
        for number, before in self._before.items():
            signal.signal(number, before)

    def add(self, callback: Callable[[float], object]) -> None:
        """Call it when the end is announced, with the seconds left."""
        self._callbacks.append(callback)

    # -- in the main thread

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._call(number)
        before = self._before[number]
        if callable(before):
            before(number, frame)
        elif number == signal.SIGTERM and not self.is_looked_at and before is not signal.SIG_IGN:
            # End as if nobody had listened, so that the code tells what happened.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _call(self, number: int) -> None:
        """Call all callbacks, once for each signal, whichever thread comes first."""
        # To take it is one step of the interpreter, so only one of two threads gets it. A lock could not do that: if
        # the main thread held it when the signal came, it would wait for itself.
        left_s = self._left_s.pop(number, None)
        if left_s is None:
            return
        self.has_come = True
        for callback in self._callbacks:
            callback(left_s)

    # -- in a thread of its own

    def _listen(self) -> None:
        """Have every signal written to a pipe at the moment it comes, whatever the main thread does."""
        heard, told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        others = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        if others != -1:
            # Somebody else listens this way, an event loop: leave it to them.
            signal.set_wakeup_fd(others)
            os.close(heard)
            os.close(told)
            return
        os.set_blocking(heard, True)
        threading.Thread(target=self._step_in, args=(heard,), name="dibs.on_stop", daemon=True).start()

    def _step_in(self, heard: int) -> None:
        while numbers := os.read(heard, 64):
            for number in numbers:
                if number in self._left_s:
                    time.sleep(PATIENCE_S)
                    self._call(number)
                    # It may just be asleep, and have missed the signal by a hair: wake it, that it may go on or end.
                    signal.pthread_kill(self._main_thread, number)


# A process has one set of handlers for signals, so there is one of these in it.
_stop: Stop | None = None


def _the_stop() -> Stop | None:
    global _stop
    if _stop is None and (left_s := announced(os.environ)):
        _stop = Stop(left_s)
    return _stop


def on_stop(callback: Callback) -> Callback:
    """Call `callback(seconds_left)` when this job is about to be stopped; may be used as a decorator.

    It is called once for the warning of `--signal`, and once for the stop itself; after that the process ends as it
    would without, unless it has asked `is_stopping`. Outside a job it is never called.
    """
    if not callable(callback):
        raise UserError(f"on_stop expected a function of the seconds left, got {callback!r}.")
    if (stop := _the_stop()) is not None:
        stop.add(callback)
    return callback


def is_stopping() -> bool:
    """Tell whether this job was warned or told to stop: then save, and end. Who asks is trusted to end by itself."""
    stop = _the_stop()
    if stop is None:
        return False
    stop.is_looked_at = True
    return stop.has_come
