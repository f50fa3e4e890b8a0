"""A sequence whose items are computed on demand.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

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
