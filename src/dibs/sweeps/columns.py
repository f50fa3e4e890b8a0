"""The values of one parameter: listed, computed (`range`, `linspace`, `logspace`), or drawn from a distribution.

A computed column is never held in memory: it has a length and computes any of its values. A distribution has no length;
it maps a number between 0 and 1 to a value, so the caller's random numbers decide whether draws are repeatable.

Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dibs.sweeps import values
from dibs.sweeps.sequences import LazySequence
from dibs.sweeps.values import Data, Value

#: Significant digits of a computed number: more than users type, fewer than where floats become inexact.
DIGITS = 12
#: Steps of a drawn range, so that a drawn number has a few digits and not seventeen. `grid` visits every step once
#: before it repeats one, so the short numbers do not repeat.
GRAIN = 10**6


@dataclass(frozen=True, slots=True)
class ComputedColumn(LazySequence[Value]):
    """Computed values in strictly increasing or decreasing order."""

    size: int

    def __len__(self) -> int:
        return self.size

    def has(self, data: Data) -> bool:
        """Tell whether a number is one of the values."""
        if isinstance(data, bool) or not isinstance(data, int | float) or not len(self):
            return False
        is_falling = _number(self[-1]) < _number(self[0])
        sign = -1 if is_falling else 1
        place = bisect_left(range(len(self)), sign * data, key=lambda one: sign * _number(self.at(one)))
        return place < len(self) and _number(self.at(place)) == data


def _number(value: Value) -> float:
    assert isinstance(value.data, int | float)
    return value.data


@dataclass(frozen=True, slots=True)
class Steps(ComputedColumn):
    """`range(start, stop, step)` as in Python, without the stop. Sums are exact: three times 0.1 is 0.3."""

    #: All as integer multiples of 1 / `parts`.
    start: int
    step: int
    parts: int

    def at(self, place: int) -> Value:
        """Return the value at a 0-based position."""
        number = self.start + place * self.step
        if number % self.parts:
            return values.value_of_number(number / self.parts)
        return Value(number // self.parts, str(number // self.parts))


def steps(start: Fraction, stop: Fraction, step: Fraction) -> Steps:
    """Return the values from `start` on, without `stop`; raise ZeroDivisionError for a step of 0."""
    parts = math.lcm(start.denominator, step.denominator)
    return Steps(max(0, math.ceil((stop - start) / step)), int(start * parts), int(step * parts), parts)


@dataclass(frozen=True, slots=True)
class Linear(ComputedColumn):
    """`linspace(low, high, size)`: evenly spaced, both ends included."""

    low: Fraction
    high: Fraction

    def at(self, place: int) -> Value:
        """Return the value at a 0-based position."""
        number = self.low + (self.high - self.low) * Fraction(place, max(1, self.size - 1))
        return values.value_of_number(_rounded(float(number)))


@dataclass(frozen=True, slots=True)
class Logarithmic(ComputedColumn):
    """`logspace(low, high, size)`: evenly spaced exponents between two actual bounds, both included."""

    low: float
    high: float

    def at(self, place: int) -> Value:
        """Return the value at a 0-based position."""
        if place == 0:
            return values.value_of_number(self.low)
        if place == self.size - 1:
            return values.value_of_number(self.high)
        share = place / (self.size - 1)
        return values.value_of_number(
            _rounded(math.exp((1 - share) * math.log(self.low) + share * math.log(self.high)))
        )


def _rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


Column = Sequence[Value]


@dataclass(frozen=True, slots=True)
class Uniform:
    """`uniform(low, high)`; with a quantum, a multiple of it."""

    low: float
    high: float
    quantum: float | None = None

    def at(self, chance: float) -> Value:
        """Map a number from 0 to below 1 to a value."""
        width = self.high - self.low
        number = self.low + width * chance
        if self.quantum is None and width > 0:
            number = _to_step(number, 10.0 ** math.floor(math.log10(width / GRAIN)))
        return _drawn(number, self.low, self.high, self.quantum)


@dataclass(frozen=True, slots=True)
class LogUniform:
    """`loguniform(low, high)` between two actual bounds; with a quantum, a multiple of it."""

    low: float
    high: float
    quantum: float | None = None

    def at(self, chance: float) -> Value:
        """Map a number from 0 to below 1 to a value."""
        number = math.exp((1 - chance) * math.log(self.low) + chance * math.log(self.high))
        # A step is larger than the last of these digits, unless the bounds are very close.
        if self.high > 1.2 * self.low:
            number = float(f"{number:.8g}")
        return _drawn(number, self.low, self.high, self.quantum)


@dataclass(frozen=True, slots=True)
class Normal:
    """`normal(mean, deviation)`; with `is_log` of the logarithm; with a quantum, a multiple of it."""

    mean: float
    deviation: float
    quantum: float | None = None
    is_log: bool = False

    def at(self, chance: float) -> Value:
        """Map a number from 0 to below 1 to a value."""
        from statistics import NormalDist

        # The quantile of 0 is infinite; use half a step instead.
        number = self.mean + self.deviation * NormalDist().inv_cdf(max(chance, 0.5 / GRAIN))
        number = math.exp(min(number, 700.0)) if self.is_log else number
        return _drawn(float(f"{number:.10g}"), -math.inf, math.inf, self.quantum)


@dataclass(frozen=True, slots=True)
class WeightedChoice:
    """One of some values, each with its probability."""

    choices: tuple[Value, ...]
    weights: tuple[float, ...]

    def at(self, chance: float) -> Value:
        """Map a number from 0 to below 1 to a value."""
        left = chance * sum(self.weights)
        for choice, weight in zip(self.choices, self.weights, strict=True):
            left -= weight
            if left < 0:
                return choice
        return self.choices[-1]


Distribution = Uniform | LogUniform | Normal | WeightedChoice


def is_fine(distribution: Distribution) -> bool:
    """Tell whether the distribution has enough values that none is drawn twice."""
    return not isinstance(distribution, WeightedChoice) and distribution.quantum is None


def _drawn(number: float, low: float, high: float, quantum: float | None) -> Value:
    if quantum is not None:
        number = _to_step(number, quantum)
    return values.value_of_number(min(max(number, low), high))


def _to_step(number: float, step: float) -> float:
    steps = round(number / step)
    # Rounding to a step leaves 0.30000000000000004; use fewer digits where there are some to spare.
    return _rounded(steps * step) if abs(steps) < 10 ** (DIGITS - 1) else steps * step
