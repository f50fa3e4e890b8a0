"""Output for users: tables, colours and times, on a terminal or piped.

On a terminal rich draws, fitted to its width; piped, the same text is plain, aligned, complete and with local ISO
times. Text from other sources is cleaned here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import TextIO

from dibs.client.safe_text import clean as clean
from dibs.model import units
from dibs.submission import options

#: Width if the terminal does not report one.
USUAL_WIDTH = 80
GAP = 2
#: Narrower than this nothing can be recognised.
LEAST = 4
#: Shown for an empty cell, so that columns can be counted.
NOTHING = "-"

STATE_STYLES = {
    "held": "dim", "queued": "cyan", "starting": "green", "running": "green", "paused": "yellow",
    "stopping": "yellow", "done": "dim", "failed": "red", "cancelled": "dim", "timeout": "red", "lost": "red",
    "free": "green", "reserved": "cyan", "leased": "cyan", "foreign": "yellow", "drained": "yellow", "unhealthy": "red",
}  # fmt: skip


@dataclass(frozen=True)
class Screen:
    """Properties of an output stream; `width` None means no limit."""

    is_terminal: bool
    is_coloured: bool
    width: int | None


@dataclass(frozen=True)
class Column:
    """A column of a table; one with a `least` width may shrink on a narrow terminal, on a very narrow one to half."""

    title: str
    least: int | None = None
    is_right: bool = False
    is_state: bool = False
    #: Wraps to the next line instead of being cut in the middle: a sentence is read from its beginning.
    is_sentence: bool = False
    #: Lines that a sentence may take on a terminal before it is cut; 0: no limit.
    most_lines: int = 0


def screen_of_stream(stream: TextIO, args: options.Args, environ: Mapping[str, str] = os.environ) -> Screen:
    """Return the screen of a stream; options and environment decide on colour."""
    is_terminal = stream.isatty()
    width = _width(stream) if is_terminal else None
    return Screen(is_terminal, is_coloured(is_terminal, args.get(options.COLOR), environ), width)


def is_coloured(is_terminal: bool, chosen: str | None, environ: Mapping[str, str]) -> bool:
    """Decide on colour: the option, then NO_COLOR, then FORCE_COLOR, then whether the terminal supports it."""
    if chosen in ("always", "never"):
        return chosen == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal and environ.get("TERM") != "dumb"


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    except OSError:
        return USUAL_WIDTH


def table(screen: Screen, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without a final newline; an empty row is a blank line on a terminal."""
    cells = [[clean(cell) or NOTHING for cell in row] for row in rows]
    if screen.is_terminal or screen.is_coloured:
        return _drawn(screen, columns, cells)
    lines = [[column.title for column in columns], *(row for row in cells if row)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    return "\n".join(aligned(columns, widths, line) for line in lines)


def aligned(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    """Return one line of a table without colours."""
    padded = (
        cell.rjust(width) if column.is_right else cell.ljust(width)
        for cell, width, column in zip(cells, widths, columns, strict=True)
    )
    return (" " * GAP).join(padded).rstrip()


def _drawn(screen: Screen, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> str:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    lines = [[column.title for column in columns], *(row for row in cells if row)]
    widths = [max(cell_len(line[n]) for line in lines) for n in range(len(columns))]
    if screen.width is not None:
        widths = fit(widths, columns, screen.width)
    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        drawn.add_column(
            Text(column.title),
            width=width,
            no_wrap=not column.is_sentence,
            overflow="fold" if column.is_sentence else "ellipsis",
            justify="right" if column.is_right else "left",
        )
    for row in cells:
        if not row:
            drawn.add_row()
            continue
        drawn.add_row(
            *(
                Text(
                    _wrapped(cell, width, column.most_lines) if column.is_sentence else middle(cell, width),
                    STATE_STYLES.get(cell, "") if column.is_state else "",
                )
                for cell, width, column in zip(row, widths, columns, strict=True)
            )
        )
    return _rendered(screen, drawn, sum(widths) + GAP * len(widths))


def _wrapped(text: str, width: int, most_lines: int) -> str:
    """Return a sentence in lines of `width` columns, cut after `most_lines`."""
    from rich.console import Console
    from rich.text import Text

    lines = [line.plain.rstrip() for line in Text(text).wrap(Console(width=max(width, 1)), max(width, 1))]
    if most_lines and len(lines) > most_lines:
        last = Text(lines[most_lines - 1])
        last.truncate(max(width - 1, 0))
        lines = [*lines[: most_lines - 1], f"{last.plain.rstrip()}…"]
    return "\n".join(lines)


def _rendered(screen: Screen, what: object, needed: int) -> str:
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    console = Console(
        file=text,
        # A narrower console would cut the columns that must not be cut.
        width=max(screen.width or 0, needed),
        force_terminal=screen.is_coloured,
        # Colours that every terminal has, light or dark.
        color_system="standard" if screen.is_coloured else None,
        legacy_windows=False,
    )
    console.print(what)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").split("\n"))


def fit(widths: Sequence[int], columns: Sequence[Column], total: int) -> list[int]:
    """Return widths that fit into `total`: repeatedly shrink the widest column that may shrink.

    If that is not enough, the table is wider than the terminal, which wraps its lines: an id that is cut has no use.
    """
    fitted = list(widths)
    excess = sum(widths) + GAP * (len(widths) - 1) - total
    for parts in (1, 2):
        least = [
            min(column.least, max(column.least // parts, LEAST)) if column.least else width
            for column, width in zip(columns, widths, strict=True)
        ]
        while excess > 0:
            room = [(width, n) for n, width in enumerate(fitted) if width > least[n]]
            if not room:
                break
            fitted[max(room)[1]] -= 1
            excess -= 1
    return fitted


def middle(text: str, width: int) -> str:
    """Return `text` cut in the middle, because commands differ at both ends."""
    if len(text) <= width and text.isascii():
        return text
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    if width < 4:
        return _beginning(text, width)
    left = (width - 1) // 2
    end = _beginning(text[::-1], width - 1 - left)[::-1]
    return f"{_beginning(text, left)}…{end}"


def _beginning(text: str, width: int) -> str:
    """Return as many characters of a text as fit into `width` columns; some take two, some none."""
    from rich.cells import cell_len

    ends = accumulate(map(cell_len, text))
    return text[: sum(1 for end in ends if end <= width)]


def wrapped(screen: Screen, text: str, indent: str = "") -> str:
    """Return text wrapped between words to the width of the terminal; continuation lines are indented."""
    if screen.width is None:
        return text
    import textwrap

    return textwrap.fill(text, screen.width, subsequent_indent=indent, break_on_hyphens=False)


def facts(screen: Screen, pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values, one pair per line, without empty values."""
    kept = [(name, clean(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{paint(screen, name.ljust(width), 'dim')}  {value}" for name, value in kept)


#: The few colours that are used outside tables, where rich would only cost time.
SGR = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1"}


def paint(screen: Screen, text: str, style: str) -> str:
    """Return text in a colour, if the screen has colours."""
    return f"\x1b[{SGR[style]}m{text}\x1b[0m" if screen.is_coloured and style in SGR else text


def state(screen: Screen, word: str) -> str:
    """Return the word for a state in its colour."""
    return paint(screen, clean(word), STATE_STYLES.get(word, ""))


def moment(screen: Screen, text: str | None, now: datetime) -> str:
    """Return a time in the local time zone, or on a terminal how long ago it was."""
    if not text:
        return ""
    return f"{units.format_duration(since_s(text, now))} ago" if screen.is_terminal else local(text)


def local(text: str) -> str:
    """Return an ISO time in the local time zone, to the second."""
    return datetime.fromisoformat(text).astimezone().isoformat(timespec="seconds")


def since_s(text: str, now: datetime) -> float:
    """Return the seconds from an ISO time until `now`; 0 if the clock was set back."""
    return max(0.0, (now - datetime.fromisoformat(text)).total_seconds())


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def say(*texts: str) -> None:
    """Print messages for the user on stderr; stdout is for data."""
    width = _width(sys.stderr) if sys.stderr.isatty() else None
    for text in texts:
        print(wrapped(Screen(False, False, width), f"dibs: {clean(text)}", "  "), file=sys.stderr, flush=True)


def say_if_possible(text: str) -> None:
    """Print a message on stderr; if the terminal is gone, continue without it."""
    with suppress(OSError):
        say(text)


def print_json(document: object) -> None:
    """Print one JSON document."""
    import json

    print(json.dumps(document, indent=2))


def confirm(question: str) -> bool:
    """Ask on the terminal; any answer except yes is no."""
    print(f"dibs: {clean(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
