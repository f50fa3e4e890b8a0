"""Rank the runs of a sweep, and group runs that differ in some parameters only.

Pure.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dibs.errors import UserError

MINIMIZE, MAXIMIZE = "minimize", "maximize"


@dataclass(frozen=True, slots=True)
class Run:
    """A run with its parameters, its state word, and its metrics; None: not a finite number."""

    params: Mapping[str, Any]
    state: str
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    job: int | None = None
    index: int = 0
    #: Why it did not succeed.
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, standard deviation (None for a single number), and count."""

    mean: float
    deviation: float | None
    count: int


class Group:
    """Runs that are equal except for the parameters `by`. Only their numbers are kept in memory."""

    def __init__(self, first: Run, by: Sequence[str]) -> None:
        self.params = {name: value for name, value in first.params.items() if name not in by}
        #: The index of the first point.
        self.index = first.index
        self.jobs: list[int | None] = []
        #: Number of runs per state word.
        self.states: Counter[str] = Counter()
        self._found: dict[str, array[float]] = {}

    def add(self, run: Run) -> None:
        """Add a run; call it before `numbers`."""
        self.jobs.append(run.job)
        self.states[run.state] += 1
        for name, number in run.numbers.items():
            if number is not None:
                self._found.setdefault(name, array("d")).append(number)

    @cached_property
    def numbers(self) -> Mapping[str, Spread]:
        """Return the spread of each metric."""
        return {name: spread(found) for name, found in self._found.items()}


def check_metric(metric: str, known: Collection[str]) -> None:
    """Refuse a metric that no run has reported, if some runs have reported others."""
    if known and metric not in known:
        raise UserError(f'no run has reported "{metric}"; reported so far: {", ".join(known)}.')


def best(keys: Sequence[float], indices: Sequence[int], most: int | None = None) -> list[int]:
    """Return the positions of runs, best first, given their keys and the indices of their points."""
    if most is not None:
        return heapq.nsmallest(most, range(len(keys)), key=lambda place: (keys[place], indices[place]))
    # Two stable sorts instead of one by pairs: a million pairs take a hundred megabytes.
    return sorted(sorted(range(len(keys)), key=indices.__getitem__), key=keys.__getitem__)


def key(number: float | None, goal: str) -> float:
    """Return a sort key, smaller for a better number; numbers that are not finite come last."""
    if number is None or not math.isfinite(number):
        return math.inf
    return -number if goal == MAXIMIZE else number


def grouped(runs: Iterable[Run], by: Sequence[str], metric: str | None, goal: str) -> list[Group]:
    """Group the runs that are equal except for the parameters `by`; the best mean first."""
    together: dict[str, Group] = {}
    known: dict[str, None] = {}
    for run in runs:
        known.update(dict.fromkeys(run.params))
        left = [(name, value) for name, value in sorted(run.params.items()) if name not in by]
        together.setdefault(repr(left), Group(run, by)).add(run)
    for name in by:
        if name not in known:
            raise UserError(f'--group expected a parameter, got "{name}"; there are {", ".join(known) or "none"}.')

    def place(group: Group) -> tuple[float, int]:
        spread = group.numbers.get(metric or "")
        return key(spread.mean if spread else None, goal), group.index

    return sorted(together.values(), key=place)


def spread(found: Sequence[float]) -> Spread:
    """Return mean, sample standard deviation and count of at least one number."""
    count = len(found)
    mean = math.fsum(found) / count
    if count == 1:
        return Spread(mean, None, 1)
    return Spread(mean, math.sqrt(math.fsum((one - mean) ** 2 for one in found) / (count - 1)), count)
