"""The one shape of every result: a series of values of one measure, taken in several rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Key:
    """What was measured: `Key("gap", "dibs", "p50")`."""

    part: str
    subject: str
    measure: str


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one measure; never empty."""

    key: Key
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the value that stands for the series."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """Return the least and the greatest value."""
        return min(self.values), max(self.values)


@dataclass(slots=True)
class Book:
    """Where the parts write what they measured, and what has to be said about it."""

    _values: dict[tuple[Key, str], list[float]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def add(self, key: Key, unit: str, value: float | None) -> None:
        """Write down one value; None is one that could not be known."""
        if value is not None:
            self._values.setdefault((key, unit), []).append(value)

    def note(self, part: str, text: str) -> None:
        """Write down a sentence about a part, once."""
        said = self.notes.setdefault(part, [])
        if text not in said:
            said.append(text)

    def series(self) -> list[Series]:
        """Return all that was measured, in the order of first writing."""
        return [Series(key, unit, tuple(values)) for (key, unit), values in self._values.items()]


def find(many: Iterable[Series], key: Key) -> Series | None:
    """Return the series of a key; None if nothing was measured."""
    return next((one for one in many if one.key == key), None)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
