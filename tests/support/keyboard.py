"""Runs hundreds of command lines in the time of a few, each as a separate process (see `forking`).

On a terminal stdout and stderr are two screens, so that a test can tell them apart.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from dataclasses import dataclass
from pathlib import Path

import forking
from bench import Bench


@dataclass(frozen=True)
class Typed:
    """The result of one command line."""

    code: int
    out: str
    err: str


class Typist:
    """Runs command lines for any bench."""

    def type(
        self, bench: Bench, *words: str, columns: int | None = None, stdin: str = "", folder: Path | None = None,
        environ: dict[str, str | None] | None = None,
    ) -> Typed:  # fmt: skip
        """Run `dibs WORDS` to its end, piped, or on a terminal of the given width; None removes a variable."""
        env = {**bench.environ, "TERM": "xterm-256color", **(environ or {})}
        ends, reading = _pipes(stdin) if columns is None else _screens(columns, stdin)
        process = forking.start(
            "dibs",
            words,
            {name: value for name, value in env.items() if value is not None},
            folder or bench.folder,
            ends,
            terminal=None if columns is None else 1,
        )
        for end in ends:
            os.close(end)
        out, err = forking.read_all(reading)
        code = process.wait()
        return Typed(128 - code if code < 0 else code, out.replace("\r\n", "\n"), err.replace("\r\n", "\n"))


def _pipes(stdin: str) -> tuple[list[int], list[int]]:
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    return [forking.filled(stdin), out_write, err_write], [out_read, err_read]


def _screens(columns: int, stdin: str) -> tuple[list[int], list[int]]:
    screens = [pty.openpty() for _ in range(2)]
    for _, slave in screens:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    (out_master, out_slave), (err_master, err_slave) = screens
    return [forking.filled(stdin) if stdin else os.dup(out_slave), out_slave, err_slave], [out_master, err_master]
