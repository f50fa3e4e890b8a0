"""Which runs of a sweep are the best, and what runs have in common that differ in one parameter only.

Pure: runs come in as the daemon tells of them, tables go out.

Pure.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dibs.errors import UserError

MINIMIZE, MAXIMIZE = "minimize", "maximize"


@dataclass(frozen=True, slots=True)
class Run:
    """A run with its parameters, the word for how it stands, and its numbers; None is not a finite one."""

    params: Mapping[str, Any]
    state: str
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    job: int | None = None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of some numbers, their standard deviation (None of a single one), and how many there are."""

    mean: float
    deviation: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that are equal but for some parameters."""

    params: Mapping[str, Any]
    jobs: tuple[int | None, ...]
    #: How many of them show which word.
    states: Mapping[str, int]
    numbers: Mapping[str, Spread]
    #: The number of the first point.
    index: int


def parameters(runs: Iterable[Run]) -> list[str]:
    """Return the names of all parameters, in the order in which they come up."""
    return list(dict.fromkeys(name for run in runs for name in run.params))


def names(runs: Iterable[Run]) -> list[str]:
    """Return the names of all numbers, in the order in which they come up."""
    return list(dict.fromkeys(name for run in runs for name in run.numbers))


def check_metric(metric: str, known: Collection[str]) -> None:
    """Refuse to compare by a number that no run has reported, while some have reported others."""
    if known and metric not in known:
        raise UserError(f'no run has reported "{metric}"; known are {", ".join(known)}.')


def best(keys: Sequence[float], indices: Sequence[int], most: int | None = None) -> list[int]:
    """Return the places of runs, the best first, of which the keys and the numbers of their points are given."""
    if most is not None:
        return heapq.nsmallest(most, range(len(keys)), key=lambda place: (keys[place], indices[place]))
    # Two stable sorts, not one by pairs: a million pairs are a hundred megabytes.
    return sorted(sorted(range(len(keys)), key=indices.__getitem__), key=keys.__getitem__)


def key(number: float | None, goal: str) -> float:
    """Return what is smaller the better a number is; what is not a finite one comes last."""
    if number is None or not math.isfinite(number):
        return math.inf
    return -number if goal == MAXIMIZE else number


def grouped(runs: Iterable[Run], by: Sequence[str], metric: str | None, goal: str) -> list[Group]:
    """Return the runs that are equal but for the parameters `by` together, the best by their mean first.

    Of each run only its numbers are held.
    """
    together: dict[str, _Members] = {}
    known: dict[str, None] = {}
    for run in runs:
        known.update(dict.fromkeys(run.params))
        left = [(name, value) for name, value in sorted(run.params.items()) if name not in by]
        together.setdefault(repr(left), _Members(run, by)).add(run)
    for name in by:
        if name not in known:
            raise UserError(f'--group expected a parameter, got "{name}"; there are {", ".join(known) or "none"}.')

    def place(group: Group) -> tuple[float, int]:
        spread = group.numbers.get(metric or "")
        return key(spread.mean if spread else None, goal), group.index

    return sorted((members.group() for members in together.values()), key=place)


class _Members:
    """A group that is still being gathered."""

    __slots__ = ("index", "jobs", "numbers", "params", "states")

    def __init__(self, first: Run, by: Sequence[str]) -> None:
        self.params = {name: value for name, value in first.params.items() if name not in by}
        self.index = first.index
        self.jobs: list[int | None] = []
        self.states: Counter[str] = Counter()
        self.numbers: dict[str, array[float]] = {}

    def add(self, run: Run) -> None:
        self.jobs.append(run.job)
        self.states[run.state] += 1
        for name, number in run.numbers.items():
            if number is not None:
                self.numbers.setdefault(name, array("d")).append(number)

    def group(self) -> Group:
        spreads = {name: spread(found) for name, found in self.numbers.items()}
        return Group(self.params, tuple(self.jobs), self.states, spreads, self.index)


def spread(found: Sequence[float]) -> Spread:
    """Return mean and sample deviation of one number or more."""
    count = len(found)
    mean = math.fsum(found) / count
    if count == 1:
        return Spread(mean, None, 1)
    return Spread(mean, math.sqrt(math.fsum((one - mean) ** 2 for one in found) / (count - 1)), count)
