"""Lines of text in styles, and bars: what the parts of the screen are made of. Pure.

A style is a name of `palette.STYLES` or empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from dibs.client.safe_text import clean
from dibs.model import units

#: Texts with their styles, from left to right.
Line = tuple[tuple[str, str], ...]


class Marks(NamedTuple):
    """The characters of a picture."""

    full: str
    empty: str
    planned: str
    now: str
    cut: str
    dot: str
    #: The first cell of a bar that follows another without a gap.
    edge: str


UNICODE = Marks("█", "░", "▒", "│", "…", "·", "▐")
#: For terminals without Unicode.
ASCII = Marks("#", ".", "=", "|", "~", "-", "|")
#: Eighths of a character cell.
PARTS = " ▏▎▍▌▋▊▉"


def plain(line: Line) -> str:
    """Return the text of a line."""
    return "".join(text for text, _ in line)


def fitted(line: Line, width: int, marks: Marks = UNICODE) -> Line:
    """Return a line that is at most `width` characters long; a cut shows."""
    if len(plain(line)) <= width:
        return line
    kept: list[tuple[str, str]] = []
    room = max(width - 1, 0)
    for text, style in line:
        kept.append((text[:room], style))
        room -= len(text[:room])
    return (*kept, (marks.cut if width else "", ""))


def bar(share: float | None, width: int, marks: Marks, style: str) -> Line:
    """Return a bar that is filled to a share from 0 to 1 in this style; None: nothing is known."""
    text = _bar(share, width, marks)
    filled = text.rstrip(marks.empty if marks is ASCII else marks.dot)
    return ((filled, style), (text[len(filled) :], "track"))


def _bar(share: float | None, width: int, marks: Marks) -> str:
    if share is None:
        return " " * width
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    if marks is ASCII:
        return (marks.full * round(eighths / 8)).ljust(width, marks.empty)
    part = PARTS[rest] if rest else ""
    return (marks.full * whole + part).ljust(width, marks.dot)


def level(share: float | None) -> str:
    """Return the colour of a share: a full GPU is a used one, which is good."""
    return "" if share is None else "green" if share >= 0.5 else "yellow" if share >= 0.1 else ""


def joined(cells: Sequence[tuple[str, str]]) -> Line:
    """Return single characters with their styles as a line of few parts."""
    return tuple(
        ("".join(text for text, _ in run), style)
        for style, run in ((style, list(run)) for style, run in groupby(cells, key=lambda cell: cell[1]))
    )


def apart(left: str, right: str, width: int) -> str:
    """Return two texts at both ends of a line; without room the right one is left out."""
    gap = width - len(left) - len(right)
    return f"{left}{' ' * gap}{right}" if gap >= 2 else left[:width]


def ran(since: str | None, now: datetime) -> str:
    """Return how long ago a moment was, as a duration."""
    if not since:
        return ""
    return units.format_duration(max(0.0, (now - datetime.fromisoformat(since)).total_seconds()))


def words(parts: Iterable[str]) -> str:
    """Return texts of others, joined and cleaned of control characters."""
    return clean(" ".join(part for part in parts if part))
