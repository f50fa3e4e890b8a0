"""Orders of points. Random ones are repeatable: the same size and seed give the same order on every machine.

`shuffled` is the order of Python's `random.shuffle`, as in simple_hypersearch; it needs 4 bytes per item and is built
as a whole. `ScatteredOrder` needs no memory and computes any position directly, even of 10^12. `spread` chooses a few
points that represent a space.

Pure.
"""

from __future__ import annotations

import hashlib
import math
import random
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence

from dibs.sweeps.sequences import LazySequence

#: Up to this size the order is that of `random.shuffle`: quick to build, and compatible with the old tool.
WHOLE = 100_000
#: Pairs of Feistel rounds: four rounds are the proven minimum for a pseudorandom permutation.
ROUNDS = 2
#: Bits of the arithmetic inside a round.
MASK = 2**96 - 1


def shuffled(size: int, bits: Callable[[int], int]) -> array[int]:
    """Do the same steps as `random.shuffle`, in half the time; `bits` is that of `random.Random(seed).getrandbits`."""
    numbers = array("L" if size > 2**32 else "I", range(size))
    for last in range(size - 1, 0, -1):
        below = last + 1
        width = below.bit_length()
        other = bits(width)
        while other >= below:
            other = bits(width)
        numbers[last], numbers[other] = numbers[other], numbers[last]
    return numbers


class ScatteredOrder(LazySequence[int]):
    """An order computed by a Feistel network over two digits of a base near the square root of the size."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self._high = max(1, math.isqrt(max(0, size - 1)) + 1)
        self._low = -(-size // self._high)
        # Odd, so that multiplication never maps two digits to one.
        self._keys = [(derive_seed(seed, n, "high") | 1, derive_seed(seed, n, "low") | 1) for n in range(ROUNDS)]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        return map(self.at, range(self.size))

    def at(self, place: int) -> int:
        """Return the number at this position."""
        highest, lowest, size = self._high, self._low, self.size
        number = place
        while True:
            high, low = divmod(number, lowest)
            for one, other in self._keys:
                # A round adds the middle bits of a square of one digit to the other, which is reversible: a bijection.
                mixed = (low + 1) * one & MASK
                high = (high + (mixed * mixed >> 32 & MASK)) % highest
                mixed = (high + 1) * other & MASK
                low = (low + (mixed * mixed >> 32 & MASK)) % lowest
            number = high * lowest + low
            # Two digits exceed the size slightly; an index that lands outside is mapped again until it is inside.
            if number < size:
                return number


def order(size: int, seed: int) -> Callable[[int], int]:
    """Return the function from positions to numbers for a size and a seed; large ones take no memory."""
    if size <= WHOLE:
        return shuffled(size, random.Random(seed).getrandbits).__getitem__
    return ScatteredOrder(size, seed).at


def derive_seed(seed: int, *what: object) -> int:
    """Derive the seed of a part from the seed of the whole."""
    return int.from_bytes(hashlib.sha256(repr((seed, *what)).encode()).digest()[:8], "big")


def spread(points: Sequence[Mapping[str, object]], count: int) -> list[int]:
    """Return the places of `count` points that lie far apart, the first point included.

    Each has as many values as possible that no other chosen one has; of several such, the farthest is taken.
    """
    columns: dict[str, dict[str, int]] = {}
    for point in points:
        for name, value in point.items():
            column = columns.setdefault(name, {})
            column.setdefault(repr(value), len(column))
    located = [_coordinates(point, columns) for point in points]
    chosen = [0] if points else []
    gaps = [math.inf] * len(points)
    while len(chosen) < min(count, len(points)):
        last = located[chosen[-1]]
        gaps = [min(gap, math.dist(last, each)) for gap, each in zip(gaps, located, strict=True)]
        used = [{located[place][n] for place in chosen} for n in range(len(columns))]
        new = [sum(x not in seen for x, seen in zip(each, used, strict=True)) for each in located]
        chosen.append(max(range(len(points)), key=lambda place: (gaps[place] > 0, new[place], gaps[place])))
    return chosen


def _coordinates(point: Mapping[str, object], columns: Mapping[str, Mapping[str, int]]) -> tuple[float, ...]:
    """Return where the values of a point stand among those of each parameter, from 0 to 1; -1: it has none."""
    return tuple(
        column[repr(point[name])] / max(1, len(column) - 1) if name in point else -1.0
        for name, column in columns.items()
    )
