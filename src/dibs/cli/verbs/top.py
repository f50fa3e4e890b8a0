"""`dibs top`: the machine and the queue on the whole terminal, live.

The first screen is drawn from two answers of the daemon before Textual is loaded, which takes longer than they do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dibs.cli import repaint, screen
from dibs.cli.top import feed, frame, lines, palette
from dibs.cli.top.lines import Marks
from dibs.cli.top.snapshot import Snapshot
from dibs.client import connection
from dibs.errors import UserError
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Watch and control GPUs and jobs on the full screen; ? lists the keys."
USAGE = ("[OPTIONS]",)
OPTIONS: tuple[Option[object], ...] = ()
EXAMPLES = ("dibs top",)
#: The smallest terminal on which there is room for something.
LEAST_COLUMNS, LEAST_LINES = 40, 10
MISSING = "top needs Textual, which is not installed."
INSTALL = "Type: pip install 'dibs[top]'"


def main(args: Args) -> int:
    """Show the application until the user leaves it."""
    options.refuse_words("top", args)
    check_terminal(os.environ, all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)))
    _check_installed()
    client = connection.connect(os.environ)
    first = feed.first(client)
    # From here on only a daemon that somebody else starts is used: one that was stopped stays so.
    client.may_start = False
    marks = lines.UNICODE if frame.has_unicode(os.environ) else lines.ASCII
    with _quiet_keyboard():
        _draw(first, marks)
        return _run(client, first, marks)


def check_terminal(environ: Mapping[str, str], is_terminal: bool) -> None:
    """Refuse what is no terminal, or one that cannot move its cursor."""
    if not is_terminal:
        raise UserError("top needs a terminal.", "For a pipe or a file: dibs status")
    if environ.get("TERM", "dumb") == "dumb":
        raise UserError("top needs a terminal that can move its cursor, and TERM is dumb.", "Type: dibs status")


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("textual") is None:
        raise UserError(MISSING, INSTALL)


def _draw(first: Snapshot, marks: Marks) -> None:
    width, height = os.get_terminal_size(sys.stdout.fileno())
    has_colour = not os.environ.get("NO_COLOR")
    found = frame.first(first, max(width, LEAST_COLUMNS), max(height, LEAST_LINES), screen.now(), marks)
    sys.stdout.write(
        repaint.ENTER + "\r\n".join(palette.painted(line, has_colour=has_colour) for line in found[:height])
    )
    sys.stdout.flush()


def _run(client: connection.Client, first: Snapshot, marks: Marks) -> int:
    try:
        from dibs.cli.top.application import TopApp
        from dibs.cli.top.desk import Desk

        app = TopApp(Desk(client, first), marks)
        app.run()
        return app.return_code or 0
    finally:
        sys.stdout.write(repaint.LEAVE)
        sys.stdout.flush()


@contextmanager
def _quiet_keyboard() -> Iterator[None]:
    """Do not echo keys that are pressed before the application reads them; it gets them later."""
    import termios

    before = termios.tcgetattr(0)
    quiet = [*before]
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(0, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)
