"""Repaint a screen on a terminal until the user interrupts, as `watch` does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from dibs.client import safe_text
from dibs.errors import DibsError
from dibs.foreground import signals
from dibs.submission.options import Kind, Option

#: Seconds between two updates.
USUAL_S = 2.0
FASTEST_S, SLOWEST_S = 0.1, 86400.0

#: Use the terminal's alternate screen, so that the previous content comes back, and hide the cursor.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J", "\x1b[?25h\x1b[?1049l"
#: Overwrite the screen and clear the rest of each line and of the screen: clearing first would flicker.
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def _read_seconds(text: str) -> float:
    seconds = float(text.removesuffix("s"))
    if not FASTEST_S <= seconds <= SLOWEST_S:
        raise ValueError
    return seconds


WATCH = Option(
    ("-w", "--watch"), "Refresh every 2 seconds, or every N with -wN; stop with Ctrl-C.",
    Kind("seconds such as 2 or 0.5", _read_seconds), "SECONDS", is_bare=True,
)  # fmt: skip


def watch(paint: Callable[[], str], every_s: float) -> int:
    """Show what `paint` returns repeatedly; return 0 after Ctrl-C. The last screen is left visible."""
    # The first call may start a daemon or fail: make it while errors are still visible.
    picture, news = paint(), ""
    with signals.leaving():
        _write(ENTER)
        try:
            while True:
                _write(frame(news + picture, os.get_terminal_size(sys.stdout.fileno()).lines))
                time.sleep(every_s)
                try:
                    picture, news = paint(), ""
                except signals.Left:
                    raise
                except DibsError as error:
                    # The error may be temporary: keep the last screen and show the reason above it.
                    news = f"dibs: {safe_text.clean(error.line())}\n"
        except KeyboardInterrupt:
            return 0
        finally:
            _write(LEAVE)
            print(news + picture)


def frame(picture: str, height: int) -> str:
    """Return the text that paints over the previous screen; lines that do not fit are cut and counted."""
    lines = picture.split("\n")
    room = max(height - 1, 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"... {len(lines) - room + 1} more lines"]
    return HOME + "".join(f"{line}{REST_OF_LINE}\r\n" for line in lines) + REST_OF_SCREEN


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
