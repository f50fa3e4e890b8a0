"""A user at a terminal: runs the command line on a pty, types, and reads the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence

import forking
from bench import PATIENCE_S, Bench

CTRL_C = "\x03"
CTRL_Z = "\x1a"


class Terminal:
    """One command of dibs, or another program, on a terminal of a given width."""

    def __init__(
        self, bench: Bench, *words: str, columns: int = 80, program: Sequence[str] = (), **environ: str
    ) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = bench.environ | {"TERM": "xterm-256color"} | environ
        # It is the controlling terminal, so that Ctrl-C is a signal.
        self.process = forking.start(
            None if program else "dibs", [*program, *words], env, bench.folder, [slave] * 3, terminal=0
        )
        os.close(slave)
        self._shown = bytearray()

    @property
    def screen(self) -> str:
        """Return everything shown so far."""
        return self._shown.decode(errors="replace")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.master, text.encode())

    def until(self, text: str) -> str:
        """Read until `text` is shown; return everything shown so far."""
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self._shown:
            if not self._read(deadline):
                raise AssertionError(f"never saw {text!r}; the screen: {self.screen!r}")
        return self.screen

    def forget(self) -> None:
        """Discard the screen: only what comes from now on is considered."""
        self._shown.clear()

    def end(self) -> tuple[int, str]:
        """Read until the command ends; return its exit code and everything it showed."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE_S), self.screen

    def hang_up(self) -> int:
        """Close the terminal, as when a window is closed; return the exit code (128 + n for signal n)."""
        os.close(self.master)
        self.master = -1
        code = self.process.wait(PATIENCE_S)
        return 128 - code if code < 0 else code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command alone."""
        self.process.send_signal(number)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing came for {PATIENCE_S} s; the screen: {self.screen!r}")
        try:
            data = os.read(self.master, 65536)
        except OSError:
            # The last process that had the terminal open is gone.
            data = b""
        self._shown += data
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        if self.master >= 0:
            os.close(self.master)
