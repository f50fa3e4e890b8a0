"""Who may take which devices, against a search through all possibilities."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.scheduling import assignment

DEVICES = "abcde"


def want(dice):
    """Make what `choose` is asked: count, wanted, free, ahead."""
    ahead = [(dice.number(0, 3), dice.some(DEVICES)) for _ in range(dice.number(0, 3))]
    return dice.number(0, 4), dice.some(DEVICES), dice.some(DEVICES), ahead


WANTS = build.drawn(want)


def harmless(count, wanted, free, ahead):
    """Return all sets of `count` free wanted devices whose loss nobody ahead would feel."""
    mine = [device for device in wanted if device in free]
    before = build.most_held(ahead, free)
    return [
        set(own)
        for own in itertools.combinations(mine, count)
        if build.most_held(ahead, set(free) - set(own)) == before
    ]


@given(WANTS)
def test_devices_are_given_exactly_when_nobody_ahead_would_miss_them(want):
    count, wanted, free, ahead = want
    chosen = assignment.choose(count, wanted, free, ahead)
    possible = harmless(count, wanted, free, ahead)
    assert (set(chosen) in possible) if chosen is not None else not possible


@given(WANTS)
def test_as_many_devices_are_given_as_were_asked_each_once(want):
    count, wanted, free, ahead = want
    chosen = assignment.choose(count, wanted, free, ahead)
    assert chosen is None or len(chosen) == len(set(chosen)) == count


@given(WANTS)
def test_with_nobody_ahead_the_best_free_devices_are_given_best_first(want):
    count, wanted, free, _ = want
    mine = tuple(device for device in wanted if device in free)
    assert assignment.choose(count, wanted, free, []) == (mine[:count] if len(mine) >= count else None)


@given(WANTS)
def test_what_is_given_stands_in_the_order_of_preference(want):
    count, wanted, free, ahead = want
    chosen = assignment.choose(count, wanted, free, ahead)
    assert chosen is None or list(chosen) == sorted(chosen, key=wanted.index)


@given(WANTS, st.randoms(use_true_random=False))
def test_the_order_in_which_sets_are_read_decides_nothing(want, random):
    count, wanted, free, ahead = want
    shuffled = [(many, random.sample(devices, len(devices))) for many, devices in ahead]
    again = assignment.choose(count, wanted, random.sample(free, len(free)), shuffled)
    assert again == assignment.choose(count, wanted, free, ahead)


def test_somebody_ahead_moves_aside_where_another_device_serves_as_well():
    assert assignment.choose(1, ["a"], {"a", "b"}, [(1, ["a", "b"])]) == ("a",)


def test_nobody_ahead_moves_aside_for_less():
    assert assignment.choose(1, ["a", "b"], {"a", "b"}, [(2, ["a", "b"])]) is None


def test_somebody_ahead_who_cannot_use_a_free_device_does_not_keep_it():
    assert assignment.choose(1, ["a", "b"], {"b"}, [(1, ["a"])]) == ("b",)


def test_somebody_who_collects_keeps_what_he_has_so_far():
    assert assignment.choose(1, ["a", "b"], {"a"}, [(2, ["a", "b"])]) is None
