"""Random orders: that of simple_hypersearch, and one that needs no memory."""

import itertools
import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.sweeps import orders


@pytest.mark.parametrize("seed", [0, 1, 7, 42, 123, -5, 2**70])
@pytest.mark.parametrize("size", [0, 1, 2, 9, 1000, 5000])
def test_shuffled_equals_the_standard_library(size, seed):
    expected = array("I", range(size))
    random.Random(seed).shuffle(expected)
    assert list(orders.shuffled(size, random.Random(seed).getrandbits)) == list(expected)


@given(st.integers(0, 3000), st.integers())
def test_scattered_has_every_number_once(size, seed):
    assert sorted(orders.ScatteredOrder(size, seed)) == list(range(size))


@given(st.integers(1, 10**24), st.integers(0, 2**64), st.data())
def test_scattered_has_random_access(size, seed, data):
    order = orders.ScatteredOrder(size, seed)
    place = data.draw(st.integers(0, size - 1))
    other = data.draw(st.integers(0, size - 1))
    assert 0 <= order.at(place) < size
    assert (order.at(place) == order.at(other)) == (place == other)


def test_scattered_shows_no_pattern():
    """Each tenth of a thousand places gets about a tenth, neighbours are apart, and another seed is another order."""
    size = 10**6
    first = orders.ScatteredOrder(size, 1)[:1000]
    tenths = [sum(number // (size // 10) == tenth for number in first) for tenth in range(10)]
    assert all(60 < count < 140 for count in tenths)
    assert len({after - before for before, after in itertools.pairwise(first)}) > 950
    assert len({*first} & {*orders.ScatteredOrder(size, 2)[:1000]}) < 20


def test_places_beyond_the_end_are_refused_and_negative_ones_count_from_the_end():
    order = orders.ScatteredOrder(10, 0)
    assert order[-1] == order[9]
    with pytest.raises(IndexError):
        order[10]


def test_small_orders_equal_simple_hypersearch_and_large_ones_start_at_once():
    size = orders.WHOLE
    assert [*map(orders.order(size, 0), range(size))] == [*orders.shuffled(size, random.Random(0).getrandbits)]
    assert orders.order(size + 1, 0)(size) == orders.ScatteredOrder(size + 1, 0)[size]


def test_an_order_never_changes():
    """Users may have run half of a sweep; a release must not change the other half."""
    assert list(map(orders.order(9, 0), range(9))) == [7, 5, 1, 3, 4, 2, 0, 8, 6]
    assert orders.ScatteredOrder(10**12, 7)[:3] == [573654213286, 696466849947, 563290587706]
    assert orders.derive_seed(1, "lr", 0) == 8994935239505489385


def test_points_are_spread_over_a_grid():
    """The first, the last and the middle one: no two have a value in common."""
    grid = [{"lr": lr, "model": model} for lr in (1, 2, 3) for model in ("a", ["b"], "c")]
    assert [grid[place] for place in orders.spread(grid, 3)] == [
        {"lr": 1, "model": "a"}, {"lr": 3, "model": "c"}, {"lr": 2, "model": ["b"]}
    ]  # fmt: skip


@given(st.integers(0, 30), st.integers(1, 5), st.integers(1, 8))
def test_spread_takes_no_point_twice(size, width, count):
    points = [{"x": n // width, "y": n % width} for n in range(size)]
    chosen = orders.spread(points, count)
    assert len(set(chosen)) == len(chosen) == min(size, count)


def test_points_with_other_parameters_are_spread_too():
    assert orders.spread([{"x": 1}, {"x": 1, "y": 2}, {"z": 1}], 3) == [0, 2, 1]
