"""When the bytes of a log were written: its size at moments while the job ran, in a small file of its own.

A job writes its log itself, so nobody can stamp its lines. But a line that begins after the size of one moment and ends
before that of a later one was written between the two.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence

#: A time in wall-clock milliseconds, and the size of the log then.
MARK = struct.Struct("<qq")
#: The most bytes of such a file that are read: a month of a mark every 30 seconds.
MOST_BYTES = 90_000 * MARK.size
#: The most marks in one answer: of more, every second one is left out, which makes the times less exact.
MOST_MARKS = 10_000

Mark = tuple[int, int]


def size_of(path: str) -> int | None:
    """Return the size of a log; None if it is not there, or no file."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return None


def append(path: str, mark: Mark) -> None:
    """Add a mark to a file in the folder of an attempt; without the folder there is nothing to add to."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        fd = os.open(path, flags, 0o600)
        try:
            os.write(fd, MARK.pack(*mark))
        finally:
            os.close(fd)


def read(path: str) -> list[Mark]:
    """Return the marks of a file in their order; none if there is no file."""
    try:
        with open(path, "rb") as file:
            told = file.read(MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return []
    # A full disk may have cut the last one.
    return sound([MARK.unpack_from(told, at) for at in range(0, len(told) - MARK.size + 1, MARK.size)])


def sound(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks that say something of the log as it is now, in their order."""
    found: list[Mark] = []
    for at, size in marks:
        if found and size < found[-1][1]:
            # The log was emptied: what was written before is gone.
            found.clear()
        # The clock may have been set back, and the same size again says nothing new of the bytes before it.
        while found and at < found[-1][0]:
            found.pop()
        found.append((at, size))
    return found


def thinned(marks: Sequence[Mark], most: int = MOST_MARKS) -> list[Mark]:
    """Return at most `most` marks, evenly; the first and the last stay."""
    step = -(-max(1, len(marks) - 1) // max(1, most - 1))
    return [*marks[:-1][::step], *marks[-1:]]
