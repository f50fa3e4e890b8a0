"""A sequence whose items are computed on demand.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar, overload

Item = TypeVar("Item", covariant=True)


class LazySequence(Sequence[Item]):
    """Define `__len__` and `at`; negative indices, slices and iteration follow."""

    __slots__ = ()

    def at(self, place: int) -> Item:
        """Return the item at a non-negative position below the length."""
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Item]: ...
    def __getitem__(self, place: int | slice) -> Item | Sequence[Item]:
        size = len(self)
        if isinstance(place, slice):
            return [self.at(one) for one in range(*place.indices(size))]
        if not -size <= place < size:
            raise IndexError(place)
        return self.at(place % size)


class Product(LazySequence[tuple[Any, ...]]):
    """All combinations of an item of each part, the last part fastest."""

    __slots__ = ("_wheels", "size")

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self._wheels = [(len(part), part) for part in reversed(parts)]
        #: Its length, which may be more than `len` can return.
        self.size = math.prod(map(len, parts))

    def __len__(self) -> int:
        return self.size

    def at(self, place: int) -> tuple[Any, ...]:
        """Return the combination at this position."""
        found = []
        for size, part in self._wheels:
            place, digit = divmod(place, size)
            found.append(part[digit])
        return tuple(reversed(found))
