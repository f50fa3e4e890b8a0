"""When a job is expected to start, in words: the same for `why`, `show` and a dry run."""

from __future__ import annotations

from datetime import datetime

from dibs.client.answers import ExpectedStart, Unknown
from dibs.model import units
from dibs.submission import times


def sentence(start: ExpectedStart | None, unknown: Unknown | None, now: datetime) -> str:
    """Return the forecast as a sentence; empty if there is nothing to forecast."""
    if start is None and unknown is None:
        return ""
    told = phrase(start, unknown, now)
    return f"Expected to start {told}." if start else f"Its start time is {told}."


def phrase(start: ExpectedStart | None, unknown: Unknown | None, now: datetime) -> str:
    """Return the forecast as a part of a sentence: `now, on GPU 0`, or `unknown: job 7 has no time limit`."""
    if start is None:
        return f"unknown: {unknown['why']}" if unknown else "unknown"
    text = times.between(datetime.fromisoformat(start["earliest"]), datetime.fromisoformat(start["latest"]), now)
    where = units.name_gpus(start.get("gpu_indices") or ())
    return f"{text}, on {where}" if where else text
