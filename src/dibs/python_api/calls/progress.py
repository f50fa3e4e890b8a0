"""The progress of many calls: a line on a terminal, a bar in a notebook, nothing elsewhere.

Drawn with the standard library; IPython is there if this runs in a notebook.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

#: Seconds between two drawings, and characters of a bar.
DRAW_EVERY_S = 0.1
WIDTH = 30


class Progress:
    """Counts calls that end, from any thread, and draws how far they are."""

    def __init__(self, total: int, name: str, draw: Callable[[str, bool], None] | None = None) -> None:
        self._total = total
        self._name = name
        self._draw = draw or _drawer()
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._drawn_at = -DRAW_EVERY_S
        self._ended = self._failed = 0
        self._is_closed = False
        self._show()

    def watch(self, future: Future[Any], calls: int = 1) -> None:
        """Count these calls when their future is done."""
        future.add_done_callback(lambda done: self._end(calls, done))

    def _end(self, calls: int, future: Future[Any]) -> None:
        with self._lock:
            self._ended += calls
            # Not `exception`, which raises if it was cancelled.
            self._failed += 0 if not future.cancelled() and future.exception() is None else calls
            self._show()

    def close(self) -> None:
        """Draw the last state, and nothing after it."""
        with self._lock:
            if not self._is_closed:
                self._show(is_last=True)
            self._is_closed = True

    def _show(self, is_last: bool = False) -> None:
        now = time.monotonic()
        is_over = self._ended >= self._total
        if self._is_closed or not (is_last or is_over or now - self._drawn_at >= DRAW_EVERY_S):
            return
        self._drawn_at = now
        self._is_closed = is_over
        self._draw(line(self._name, self._ended, self._total, self._failed, now - self._began), is_last or is_over)


def line(name: str, ended: int, total: int, failed: int, took_s: float) -> str:
    """Return the progress as text: `train [#####     ] 12/24, 1 failed, 0:42`."""
    full = WIDTH * ended // total if total else WIDTH
    bad = f", {failed} failed" if failed else ""
    minutes, seconds = divmod(int(took_s), 60)
    return f"{name} [{'#' * full}{' ' * (WIDTH - full)}] {ended}/{total}{bad}, {minutes}:{seconds:02}"


def _drawer() -> Callable[[str, bool], None]:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        return _in_notebook()
    return _on_terminal if sys.stderr is not None and sys.stderr.isatty() else lambda text, is_last: None


def _on_terminal(text: str, is_last: bool) -> None:
    print(f"\r{text}\x1b[K", end="\n" if is_last else "", file=sys.stderr, flush=True)


def _in_notebook() -> Callable[[str, bool], None]:
    from IPython.display import display

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    return lambda text, is_last: handle.update({"text/plain": text}, raw=True)
