"""The log of a job as a file of any size: open it, find its last lines, read a range, search it in a child process.

Call it in a thread that may block: a log may be on a network disk that does not answer.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dibs.errors import Conflict, MachineError, UserError
from dibs.logs import search_child

#: Bytes per read.
BLOCK = 256 * 1024
#: Bytes before the end in which the last lines are searched.
FARTHEST = 64 * 1024 * 1024
#: Seconds for the search child: its CPU time is limited, but network delays are not.
CHILD_FOR_S = 30.0


@dataclass(frozen=True, slots=True)
class LogFile:
    """An open log and its size when it was opened; without a descriptor it does not exist yet and is empty."""

    fd: int | None
    size: int

    def read(self, begin: int, end: int) -> bytes:
        """Return the next bytes of a range, not necessarily all; none if the file was truncated."""
        return b"" if self.fd is None else os.pread(self.fd, min(BLOCK, end - begin), begin)

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)


def open_log(path: str) -> LogFile:
    """Open a log for reading; accept only a regular file, because opening a pipe would wait for a writer."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return LogFile(None, 0)
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror}.") from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise Conflict(f"{path} is not a regular file, so its output cannot be shown.")
    return LogFile(fd, found.st_size)


def last_lines(log: LogFile, lines: int, farthest: int = FARTHEST) -> int:
    """Return the offset of the last `lines` lines; if they are longer than `farthest` bytes, of those bytes."""
    if log.fd is None or lines <= 0:
        return log.size
    floor = max(0, log.size - farthest)
    # The newline at the end of the file starts no further line.
    at = log.size - (log.size > 0 and os.pread(log.fd, 1, log.size - 1) == b"\n")
    while at > floor:
        begin = max(floor, at - BLOCK)
        block = os.pread(log.fd, at - begin, begin)
        count = block.count(b"\n")
        if count >= lines:
            place = len(block)
            for _ in range(lines):
                place = block.rindex(b"\n", 0, place)
            return begin + place + 1
        lines -= count
        at = begin
    return floor


def search(log: LogFile, begin: int, text: str, *, is_regex: bool, is_case: bool, most: int) -> bytes:
    """Return the lines that contain a text or match an expression, as JSON."""
    asked = {"what": "search", "begin": begin, "text": text, "regex": is_regex, "case": is_case, "most": most}
    return _ask(log, asked)


def index(log: LogFile, begin: int, line: int) -> bytes:
    """Return the offset of every thousandth line, as JSON; `line` is the number of the line at the byte `begin`."""
    return _ask(log, {"what": "lines", "begin": begin, "line": line})


def _ask(log: LogFile, asked: dict[str, object]) -> bytes:
    words = [sys.executable, "-I", "-S", str(Path(search_child.__file__)), json.dumps(asked | {"size": log.size})]
    stdin = subprocess.DEVNULL if log.fd is None else log.fd
    try:
        child = subprocess.run(words, stdin=stdin, capture_output=True, timeout=CHILD_FOR_S, check=False)
    except subprocess.TimeoutExpired:
        raise MachineError(f"the log was not read within {CHILD_FOR_S:.0f} s.", "Is its disk there?") from None
    if child.returncode == 0:
        return child.stdout
    if child.returncode == search_child.EXIT_BAD_EXPRESSION:
        why = " ".join(child.stdout.decode(errors="replace").split())
        raise UserError(f"text expected a regular expression, got an invalid one: {why}.")
    if child.returncode < 0:
        raise UserError(
            f"the search took more than {search_child.MOST_CPU_S} s of CPU time and was stopped.",
            "Simplify the expression (no repeats inside repeats), or search for plain text.",
        )
    raise MachineError("the log cannot be searched.", " ".join(child.stderr.decode(errors="replace").split())[-200:])
