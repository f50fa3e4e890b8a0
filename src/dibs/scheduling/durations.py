"""How long a job may still take: by its time limit, and by the jobs like it that ended well.

Pure: the times that others took come in, a span goes out. Alike are jobs of one project and one request (but for the
limit) that have the same name up to numbers or, where nobody gave them a name, the same command up to numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dibs.model.fields import JobSpec
from dibs.model.jobs import default_name

#: Good ends of which a typical time can be told. Two may be chance.
LEAST_ENDS = 3
#: What is typical: the times of the middle four fifths.
LOW, HIGH = 0.1, 0.9

LIMIT_HELPS = "A time limit (-t) would help."

_NUMBERS = re.compile(r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+")


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds that a job may still take."""

    least_s: float = 0.0
    #: None: nobody knows, and `why` says why.
    most_s: float | None = None
    #: Goes on after "job 7 ...".
    why: str = ""
    #: What would help to know.
    hint: str = ""


def likeness(spec: JobSpec) -> str:
    """Return a text that is equal for jobs of which one may tell how long another takes."""
    has_name = bool(spec.name) and spec.name != default_name(spec.command, spec.argv)
    shape = _NUMBERS.sub("#", spec.name if has_name else spec.command)
    request = spec.request
    kind = (request.gpus, request.gpu_ids, request.gpu_type, request.cpus, request.mem)
    return "\0".join((spec.project, "name" if has_name else "command", shape, repr(kind)))


def span(limit_s: float | None, ends_s: Sequence[float], ran_s: float = 0.0) -> Span:
    """Return how long a job may take that has run for `ran_s`, where those like it took `ends_s`.

    Of one that runs, those that took less than it has tell nothing. A limit alone tells the most and no more.
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
    """Return the value below which that part of `ordered` lies, between two of them by their distance."""
    place = part * (len(ordered) - 1)
    low = ordered[int(place)]
    high = ordered[min(int(place) + 1, len(ordered) - 1)]
    return low + (high - low) * (place - int(place))
