"""The signals that stop a foreground door: recorded when they come, answered by its loop between two steps."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # `signal` imports enum; the C module below it has all we need and costs nothing.
    import _signal as signal

#: What ends us by and by: each of these is one step of `pipe_loop.Pipe.stop`.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: What would stop, for ever, a command that asks the terminal something; ignored, it is told that there is none.
TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)


class Signals:
    """Records the signals that stop us, and is readable when one came or a child ended."""

    __slots__ = ("_before", "_seen", "_wakeup_fd", "_write_fd", "fd")

    def __enter__(self) -> Signals:
        self._seen: list[int] = []
        self.fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wakeup_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        # Whoever ignores a signal for us (nohup, a shell without job control) means it.
        mine = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._record) for number in mine}
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _nothing)
        self._before |= {number: signal.signal(number, signal.SIG_IGN) for number in TERMINAL}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_fd)
        os.close(self.fd)
        os.close(self._write_fd)

    def _record(self, number: int, frame: object) -> None:
        self._seen.append(number)

    def calm(self) -> None:
        """Be readable no more, until the next one comes."""
        os.read(self.fd, 4096)

    def new(self) -> list[int]:
        """Return the signals since the last call that stop us."""
        seen, self._seen = self._seen, []
        return seen


def _nothing(number: int, frame: object) -> None:
    """Answer a signal whose coming is all it has to say."""
