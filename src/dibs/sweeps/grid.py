"""The points of a parameter space: each once, in order, shuffled, or a sample of them.

The structure of a space:

    Axis    names that change together, and their rows of values: one parameter, a `zip`, the columns of a table
    Block   a product of axes, the last one fastest, with drawn parameters and with `when`
    Space   a union of blocks, without what `exclude` forbids

`Points` iterates over it lazily: 10^12 points start at once and take no memory. Without conditions (`when`, `exclude`,
overlapping blocks) any point can be computed from its index; with them the points before it must be visited. Everything
is deterministic: the seed decides, and its default is 0, so a sweep can be repeated.

    space = grid.Space((grid.Block((grid.Axis(("lr",), ([...],)), grid.Axis(("bs",), ([...],)))),))
    for point in grid.Points(space, sample=20, seed=7):
        point.index, point.data(), point.key

A sample is a prefix of the shuffled order, so a larger one with the same seed only adds points. If parameters are
drawn, the axes are traversed repeatedly, each time in a new shuffled order.

Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from dibs.errors import UserError
from dibs.sweeps import columns, orders, values
from dibs.sweeps.columns import Column, ComputedColumn, Distribution
from dibs.sweeps.conditions import Condition
from dibs.sweeps.sequences import LazySequence, Product
from dibs.sweeps.values import Data, Value

#: Maximum length of an axis to pass to `itertools.product`, which copies it, or to compare with another axis.
FEW = 10_000
#: Consecutive draws that conditions may reject before we conclude that no point is left.
PATIENCE = 10_000

Row = tuple[Value, ...]


class Point(NamedTuple):
    """One point: its index, and its parameters in the order in which they were given."""

    #: 0-based, in iteration order. (It hides a method of tuples, which is not needed here.)
    index: int  # type: ignore[assignment]
    names: tuple[str, ...]
    values: Row

    def data(self) -> dict[str, Data]:
        """Return the parameters as programs read them (`DIBS_PARAMS`)."""
        return {name: value.data for name, value in zip(self.names, self.values, strict=True)}

    @property
    def key(self) -> str:
        """Return a key that identifies this point, independent of its index and spelling."""
        return values.identity(self.data())


@dataclass(frozen=True)
class Axis(LazySequence[Row]):
    """Names whose values change together, and the rows of those values."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    #: Too long to enumerate (`randint`): it can only be sampled.
    is_for_samples: bool = False

    def __len__(self) -> int:
        return len(self.columns[0])

    def at(self, place: int) -> Row:
        """Return the values of one row."""
        return tuple(column[place] for column in self.columns)

    def __iter__(self) -> Iterator[Row]:
        return zip(*self.columns, strict=True)

    def has(self, row: Sequence[Data]) -> bool:
        """Tell whether this axis contains a row."""
        first = self.columns[0]
        if len(self.columns) == 1 and isinstance(first, ComputedColumn):
            return first.has(row[0])
        return values.identity(dict(zip(self.names, row, strict=True))) in self._keys

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(Point(0, self.names, row).key for row in self)


@dataclass(frozen=True)
class Block:
    """A product of axes, the last one fastest; random parameters are drawn anew for each point."""

    axes: tuple[Axis, ...]
    drawn: Mapping[str, Distribution] = field(default_factory=dict)
    #: A point has such a parameter only where its condition holds.
    when: Mapping[str, Condition] = field(default_factory=dict)
    #: All names in the order in which they were given; empty: those of the axes, then the drawn ones.
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", (*self.axis_names, *self.drawn))

    @cached_property
    def axis_names(self) -> tuple[str, ...]:
        """Return the names of the values in a row of the product."""
        return tuple(name for one in self.axes for name in one.names)

    @cached_property
    def size(self) -> int:
        """Return the number of rows of the product."""
        return self._product.size

    @cached_property
    def _product(self) -> Product:
        # Short axes are lists that are built once.
        return Product([list(one) if len(one) <= FEW else one for one in self.axes])

    def row(self, number: int) -> Row:
        """Return one row of the product."""
        return tuple(itertools.chain.from_iterable(self._product.at(number)))

    def rows(self) -> Iterator[Row]:
        """Yield every row of the product, in order."""
        if all(len(one.names) == 1 for one in self.axes):
            return product([one.columns[0] for one in self.axes])
        return (tuple(itertools.chain.from_iterable(parts)) for parts in product(self.axes))

    @cached_property
    def conditional(self) -> tuple[str, ...]:
        """Return the names with a condition, each after the names its condition uses."""
        found: list[str] = []
        waiting = dict(self.when)
        while waiting:
            ready = [name for name, condition in waiting.items() if not condition.names & waiting.keys()]
            if not ready:
                raise UserError(f"expected conditions without a cycle, got one: {', '.join(waiting)}.")
            found += ready
            waiting = {name: condition for name, condition in waiting.items() if name not in ready}
        return tuple(found)

    @cached_property
    def _firsts(self) -> dict[str, Value]:
        return {one.names[0]: one.columns[0][0] for one in self.axes if one.names[0] in self.when}

    def leave_out(self, given: dict[str, Value]) -> dict[str, Value] | None:
        """Return the parameters whose conditions hold; None if another row represents the same point."""
        if not self.when:
            return given
        data = {name: value.data for name, value in given.items()}
        left = dict(given)
        for name in self.conditional:
            if not self.when[name].holds(data):
                # Rows that differ only in this parameter are one point; the first of them represents it.
                if name in self._firsts and given[name] != self._firsts[name]:
                    return None
                del data[name], left[name]
        return left

    def has(self, data: Mapping[str, Data]) -> bool:
        """Tell whether this block contains a point; a block with drawn parameters contains none."""
        if self.drawn or not data.keys() <= {*self.names}:
            return False
        if any((name in data) != condition.holds(data) for name, condition in self.when.items()):
            return False
        return all(
            one.has([data[name] for name in one.names])
            if all(name in data for name in one.names)
            else one.names[0] in self.when
            for one in self.axes
        )


def product(parts: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Work like `itertools.product`, without copying long sequences."""
    long = next((n for n, part in enumerate(parts) if len(part) > FEW), None)
    if long is None:
        return itertools.product(*parts)
    return (
        (*before, item, *after)
        for before in itertools.product(*parts[:long])
        for item in parts[long]
        for after in product(parts[long + 1 :])
    )


def _are_apart(one: Block, other: Block) -> bool:
    """Tell whether two blocks certainly share no point."""
    if one.when or other.when:
        return False
    if {*one.names} != {*other.names} or one.drawn or other.drawn:
        return True
    theirs = {axis.names: axis for axis in other.axes}
    return any(
        len(axis) <= FEW and not any(theirs[axis.names].has([value.data for value in row]) for row in axis)
        for axis in one.axes
        if axis.names in theirs
    )


@dataclass(frozen=True)
class Space:
    """A union of blocks, without the points that match a condition in `exclude`."""

    blocks: tuple[Block, ...]
    exclude: tuple[Condition, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return all parameters that any point has."""
        return tuple(dict.fromkeys(name for block in self.blocks for name in block.names))

    @cached_property
    def size(self) -> int:
        """Return the number of rows before conditions."""
        return sum(block.size for block in self.blocks)

    @cached_property
    def chance(self) -> tuple[str, ...]:
        """Return the parameters that can only be sampled."""
        found = [
            name
            for block in self.blocks
            for name in (*block.drawn, *(name for one in block.axes if one.is_for_samples for name in one.names))
        ]
        return tuple(dict.fromkeys(found))

    @cached_property
    def is_drawn(self) -> bool:
        """Tell whether the number of points is infinite."""
        return any(block.drawn for block in self.blocks)

    @cached_property
    def has_conditions(self) -> bool:
        """Tell whether some rows may not be points."""
        pairs = itertools.combinations(self.blocks, 2)
        return bool(self.exclude) or any(block.when for block in self.blocks) or not all(_are_apart(*p) for p in pairs)

    def find(self, number: int) -> tuple[int, int]:
        """Return the block of a row, and the row's number in it."""
        for place, block in enumerate(self.blocks):
            if number < block.size:
                return place, number
            number -= block.size
        raise IndexError(number)

    def keep(self, place: int, given: dict[str, Value]) -> dict[str, Value] | None:
        """Return the parameters of a point of a block; None if it is excluded or was already visited."""
        left = self.blocks[place].leave_out(given)
        if left is None:
            return None
        data = {name: value.data for name, value in left.items()}
        if any(condition.holds(data) for condition in self.exclude):
            return None
        if any(block.has(data) for block in self.blocks[:place]):
            return None
        return left


@dataclass(frozen=True)
class Points:
    """An iteration over a space: all of it in order or shuffled, or a sample."""

    space: Space
    sample: int | None = None
    is_shuffled: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample is not None and self.sample < 1:
            raise UserError(f"--sample expected 1 or more points, got {self.sample}.")
        if self.space.chance and self.sample is None:
            raise UserError(f"{', '.join(self.space.chance)} is random: set the number of points with --sample N.")

    @property
    def most(self) -> int:
        """Return the number of points, or an upper bound if `is_exact` is false."""
        if self.space.is_drawn and self.sample is not None:
            return self.sample
        return self.space.size if self.sample is None else min(self.sample, self.space.size)

    @cached_property
    def is_exact(self) -> bool:
        """Tell whether `most` is the exact number of points; otherwise only iteration can count them."""
        return not (self.space.has_conditions or self._may_repeat)

    def __iter__(self) -> Iterator[Point]:
        if not self.is_exact:
            return self._kept()
        blocks = self.space.blocks
        if any(block.names != block.axis_names for block in blocks):
            return map(self._raw, range(self.most))
        if self.is_in_order:
            rows = ((block.names, row) for block in blocks for row in block.rows())
        elif len(blocks) == 1:
            names, row_of = blocks[0].names, blocks[0].row
            rows = ((names, row_of(number)) for number in map(self._order(0), range(self.most)))
        else:
            return map(self._raw, range(self.most))
        # Calling `tuple.__new__` directly saves a third of the time of an iteration.
        return (tuple.__new__(Point, (index, names, row)) for index, (names, row) in enumerate(rows))

    def at(self, index: int) -> Point:
        """Return a point by its index: computed if `is_exact`, else found by iteration."""
        if self.is_exact:
            if not 0 <= index < self.most:
                raise IndexError(index)
            return self._raw(index)
        found = next(itertools.islice(self, index, None), None)
        if found is None:
            raise IndexError(index)
        return found

    @cached_property
    def is_in_order(self) -> bool:
        """Tell whether the blocks are visited in their given order."""
        return self.sample is None and not self.is_shuffled

    @cached_property
    def _may_repeat(self) -> bool:
        return any(
            block.drawn and not any(columns.is_fine(one) for one in block.drawn.values()) for block in self.space.blocks
        )

    def _kept(self) -> Iterator[Point]:
        """Yield the points that satisfy the conditions, each once."""
        most = self.sample if self.sample is not None else self.space.size
        seen: set[str] = set()
        index = refused = 0
        for number in itertools.count() if self.space.is_drawn else range(self.space.size):
            place, row = self._row(number)
            kept = self.space.keep(place, dict(zip(self.space.blocks[place].names, row, strict=True)))
            point = None if kept is None else Point(index, tuple(kept), tuple(kept.values()))
            if point is not None and self._may_repeat:
                if point.key in seen:
                    point = None
                else:
                    seen.add(point.key)
            if point is None:
                refused += 1
                if self.space.is_drawn and refused > PATIENCE:
                    return
                continue
            yield point
            index, refused = index + 1, 0
            if index == most:
                return

    def _raw(self, index: int) -> Point:
        place, row = self._row(index)
        return Point(index, self.space.blocks[place].names, row)

    def _row(self, number: int) -> tuple[int, Row]:
        """Return the block and the values at a position of the iteration, before conditions."""
        place, row = self.space.find(number if self.is_in_order else self._shuffled(number))
        block = self.space.blocks[place]
        if block.names == block.axis_names:
            return place, block.row(row)
        found = dict(zip(block.axis_names, block.row(row), strict=True))
        found |= {name: one.at(self._chance(name, number)) for name, one in block.drawn.items()}
        return place, tuple([found[name] for name in block.names])

    def _shuffled(self, number: int) -> int:
        turn, place = divmod(number, self.space.size)
        return self._order(turn)(place)

    def _chance(self, name: str, number: int) -> float:
        # Every step of the grain is used once before one repeats. Each name has its own order, independent of other
        # drawn names.
        turn, place = divmod(number, columns.GRAIN)
        return self._steps(name, turn).at(place) / columns.GRAIN

    @cached_property
    def _order(self) -> Callable[[int], Callable[[int], int]]:
        def order(turn: int) -> Callable[[int], int]:
            return orders.order(self.space.size, orders.derive_seed(self.seed, turn) if turn else self.seed)

        return lru_cache(maxsize=1)(order)

    @cached_property
    def _steps(self) -> Callable[[str, int], orders.ScatteredOrder]:
        def steps(name: str, turn: int) -> orders.ScatteredOrder:
            return orders.ScatteredOrder(columns.GRAIN, orders.derive_seed(self.seed, name, turn))

        return lru_cache(maxsize=64)(steps)
