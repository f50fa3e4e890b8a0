"""Parse GPUPeasy's job lists, from its page or from `.esy` files: `NAME;;OUTPUT;;COMMAND;;;`, repeated.

Whitespace is collapsed and newlines count as blanks; empty parts are skipped. The command is split into words as a
shell does, but no shell runs it.

Apart: It is a file format, and pure; the verb does the rest.

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

#: The terminator of a job, and the separator of its parts.
END, BETWEEN = ";;;", ";;"


@dataclass(frozen=True, slots=True)
class Entry:
    """One job of a list."""

    name: str
    output: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """An invalid part of a list, as written."""

    text: str
    #: Its name, if only its command cannot be split into words.
    name: str | None = None
    why: str = f"it does not have three parts separated by {BETWEEN}"


def parse(text: str) -> list[Entry | Malformed]:
    """Return the entries of a list, in order."""
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
        # For example an unclosed quote.
        return Malformed(text, name, str(error))
    return Entry(name, output, argv) if argv else Malformed(text, name, "No command")


def _filled(text: str, between: str) -> Iterator[str]:
    return (part.strip() for part in text.split(between) if part.strip())
