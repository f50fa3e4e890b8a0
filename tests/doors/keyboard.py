"""A quick typist: hundreds of command lines in the time of a few, each a process of its own.

One interpreter has imported the whole command line and forks for each line that is typed: the process has its own
arguments, environment, folder and streams, and ends with its own code. Only the imports are not paid for again.
On a terminal stdout and stderr are two screens, so that a test can tell them apart.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import selectors
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import warm_cli

from bench import PATIENCE_S, Bench


@dataclass(frozen=True)
class Typed:
    """What one command line came to."""

    code: int
    out: str
    err: str


class Typist:
    """Types command lines for any bench."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        fd = theirs.fileno()
        self._process = subprocess.Popen(
            [sys.executable, warm_cli.__file__, str(fd)], pass_fds=[fd], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def type(
        self, bench: Bench, *words: str, columns: int | None = None, stdin: str = "", folder: Path | None = None,
        environ: dict[str, str | None] | None = None,
    ) -> Typed:  # fmt: skip
        """Run `dibs WORDS` to its end, piped, or on a terminal of so many columns; None takes a variable away."""
        env = {**bench.environ, "TERM": "xterm-256color", **(environ or {})}
        request = {
            "words": words,
            "environ": {name: value for name, value in env.items() if value is not None},
            "folder": str(folder or bench.folder),
            "is_terminal": columns is not None,
        }
        ends, reading = _pipes(stdin) if columns is None else _screens(columns, stdin)
        data = json.dumps(request).encode()
        socket.send_fds(self._ours, [warm_cli.LENGTH.pack(len(data))], ends)
        self._ours.sendall(data)
        for end in ends:
            os.close(end)
        out, err = _read(reading)
        (code,) = warm_cli.CODE.unpack(warm_cli.exactly(self._ours, warm_cli.CODE.size))
        return Typed(code, out.replace("\r\n", "\n"), err.replace("\r\n", "\n"))

    def close(self) -> None:
        """End the interpreter that waits for more."""
        self._ours.close()
        self._process.wait(PATIENCE_S)


def _pipes(stdin: str) -> tuple[list[int], list[int]]:
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    return [_filled(stdin), out_write, err_write], [out_read, err_read]


def _filled(text: str) -> int:
    """Return a pipe from which this text comes, which is short enough to fit into it."""
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    return read


def _screens(columns: int, stdin: str) -> tuple[list[int], list[int]]:
    screens = [pty.openpty() for _ in range(2)]
    for _, slave in screens:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    (out_master, out_slave), (err_master, err_slave) = screens
    return [_filled(stdin) if stdin else os.dup(out_slave), out_slave, err_slave], [out_master, err_master]


def _read(fds: Sequence[int]) -> tuple[str, str]:
    """Read all that comes until the last one who writes is gone."""
    got = {fd: bytearray() for fd in fds}
    deadline = time.monotonic() + PATIENCE_S
    with selectors.DefaultSelector() as waiting:
        for fd in fds:
            waiting.register(fd, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(deadline - time.monotonic())
            if not ready:
                raise AssertionError(
                    f"did not end within {PATIENCE_S} s; so far: {[bytes(text) for text in got.values()]}"
                )
            for key, _ in ready:
                try:
                    data = os.read(key.fd, 65536)
                except OSError:
                    # So ends a screen whose last process is gone.
                    data = b""
                got[key.fd] += data
                if not data:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
    out, err = (bytes(text).decode(errors="surrogateescape") for text in got.values())
    return out, err
