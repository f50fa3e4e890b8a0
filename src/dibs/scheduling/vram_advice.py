"""What to declare: whether earlier runs of a command used much more or much less GPU memory than `--vram` says now.

Pure: what they used comes in, a hint goes out. Nothing is decided by it; people decide what they declare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dibs.model import units

GIB = 2**30
#: Rows of what jobs used that are looked at, the newest; one for each device of an attempt.
MOST_ROWS = 256
#: Looks after which the most that was seen is taken for the most there was: frameworks allocate late.
LEAST_LOOKS = 3
#: Bytes declared in vain that are worth a word: several jobs' worth of small models.
MUCH = 4 * GIB
#: A job that needs less than this part of a card could share it.
SMALL_PART = 4
#: What is advised is more than what was seen by so much, in whole GiB: no two runs are quite the same.
SPARE_PERCENT = 10


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier run used of one device, in bytes, by so many looks."""

    peak: int
    looks: int
    is_done: bool


def hint(declared: int, runs: Iterable[Earlier], card: int | None) -> str:
    """Return what to say to whoever declares so many bytes per device (0: the card alone); "" if nothing.

    `card` is the memory of a device that jobs can share; None: nobody knows, or nobody may.
    """
    runs = list(runs)
    most = max((run.peak for run in runs), default=0)
    used = f"earlier runs of this command used up to {units.format_size(most)} of a GPU"
    if declared and most > declared:
        remedy = "without --vram it has a card alone" if card and enough(most) > card else f"try {_option(most)}"
        return f"{used}, more than the {units.format_size(declared)} declared: {remedy}"
    # One that failed may have done so before it needed much, and one that was hardly looked at may have used more.
    if not most or not any(run.is_done and run.looks >= LEAST_LOOKS for run in runs):
        return ""
    if declared > 2 * most and declared - most >= MUCH:
        return f"{used}, and {units.format_size(declared)} are declared: with {_option(most)} more jobs fit on it"
    if not declared and card and most * SMALL_PART < card and 2 * enough(most) <= card:
        return f"{used} of {units.format_size(card)}: with {_option(most)} it would share one"
    return ""


def enough(peak: int) -> int:
    """Return the bytes to declare for a job that was seen to use `peak`."""
    return -(-peak * (100 + SPARE_PERCENT) // (100 * GIB)) * GIB


def _option(peak: int) -> str:
    return f"--vram {units.format_size(enough(peak))}"
