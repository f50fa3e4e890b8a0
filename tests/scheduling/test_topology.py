"""The best connected devices, against a search through all sets."""

import itertools

from hypothesis import given

import build
from dibs.scheduling import topology

DEVICES = "abcdefgh"


def case(dice):
    """Make the input of `best`: count, able, first, closeness, and pairs that may not be chosen together."""
    able = dice.some(DEVICES)
    links = {}
    for a, b in itertools.combinations(DEVICES, 2):
        links[a, b] = links[b, a] = dice.one((0, 1, 1, 5))
    apart = [{*dice.some(DEVICES, 2, 2)} for _ in range(dice.number(0, 3))]
    return dice.number(1, 5), able, dice.some(DEVICES, 0, 2), links if dice.number(0, 4) else {}, apart


CASES = build.drawn(case)


def is_allowed(apart):
    return lambda own: not any(pair <= {*own} for pair in apart)


def score(own, links):
    found = [links.get(pair, 0) for pair in itertools.combinations(own, 2)]
    return min(found, default=float("inf")), sum(found)


@given(CASES)
def test_no_set_is_better_connected_than_the_chosen_one(case):
    count, able, _, links, apart = case
    is_spare = is_allowed(apart)
    chosen = topology.best(count, able, (), links, is_spare)
    possible = [own for own in itertools.combinations(able, count) if is_spare(own)]
    if links and count > 1:
        # The first of the best: preference decides a tie.
        assert chosen == max(possible, key=lambda own: score(own, links), default=None)
    elif chosen is not None:
        assert chosen in possible


@given(CASES)
def test_preferred_devices_are_included_if_possible(case):
    count, able, first, links, apart = case
    chosen = topology.best(count, able, first, links, is_allowed(apart))
    if chosen is not None and not apart:
        asked = [device for device in able if device in first]
        assert {*asked[:count]} <= {*chosen}


@given(CASES)
def test_the_requested_number_is_chosen_in_order_of_preference(case):
    count, able, first, links, apart = case
    chosen = topology.best(count, able, first, links, is_allowed(apart))
    assert chosen is None or (len(chosen) == count and list(chosen) == sorted(chosen, key=able.index))


def machine(count, together):
    """Return the links of a machine whose devices are close in groups of `together`."""
    return {
        (f"{a:02}", f"{b:02}"): 5 if a // together == b // together else 1
        for a, b in itertools.permutations(range(count), 2)
    }


def test_both_devices_of_a_pair_are_chosen_before_one_of_each():
    assert topology.best(2, ["00", "02", "03"], (), machine(4, 2), lambda own: True) == ("02", "03")


def test_sixteen_devices_need_little_work():
    """Counted and not timed: the number of checks whether a set is allowed tells how many sets were examined."""
    for together in (1, 2, 4, 8, 16):
        for count in (2, 4, 8):
            asked = []
            able = [f"{n:02}" for n in range(16)]
            links = machine(16, together)
            chosen = topology.best(count, able, (), links, lambda own, asked=asked: not asked.append(own))
            assert score(chosen, links) == score(able[:count], links)
            assert len(asked) < 2000


def test_among_very_many_devices_a_close_set_is_found():
    able = [f"{n:02}" for n in range(40)]
    assert topology.best(4, able[1:], (), machine(40, 8), lambda own: True) == ("01", "02", "03", "04")
