"""Decide which runs of a sweep to stop early, from the metric that they and the others have reported so far.

A rule compares a run with others at the same step. A run that is behind is stopped only if it cannot catch up, because
runs that learn slowly often end best. The forecast is the value that its curve reaches if its gain per doubling of the
steps keeps shrinking as it does now (a power law, as learning curves follow). First values say little and last ones
nearly all, so nothing is stopped in the first quarter of a run, and more is asked of it the further it is. How long a
run takes is not known in advance: the runs that ended by themselves tell, and until enough of them have, nothing is
stopped.

Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dibs.sweeps.ranking import MAXIMIZE

MEDIAN, HYPERBAND = "median", "hyperband"
RULES = (MEDIAN, HYPERBAND)

#: Runs that must have ended by themselves before any is stopped.
LEAST_COMPLETE = 4
#: Runs with which one is compared, at least.
LEAST_OTHERS = 4
#: The part of a whole run before which nothing is stopped. Before it, the run that ends best may be among the worst.
WARM_UP = 0.25
#: The best part of the others to which a run must belong, or hope to, at the end of the warm-up and from a later point
#: on: meanwhile it shrinks evenly.
FIRST_PART, LAST_PART, LAST_FROM = 0.5, 0.25, 0.7
#: A value is the best of this many reports, because single ones jump.
RECENT = 3
#: The gain of the next doubling of steps is at least this part of the last one, and at most all of it.
LEAST_GAIN = 0.7

#: Hyperband: at each rung one run in this many continues in any case; the rungs are these parts of a whole run.
REDUCTION = 3
RUNGS = (1 / 4, 3 / 8, 1 / 2, 3 / 4)
#: Hyperband: the first rungs that runs get in turn. A later one gives slow runs more time.
BRACKETS = (0, 0, 0, 0, 1)


@dataclass(frozen=True)
class Curve:
    """The values of the metric that a run has reported: step and value, in the order of steps."""

    #: The id of its job, and its index in the sweep.
    run: int
    index: int
    points: Sequence[tuple[float, float]]
    is_running: bool = False
    #: It ended by itself and was successful.
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """A run to stop, and why."""

    run: int
    why: str


def decide(rule: str, curves: Sequence[Curve], goal: str) -> list[Stop]:
    """Return the runs to stop now."""
    sign = -1.0 if goal == MAXIMIZE else 1.0
    known = [_Course(curve, sign) for curve in curves if curve.points]
    complete = [one for one in known if one.curve.is_complete]
    if len(complete) < LEAST_COMPLETE:
        return []
    whole = median([one.last_step for one in complete])
    ends = [one.value_at(one.last_step) for one in complete]
    judge = _find_median if rule == MEDIAN else _find_rung
    stops = []
    for one in known:
        if one.curve.is_running and one.last_step >= WARM_UP * whole:
            why = judge(one, known, whole)
            if why and one.hope(whole) > _worst_of_part(ends, _part(one.last_step / whole)):
                stops.append(Stop(one.curve.run, why))
    return stops


def _part(share: float) -> float:
    """Return the best part of the others to which a run must belong at a share of a whole run."""
    late = min(1.0, max(0.0, (share - WARM_UP) / (LAST_FROM - WARM_UP)))
    return FIRST_PART + late * (LAST_PART - FIRST_PART)


def _worst_of_part(found: Sequence[float], part: float) -> float:
    """Return the value that the best part of some reach, between two of them if need be."""
    ordered = sorted(found)
    place = part * (len(ordered) - 1)
    low, between = int(place), place % 1
    if not between or math.isinf(ordered[low + 1]):
        return ordered[low + 1 if between else low]
    return ordered[low] + between * (ordered[low + 1] - ordered[low])


def median(found: Sequence[float]) -> float:
    """Return the middle of some numbers; `statistics` takes long to load."""
    ordered = sorted(found)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class _Course:
    """A curve in which smaller is better; what is not a number is infinitely bad."""

    def __init__(self, curve: Curve, sign: float) -> None:
        self.curve = curve
        self.last_step = curve.points[-1][0]
        self._sign = sign

    @cached_property
    def _steps(self) -> list[float]:
        return [step for step, _ in self.curve.points]

    @cached_property
    def _values(self) -> list[float]:
        return [math.inf if math.isnan(value) else self._sign * value for _, value in self.curve.points]

    def value_at(self, step: float) -> float:
        """Return the value at a step; infinity if there was none."""
        place = bisect_right(self._steps, step)
        return min(self._values[max(0, place - RECENT) : place], default=math.inf)

    def hope(self, whole: float) -> float:
        """Return the value to expect at the end of a whole run, from the gains of the last two doublings of steps."""
        step = self.last_step
        now, half, quarter = (self.value_at(step / part) for part in (1, 2, 4))
        gain = half - now
        if math.isinf(now) or gain <= 0 or step <= 0:
            return now
        before = quarter - half
        part = min(1.0, max(LEAST_GAIN, gain / before)) if before > 0 else 1.0
        left = math.log2(whole / step)
        while left > 0 and not math.isinf(gain):
            gain *= part
            now -= gain * min(1.0, left)
            left -= 1
        return -math.inf if math.isinf(gain) else now

    def shown(self, value: float) -> str:
        """Return a value as its run reported it."""
        return "no number" if math.isinf(value) else f"{self._sign * value:.4g}"


Judge = Callable[[_Course, Sequence[_Course], float], str]


def _find_median(one: _Course, known: Sequence[_Course], whole: float) -> str:
    """Return why a run is behind others at its last step; empty if it is not."""
    step = one.last_step
    others = [other.value_at(step) for other in known if other is not one and other.last_step >= step]
    if len(others) < LEAST_OTHERS:
        return ""
    value, part = one.value_at(step), _part(step / whole)
    worst_kept = _worst_of_part(others, part)
    if value <= worst_kept and not math.isinf(value):
        return ""
    return (
        f"{one.shown(value)} at step {step:g} is not among the best {part:.0%} of {len(others)} runs, "
        f"{one.shown(worst_kept)} or better"
    )


def _find_rung(one: _Course, known: Sequence[_Course], whole: float) -> str:
    """Return why a run is not among the best at a rung that it has reached; empty if it is."""
    for share in RUNGS[BRACKETS[one.curve.index % len(BRACKETS)] :]:
        step = share * whole
        if one.last_step < step:
            break
        reached = sorted(other.value_at(step) for other in known if other.last_step >= step)
        if len(reached) < LEAST_OTHERS:
            continue
        value, worst_kept = one.value_at(step), reached[math.ceil(len(reached) / REDUCTION) - 1]
        if value > worst_kept:
            return (
                f"{one.shown(value)} at step {step:.4g} is not among the best third of {len(reached)} runs, "
                f"{one.shown(worst_kept)} or better"
            )
    return ""
