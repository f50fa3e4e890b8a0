"""Estimate how long a job may still take, from its time limit and from similar jobs that succeeded.

Pure: durations in, a span out. Jobs are similar if they have the same project, the same request (except the limit) and
the same name apart from numbers or, for unnamed jobs, the same command apart from numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dibs.model.fields import JobSpec
from dibs.model.jobs import default_name

#: Successful runs needed for an estimate. Two may be chance.
LEAST_ENDS = 3
#: Percentiles of the typical range: the middle four fifths.
LOW, HIGH = 0.1, 0.9

LIMIT_HELPS = "A time limit (-t) would help."

_NUMBERS = re.compile(r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+")


@dataclass(frozen=True, slots=True)
class Span:
    """The remaining run time of a job in seconds."""

    least_s: float = 0.0
    #: None: unknown, and `why` gives the reason.
    most_s: float | None = None
    #: Continues the text "job 7 ...".
    why: str = ""
    #: What would make an estimate possible.
    hint: str = ""


def likeness(spec: JobSpec) -> str:
    """Return a key that is equal for similar jobs."""
    has_name = bool(spec.name) and spec.name != default_name(spec.command, spec.argv)
    shape = _NUMBERS.sub("#", spec.name if has_name else spec.command)
    request = spec.request
    kind = (request.gpus, request.gpu_ids, request.gpu_type, request.cpus, request.mem)
    return "\0".join((spec.project, "name" if has_name else "command", shape, repr(kind)))


def span(limit_s: float | None, ends_s: Sequence[float], ran_s: float = 0.0) -> Span:
    """Return how long a job that has run for `ran_s` may still take, if similar jobs took `ends_s`.

    Runs that were shorter than `ran_s` are ignored. A limit alone gives only the maximum.
    """
    left_s = None if limit_s is None else max(0.0, limit_s - ran_s)
    longer = sorted(end_s for end_s in ends_s if end_s >= ran_s)
    if len(ends_s) >= LEAST_ENDS and longer:
        least_s, most_s = (_percentile(longer, part) - ran_s for part in (LOW, HIGH))
        return Span(least_s, most_s) if left_s is None else Span(min(least_s, left_s), min(most_s, left_s))
    if left_s is not None:
        return Span(0.0, left_s)
    return Span(0.0, None, f"has no time limit and {_too_little(ends_s)}", LIMIT_HELPS)


def _too_little(ends_s: Sequence[float]) -> str:
    if len(ends_s) >= LEAST_ENDS:
        return "has run longer than those like it"
    return f"only {len(ends_s)} like it finished well so far" if ends_s else "nothing like it has finished yet"


def _percentile(ordered: Sequence[float], part: float) -> float:
    """Return a percentile, with linear interpolation."""
    place = part * (len(ordered) - 1)
    low = ordered[int(place)]
    high = ordered[min(int(place) + 1, len(ordered) - 1)]
    return low + (high - low) * (place - int(place))
