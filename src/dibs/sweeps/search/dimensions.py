"""What a study searches over: one dimension for each axis and each drawn parameter of a space.

A study knows numbers and choices. A dimension translates: a suggestion becomes the values of a run, and the parameters
of a run become the suggestion that would have made them.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dibs.errors import UserError
from dibs.sweeps import values
from dibs.sweeps.columns import ComputedColumn, Distribution, LogUniform, Normal, Uniform, WeightedChoice
from dibs.sweeps.grid import Axis, Block, Point, Row, Space
from dibs.sweeps.values import Data

#: The quantiles of a normal distribution that a study suggests: those of 0 and 1 are infinite.
QUANTILES = (0.0005, 0.9995)


@dataclass(frozen=True)
class Number:
    """A number between two bounds; with `is_log` its exponents are evenly spread."""

    names: tuple[str, ...]
    source: Uniform | LogUniform | Normal

    @property
    def low(self) -> float:
        """Return the least suggestion."""
        return QUANTILES[0] if isinstance(self.source, Normal) else self.source.low

    @property
    def high(self) -> float:
        """Return the greatest suggestion."""
        return QUANTILES[1] if isinstance(self.source, Normal) else self.source.high

    @property
    def is_log(self) -> bool:
        """Tell whether exponents are suggested evenly."""
        return isinstance(self.source, LogUniform)

    def row(self, suggestion: float) -> Row:
        """Return the values of a suggestion, as a sweep would write them."""
        low, high = self.low, self.high
        match self.source:
            case Normal():
                chance = suggestion
            case LogUniform():
                chance = math.log(suggestion / low) / math.log(high / low)
            case _:
                chance = (suggestion - low) / (high - low)
        return (self.source.at(min(max(chance, 0.0), 1.0)),)

    def suggestion(self, data: Sequence[Data]) -> float | None:
        """Return the suggestion that gives this value; None: it is out of bounds."""
        found = data[0]
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        if isinstance(self.source, Normal):
            from statistics import NormalDist

            if self.source.is_log and found <= 0:
                return None
            number = math.log(found) if self.source.is_log else found
            return min(max(NormalDist(self.source.mean, self.source.deviation).cdf(number), self.low), self.high)
        return float(found) if self.low <= found <= self.high else None


@dataclass(frozen=True)
class Index:
    """A position in an ordered column, such as that of `range` or `logspace`."""

    names: tuple[str, ...]
    axis: Axis

    @property
    def count(self) -> int:
        """Return the number of positions."""
        return len(self.axis)

    def row(self, suggestion: float) -> Row:
        """Return the values at a position."""
        return self.axis.at(int(suggestion))

    def suggestion(self, data: Sequence[Data]) -> int | None:
        """Return the position of this value; None: it is not in the column."""
        column = self.axis.columns[0]
        if not isinstance(column, ComputedColumn) or not column.has(data[0]):
            return None
        first, last = (column.at(place).data for place in (0, self.count - 1))
        is_falling = float(str(last)) < float(str(first))
        sign, wanted = (-1 if is_falling else 1), float(str(data[0]))
        low, high = 0, self.count - 1
        while low < high:
            middle = (low + high) // 2
            if sign * float(str(column.at(middle).data)) < sign * wanted:
                low = middle + 1
            else:
                high = middle
        return low


@dataclass(frozen=True)
class Choice:
    """One of some rows of values without an order."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return a text for each row, for people who open the study."""
        texts = tuple(" ".join(value.text for value in row) for row in self.rows)
        unique = len({*texts}) == len(texts)
        return texts if unique else tuple(f"{place}: {text}" for place, text in enumerate(texts))

    def row(self, suggestion: str) -> Row:
        """Return the values of a label."""
        return self.rows[self.labels.index(suggestion)]

    def suggestion(self, data: Sequence[Data]) -> str | None:
        """Return the label of these values; None: no row has them."""
        wanted = values.identity(dict(zip(self.names, data, strict=True)))
        return self._by_key.get(wanted)

    @cached_property
    def _by_key(self) -> dict[str, str]:
        return {Point(0, self.names, row).key: label for row, label in zip(self.rows, self.labels, strict=True)}


Dimension = Number | Index | Choice
#: Suggests a value for a dimension: a number, a position or a label.
Suggest = Callable[[Dimension], float | str]


class Dimensions:
    """The dimensions of a space, in the order in which they are suggested: conditions first need what they use."""

    def __init__(self, space: Space) -> None:
        if len(space.blocks) != 1:
            raise UserError(
                "a search expected one set of parameters, got blocks.",
                "Use `when` for parameters that depend on others.",
            )
        self._space = space
        self._block = space.blocks[0]
        by_name = {dimension.names[0]: dimension for dimension in _dimensions(self._block)}
        later = [by_name[name] for name in self._block.conditional]
        #: In the order of suggestions.
        self.all: list[Dimension] = [one for one in by_name.values() if one not in later] + later

    def point(self, suggest: Suggest) -> Point | None:
        """Return the point of some suggestions; None: `exclude` forbids it."""
        found: dict[str, values.Value] = {}
        data: dict[str, Data] = {}
        for dimension in self.all:
            condition = self._block.when.get(dimension.names[0])
            if condition is not None and not condition.holds(data):
                continue
            row = dimension.row(suggest(dimension))  # type: ignore[arg-type]
            found |= zip(dimension.names, row, strict=True)
            data |= {name: value.data for name, value in zip(dimension.names, row, strict=True)}
        if any(condition.holds(data) for condition in self._space.exclude):
            return None
        names = tuple(name for name in self._block.names if name in found)
        return Point(0, names, tuple(found[name] for name in names))

    def suggestions(self, data: Mapping[str, Data]) -> dict[Dimension, float | str] | None:
        """Return the suggestions that give the parameters of a run; None: this space has no such point."""
        found: dict[Dimension, float | str] = {}
        for dimension in self.all:
            if not all(name in data for name in dimension.names):
                if dimension.names[0] in self._block.when:
                    continue
                return None
            suggestion = dimension.suggestion([data[name] for name in dimension.names])
            if suggestion is None:
                return None
            found[dimension] = suggestion
        return found


def label(dimension: Dimension) -> str:
    """Return the name of a dimension in a study."""
    return ",".join(dimension.names)


def _dimensions(block: Block) -> Iterator[Dimension]:
    for axis in block.axes:
        column = axis.columns[0]
        if len(axis.names) == 1 and isinstance(column, ComputedColumn):
            yield Index(axis.names, axis)
        else:
            yield Choice(axis.names, tuple(axis))
    for name, source in block.drawn.items():
        yield _drawn(name, source)


def _drawn(name: str, source: Distribution) -> Dimension:
    # A study learns the weights by itself.
    return (
        Choice((name,), tuple((each,) for each in source.choices))
        if isinstance(source, WeightedChoice)
        else Number((name,), source)
    )
