"""Which runs of a sweep are the best, and what runs have in common that differ in one parameter only.

Pure: runs come in as the daemon tells of them, tables go out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
    runs: tuple[Run, ...]
    numbers: Mapping[str, Spread]


def parameters(runs: Iterable[Run]) -> list[str]:
    """Return the names of all parameters, in the order in which they come up."""
    return list(dict.fromkeys(name for run in runs for name in run.params))


def names(runs: Iterable[Run]) -> list[str]:
    """Return the names of all numbers, in the order in which they come up."""
    return list(dict.fromkeys(name for run in runs for name in run.numbers))


def check_metric(metric: str, runs: Sequence[Run]) -> None:
    """Refuse to compare by a number that no run has reported, while some have reported others."""
    known = names(runs)
    if known and metric not in known:
        raise UserError(f'no run has reported "{metric}"; known are {", ".join(known)}.')


def ordered(runs: Iterable[Run], metric: str | None, goal: str) -> list[Run]:
    """Return runs with the best first; those without the number come last, in the order of their points."""
    return sorted(runs, key=lambda run: (_key(run.numbers.get(metric or ""), goal), run.index))


def _key(number: float | None, goal: str) -> tuple[bool, float]:
    if number is None or not math.isfinite(number):
        return True, 0.0
    return False, -number if goal == MAXIMIZE else number


def grouped(runs: Sequence[Run], by: Sequence[str], metric: str | None, goal: str) -> list[Group]:
    """Return the runs that are equal but for the parameters `by` together, the best by their mean first."""
    known = parameters(runs)
    for name in by:
        if name not in known:
            raise UserError(f'--group expected a parameter, got "{name}"; there are {", ".join(known) or "none"}.')
    together: dict[str, list[Run]] = {}
    for run in runs:
        left = [(name, value) for name, value in sorted(run.params.items()) if name not in by]
        together.setdefault(repr(left), []).append(run)
    groups = [_group(members, by) for members in together.values()]

    def key(group: Group) -> tuple[tuple[bool, float], int]:
        spread = group.numbers.get(metric or "")
        return _key(spread.mean if spread else None, goal), group.runs[0].index

    return sorted(groups, key=key)


def _group(runs: Sequence[Run], by: Sequence[str]) -> Group:
    spreads = {}
    for name in names(runs):
        found = [number for run in runs if (number := run.numbers.get(name)) is not None]
        if found:
            spreads[name] = spread(found)
    return Group({name: value for name, value in runs[0].params.items() if name not in by}, tuple(runs), spreads)


def spread(found: Sequence[float]) -> Spread:
    """Return mean and sample deviation of one number or more."""
    count = len(found)
    mean = math.fsum(found) / count
    if count == 1:
        return Spread(mean, None, 1)
    return Spread(mean, math.sqrt(math.fsum((one - mean) ** 2 for one in found) / (count - 1)), count)
