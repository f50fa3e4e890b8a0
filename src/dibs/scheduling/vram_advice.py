"""Advise on `--vram`: whether earlier runs of a command used much more or much less GPU memory than declared.

Pure: measured use in, a hint out. Nothing is changed; the user decides what to declare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dibs.model import units

GIB = 2**30
#: Newest rows of measured use to consider; one row per device of an attempt.
MOST_ROWS = 256
#: Samples after which the observed peak counts as the real one: frameworks allocate late.
LEAST_LOOKS = 3
#: Unused declared bytes that are worth a hint: room for several small models.
MUCH = 4 * GIB
#: A job that needs less than 1/4 of a GPU could share it.
SMALL_PART = 4
#: Margin over the observed peak, then rounded up to whole GiB: runs vary.
SPARE_PERCENT = 10


@dataclass(frozen=True, slots=True)
class Earlier:
    """Peak memory of an earlier run on one device in bytes, and the number of samples."""

    peak: int
    looks: int
    is_done: bool


def hint(declared: int, runs: Iterable[Earlier], card: int | None) -> str:
    """Return the hint for a job that declares this many bytes per device (0: exclusive use); "" if there is none.

    `card` is the memory of a device that jobs can share; None: unknown, or sharing is not possible.
    """
    runs = list(runs)
    most = max((run.peak for run in runs), default=0)
    used = f"earlier runs of this command used up to {units.format_size(most)} of a GPU"
    if declared and most > declared:
        remedy = (
            "without --vram it gets exclusive use of a GPU" if card and enough(most) > card else f"try {_option(most)}"
        )
        return f"{used}, more than the {units.format_size(declared)} declared: {remedy}"
    # A failed run may have ended before it needed much, and one with few samples may have used more.
    if not most or not any(run.is_done and run.looks >= LEAST_LOOKS for run in runs):
        return ""
    if declared > 2 * most and declared - most >= MUCH:
        return f"{used}, and {units.format_size(declared)} are declared: with {_option(most)} more jobs fit on the GPU"
    if not declared and card and most * SMALL_PART < card and 2 * enough(most) <= card:
        return f"{used} of {units.format_size(card)}: with {_option(most)} it would share one"
    return ""


def enough(peak: int) -> int:
    """Return the bytes to declare for an observed peak."""
    return -(-peak * (100 + SPARE_PERCENT) // (100 * GIB)) * GIB


def _option(peak: int) -> str:
    return f"--vram {units.format_size(enough(peak))}"
