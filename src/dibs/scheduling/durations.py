"""Estimate how long a job may still take, from its time limit and from similar jobs that succeeded.

Pure: durations in, a span out. Jobs are similar if they have the same project, the same request (except the limit) and
the same name apart from numbers or, for unnamed jobs, the same command apart from numbers.
"""

from __future__ import annotations

import bisect
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

#: Run times in seconds of finished jobs like a job, the shortest first.
History = tuple[float, ...]

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


def likenesses(spec: JobSpec) -> tuple[str, ...]:
    """Return keys that are equal for jobs which are alike, from the closest likeness to the widest.

    They are: similar jobs, runs of the same sweep, jobs of the same project and all jobs with the same number of GPUs.
    """
    sweep = (f"sweep\0{spec.sweep_id}\0{spec.request.gpus}",) if spec.sweep_id is not None else ()
    wide = f"project\0{spec.project}\0{spec.request.gpus}", f"gpus\0{spec.request.gpus}"
    return (likeness(spec), *sweep, *wide)


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


def expected_s(history: History) -> float | None:
    """Return how long a job is expected to run: the median of those like it; None if too few are known."""
    return expected_left_s(history, 0.0)


def expected_left_s(history: History, ran_s: float) -> float | None:
    """Return how much longer a job that has run for `ran_s` is expected to run; None if too few like it are known.

    It is the median of those that ran longer. One that ran longer than all of them is expected to run as long again.
    """
    if len(history) < LEAST_ENDS:
        return None
    first = bisect.bisect_right(history, ran_s)
    return history[(first + len(history)) // 2] - ran_s if first < len(history) else ran_s


def _too_little(ends_s: Sequence[float]) -> str:
    if len(ends_s) >= LEAST_ENDS:
        return "has run longer than similar jobs"
    return f"only {len(ends_s)} similar jobs have succeeded so far" if ends_s else "no similar job has finished yet"


def _percentile(ordered: Sequence[float], part: float) -> float:
    """Return a percentile, with linear interpolation."""
    place = part * (len(ordered) - 1)
    low = ordered[int(place)]
    high = ordered[min(int(place) + 1, len(ordered) - 1)]
    return low + (high - low) * (place - int(place))
