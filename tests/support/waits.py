"""Waiting for a condition, with a deadline that shows what was last seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds until a wait gives up. Generous: it bounds a hang, it never decides whether a test is right.
PATIENCE_S = 60.0


def wait_for(what: Callable[[], T], until: Callable[[T], bool] = bool, patience_s: float = PATIENCE_S) -> T:
    """Return the first value of `what` that satisfies `until`; fail at the deadline with the last value."""
    deadline = time.monotonic() + patience_s
    while True:
        seen = what()
        if until(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {patience_s} s; last seen: {seen!r}")
        time.sleep(0.005)
