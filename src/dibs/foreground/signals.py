"""Signals, recorded when they come and answered when there is time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from dibs.errors import DibsError


class Left(DibsError):
    """Somebody ended us; nobody is left to be told. The code is that of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__("")
        self.number = number
        self.exit_code = 128 + number


@contextmanager
def leaving() -> Iterator[None]:
    """Raise `Left` when the terminal is lost or somebody ends us, so that the screen is left as it was."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise Left(number)

    before = {
        number: signal.signal(number, leave)
        for number in (signal.SIGTERM, signal.SIGHUP)
        # Whoever ignores a signal for us (nohup) means it.
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Signals:
    """Records signals while inside, so that they are answered between two steps and not within one."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers = numbers
        self._before: dict[signal.Signals, Any] = {}
        self._seen: list[int] = []

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._numbers:
            # Whoever ignores a signal for us (nohup) means it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._seen.append(number)
        if self._seen.count(signal.SIGINT) > 2:
            # Whoever should answer them is stuck. A person must always be able to leave.
            raise KeyboardInterrupt

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with a signal."""
        return self._read

    def new(self) -> list[int]:
        """Return the signals since the last call."""
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            pass
        seen, self._seen = self._seen, []
        return seen
