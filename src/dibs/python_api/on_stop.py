"""`on_stop` and `is_stopping`: tell a program that runs as a job that it is about to be stopped.

The environment names the signals and the seconds that remain after each: DIBS_WARN (`--signal`) and DIBS_STOP (TERM, at
a cancel or the time limit; KILL follows). Python runs signal handlers only in the main thread, between two bytecodes.
So a second thread calls the callbacks if the main thread is busy in C code for more than `MAIN_THREAD_FOR_S`. If that
code holds the GIL, no Python code can run.

Python 3.9.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union

from dibs.errors import UserError

if TYPE_CHECKING:
    from types import FrameType

    Handler = Union[Callable[[int, Union[FrameType, None]], Any], int, signal.Handlers, None]

#: Seconds before the second thread calls the callbacks in place of the main thread.
MAIN_THREAD_FOR_S = 1.0
#: The variables that name the signals.
VARIABLES = ("DIBS_WARN", "DIBS_STOP")

Callback = TypeVar("Callback", bound="Callable[[], object] | Callable[[float], object]")


class BadCallback(UserError, TypeError):
    """A callback that takes neither nothing nor the seconds left."""


def stop_signals(environ: Mapping[str, str]) -> dict[int, float]:
    """Return the signals that announce the end of this job, with the seconds that remain after each."""
    found: dict[int, float] = {}
    for variable in VARIABLES:
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
    """The signal handlers and callbacks of this process; created on first use."""

    def __init__(self, left_s: dict[int, float]) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise UserError("the first call of on_stop or is_stopping must be in the main thread.")
        self.has_come = False
        #: Whether the program calls `is_stopping`, and so exits by itself.
        self.is_polled = False
        self._left_s = left_s
        self._main_thread = threading.get_ident()
        self._callbacks: list[Callable[[float], object]] = []
        self._previous: dict[int, Handler] = {number: signal.signal(number, self._on_signal) for number in left_s}
        self._start_thread()
        os.register_at_fork(after_in_child=self._restore)

    def _restore(self) -> None:
        """Restore the previous handlers in a forked child: only the parent calls the callbacks."""
        signal.set_wakeup_fd(-1)
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def add(self, callback: Callable[[float], object]) -> None:
        """Add a callback; it gets the seconds left."""
        self._callbacks.append(callback)

    # -- in the main thread

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._call(number)
        previous = self._previous[number]
        if callable(previous):
            previous(number, frame)
        elif number == signal.SIGTERM and not self.is_polled and previous is not signal.SIG_IGN:
            # Die by the signal, so that the exit status shows it.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _call(self, number: int) -> None:
        """Call all callbacks, once per signal, from whichever thread comes first."""
        # `pop` is atomic, so only one thread gets the value. A lock would deadlock if the signal arrived while the main
        # thread held it.
        left_s = self._left_s.pop(number, None)
        if left_s is None:
            return
        self.has_come = True
        for callback in self._callbacks:
            callback(left_s)

    # -- in the second thread

    def _start_thread(self) -> None:
        """Have signals written to a pipe at once, whatever the main thread does, and read it in a thread."""
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        previous_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        if previous_fd != -1:
            # An event loop uses the wakeup descriptor: do not change it.
            signal.set_wakeup_fd(previous_fd)
            os.close(read_fd)
            os.close(write_fd)
            return
        os.set_blocking(read_fd, True)
        threading.Thread(target=self._call_late, args=(read_fd,), name="dibs.on_stop", daemon=True).start()

    def _call_late(self, read_fd: int) -> None:
        while numbers := os.read(read_fd, 64):
            for number in numbers:
                if number in self._left_s:
                    time.sleep(MAIN_THREAD_FOR_S)
                    self._call(number)
                    # The main thread may have begun to sleep just after the signal: interrupt it.
                    signal.pthread_kill(self._main_thread, number)


# One instance, as a process has one set of signal handlers.
_stop: Stop | None = None


def _the_stop() -> Stop | None:
    global _stop
    if _stop is None and (left_s := stop_signals(os.environ)):
        _stop = Stop(left_s)
    return _stop


def on_stop(callback: Callback) -> Callback:
    """Call `callback()` or `callback(seconds_left)` when this job is about to be stopped; also a decorator.

    It gets the seconds if it has a parameter without a default for them. It is called once for the warning of
    `--signal` and once for the stop itself. After the stop the process terminates, unless it has called `is_stopping`.
    Outside a job the callback is never called.
    """
    call: Callable[..., object] = callback
    takes_seconds = _takes_seconds(call)
    if (stop := _the_stop()) is not None:
        stop.add(call if takes_seconds else lambda left_s: call())
    return callback


def _takes_seconds(callback: Callable[..., object]) -> bool:
    """Tell whether a callback takes the seconds left; refuse one that cannot be called with or without them."""
    import inspect

    if not callable(callback):
        raise BadCallback(f"on_stop expected a function, got {callback!r}.")
    try:
        signature = inspect.signature(callback)
    except ValueError:
        # Some functions written in C do not say what they take.
        return True
    has_rest = any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values())
    for arguments in ((0.0,), ()) if has_rest else ((), (0.0,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    name = getattr(callback, "__qualname__", repr(callback))
    raise BadCallback(f"on_stop expected a function with no argument or one, the seconds left, got {name}{signature}.")


def is_stopping() -> bool:
    """Return whether this job got the warning or the stop signal. A program that calls this must exit by itself."""
    stop = _the_stop()
    if stop is None:
        return False
    stop.is_polled = True
    return stop.has_come
