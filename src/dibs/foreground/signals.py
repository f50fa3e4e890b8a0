"""Signals of a program in a terminal: recorded when they arrive, handled between two steps."""

from __future__ import annotations

import os
from contextlib import contextmanager

from dibs.errors import DibsError
from dibs.system.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn


class Left(DibsError):
    """A signal ended this program. Prints nothing; the exit code is that of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__("")
        self.number = number
        self.exit_code = 128 + number


@contextmanager
def leaving() -> Iterator[None]:
    """Raise `Left` on TERM and HUP, so that the terminal is restored before the program ends."""

    def leave(number: int, frame: object) -> NoReturn:
        raise Left(number)

    before = {number: signal.signal(number, leave) for number in _not_ignored((signal.SIGTERM, signal.SIGHUP))}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _not_ignored(numbers: tuple[int, ...]) -> list[int]:
    """Return the signals that are not ignored on purpose (nohup, a shell without job control)."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


class Signals:
    """Records signals inside a `with` block, and becomes readable when one arrives.

    Signals in `wake` make it readable but are not recorded; those in `ignored` are ignored. With `is_escapable`, a
    third SIGINT that nobody has taken raises KeyboardInterrupt: the program hangs, and the user must be able to end it.
    """

    def __init__(
        self, *numbers: int, wake: tuple[int, ...] = (), ignored: tuple[int, ...] = (), is_escapable: bool = True
    ) -> None:
        self._numbers = numbers
        self._wake = wake
        self._ignored = ignored
        self._is_escapable = is_escapable
        self._before: dict[int, Any] = {}
        self._seen: list[int] = []

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        handlers: dict[int, Any] = dict.fromkeys(_not_ignored(self._numbers), self._record)
        handlers |= dict.fromkeys(self._wake, _do_nothing) | dict.fromkeys(self._ignored, signal.SIG_IGN)
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def _record(self, number: int, frame: object) -> None:
        self._seen.append(number)
        if self._is_escapable and self._seen.count(signal.SIGINT) > 2:
            raise KeyboardInterrupt

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a signal arrives."""
        return self._read

    def drain(self) -> None:
        """Clear readiness until the next signal. Check for what `wake` announces after this call, not before."""
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            pass

    def take(self) -> list[int]:
        """Return the signals recorded since the last call."""
        seen, self._seen = self._seen, []
        return seen

    def new(self) -> list[int]:
        """Drain, and return the signals recorded since the last call."""
        self.drain()
        return self.take()


def _do_nothing(number: int, frame: object) -> None:
    """Handle a signal that only has to wake us."""
