"""The list of jobs that GPUPeasy reads, on its page and in `.esy` files: `NAME;;OUTPUT;;COMMAND;;;`, repeated.

Line ends are blanks, blanks in a row are one, empty parts are left out. The command is split as a shell splits words,
and never reaches one.

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

#: What ends a job, and what stands between its parts.
END, BETWEEN = ";;;", ";;"


@dataclass(frozen=True, slots=True)
class Entry:
    """One job of a list."""

    name: str
    output: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A part of a list that is no job, as it was written."""

    text: str
    #: Its name, where only its command cannot be split into words.
    name: str | None = None
    why: str = f"it has not three parts with {BETWEEN} between them"


def parse(text: str) -> list[Entry | Malformed]:
    """Return what a list says, in its order."""
    flat = " ".join(text.split())
    return [_entry(part) for part in _filled(flat, END)]


def _entry(text: str) -> Entry | Malformed:
    parts = list(_filled(text, BETWEEN))
    if len(parts) != 3:
        return Malformed(text)
    name, output, command = parts
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        # A quote that is never closed, say.
        return Malformed(text, name, str(error))
    return Entry(name, output, argv) if argv else Malformed(text, name, "No command")


def _filled(text: str, between: str) -> Iterator[str]:
    return (part.strip() for part in text.split(between) if part.strip())
