"""Who may share which device, against the rule tried out on every possibility."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.scheduling import choice
from dibs.scheduling.choice import Room, Terms, Want

DEVICES = "abcd"
CAPACITY = 10
MOST = 3


def room(*shares):
    return choice.room(CAPACITY, MOST, shares)


def drawn_room(dice):
    shares = []
    for _ in range(dice.number(0, MOST)):
        share = dice.number(1, 6)
        if sum(shares) + share <= CAPACITY:
            shares.append(share)
    return room(*shares)


def case(dice):
    """Make what `choose` is asked: count, MiB, wanted, rooms, ahead."""
    rooms = {device: drawn_room(dice) for device in dice.some(DEVICES)}
    ahead = [
        Want(dice.number(1, 3), dice.some(DEVICES, 1), dice.one((0, 0, 2, 5, 9)), dice.number(0, 1) == 1)
        for _ in range(dice.number(0, 3))
    ]
    return dice.number(1, 3), dice.one((0, 0, 1, 3, 6, 10)), dice.some(DEVICES), rooms, ahead


CASES = build.drawn(case)


def after(rooms, own, mib):
    left = dict(rooms)
    for device in own:
        if mib:
            left[device] = left[device].less(mib)
        else:
            del left[device]
    return left


def most_served(want, rooms):
    """Return how many devices one want can have, by counting."""
    return min(want.count, sum(device in want.devices and room.fits(want.mib) for device, room in rooms.items()))


# -- what holds for every choice ----------------------------------------------------------------------------------


@given(CASES)
def test_no_device_is_given_that_has_no_room(case):
    count, mib, wanted, rooms, ahead = case
    chosen = choice.choose(count, wanted, rooms, ahead, Terms(mib))
    assert chosen is None or len({*chosen}) == count
    for device in chosen or ():
        assert device in wanted
        assert rooms[device].fits(mib)
        assert mib or not rooms[device].sharers


@given(CASES)
def test_those_ahead_can_have_as_much_as_before(case):
    count, mib, wanted, rooms, ahead = case
    chosen = choice.choose(count, wanted, rooms, ahead, Terms(mib))
    if chosen is not None:
        assert choice.serve(ahead, after(rooms, chosen, mib))[0] >= choice.serve(ahead, rooms)[0]


@given(CASES)
def test_nobody_is_given_what_becomes_empty_for_those_ahead(case):
    count, mib, wanted, rooms, ahead = case
    chosen = choice.choose(count, wanted, rooms, ahead, Terms(mib))
    closed = choice.serve(ahead, rooms)[1]
    assert not closed or any(room.sharers for room in rooms.values())
    assert closed.isdisjoint(chosen or ())


@given(CASES)
def test_behind_one_want_devices_are_given_exactly_when_it_loses_nothing(case):
    count, mib, wanted, rooms, ahead = case
    for want in ahead[:1]:
        chosen = choice.choose(count, wanted, rooms, [want], Terms(mib))
        closed = choice.serve([want], rooms)[1]
        able = [d for d in wanted if d in rooms and rooms[d].fits(mib) and d not in closed]
        before = most_served(want, rooms)
        harmless = [
            {*own} for own in itertools.combinations(able, count) if most_served(want, after(rooms, own, mib)) == before
        ]
        assert ({*chosen} in harmless) if chosen is not None else not harmless


@given(CASES)
def test_where_nobody_shares_those_ahead_are_served_as_by_an_exact_matching(case):
    """The seating for those who share must not be worse where they do not."""
    _, _, _, rooms, ahead = case
    alone = [Want(want.count, want.devices) for want in ahead]
    free = [device for device, left in rooms.items() if not left.sharers]
    served = choice.serve(alone, {device: room() for device in free})[0]
    assert list(itertools.accumulate(served)) == build.most_held([(w.count, w.devices) for w in alone], free)


def test_one_who_asks_for_far_more_than_there_is_costs_nothing():
    """A ticket is written by anybody: its count must not be counted through."""
    rooms = {device: room() for device in "abc"}
    assert choice.serve([Want(10**18, "abc", 4)], rooms)[0] == [3]


@given(CASES)
def test_who_waits_ahead_and_is_not_served_keeps_newcomers_away_only_where_it_helps(case):
    _, _, _, rooms, ahead = case
    _, closed = choice.serve(ahead, rooms)
    for device in closed:
        assert any(
            want.is_emptying
            and device in want.devices
            and not rooms[device].fits(want.mib)
            and rooms[device].could_fit(want.mib)
            for want in ahead
        )


# -- examples -----------------------------------------------------------------------------------------------------


def test_the_fullest_device_in_which_it_fits_is_chosen():
    rooms = {"a": room(), "b": room(3), "c": room(3, 3), "d": room(9)}
    assert choice.choose(1, "abcd", rooms, [], Terms(4)) == ("c",)
    assert choice.choose(1, "abcd", rooms, [], Terms(1)) == ("d",)
    assert choice.choose(1, "abcd", rooms, [], Terms(8)) == ("a",)


def test_a_device_that_as_many_share_as_may_is_full():
    assert choice.choose(1, "a", {"a": room(1, 1, 1)}, [], Terms(1)) is None


def test_among_equals_the_one_that_was_used_longest_ago_is_chosen():
    rooms = {"a": room(), "b": room(), "c": room()}
    used_at = {"a": 30.0, "b": 10.0, "c": 20.0}
    assert choice.choose(1, "abc", rooms, [], Terms(4, used_at=used_at)) == ("b",)
    assert choice.choose(2, "abc", rooms, [], Terms(used_at=used_at)) == ("b", "c")


def test_what_is_asked_for_first_comes_before_the_best_fit():
    rooms = {"a": room(5), "b": room()}
    assert choice.choose(1, "ba", rooms, [], Terms(4)) == ("a",)
    assert choice.choose(1, "ba", rooms, [], Terms(4, first="b")) == ("b",)


def test_several_are_chosen_by_how_they_are_connected():
    rooms = {device: room() for device in "abcd"}
    links = {("b", "c"): 5, ("c", "b"): 5}
    assert choice.choose(2, "abcd", rooms, [], Terms(closeness=links)) == ("b", "c")
    assert choice.choose(2, "abcd", rooms, [], Terms(3, closeness=links)) == ("b", "c")


def test_those_chosen_stand_in_the_order_in_which_they_were_wanted():
    rooms = {device: room() for device in DEVICES}
    terms = Terms(0, used_at={"a": 9, "b": 1, "c": 5})
    assert choice.choose(3, "dabc", rooms, [], terms) == ("d", "b", "c")


def test_one_who_wants_a_device_alone_does_not_wait_for_ever_behind_small_ones():
    """On the first device of its ticket nobody new begins; on the other there is still room."""
    rooms = {"a": room(2), "b": room(2, 2)}
    alone = Want(1, ["b", "a"])
    assert choice.choose(1, "ab", rooms, [alone], Terms(1)) == ("a",)
    assert choice.choose(1, "b", rooms, [alone], Terms(1)) is None
    assert choice.choose(1, "b", rooms, [Want(1, ["b", "a"], is_emptying=False)], Terms(1)) == ("b",)


def test_one_who_wants_much_does_not_wait_for_ever_behind_small_ones():
    rooms = {"a": room(4), "b": room(4)}
    assert choice.choose(1, "ab", rooms, [Want(1, ["a", "b"], 8)], Terms(1)) == ("b",)


def test_nothing_is_kept_empty_for_one_who_could_not_use_it_even_then():
    rooms = {"a": choice.room(6, MOST, (4,)), "b": room(4)}
    assert choice.serve([Want(1, ["a", "b"], 8)], rooms) == ([0], {"b"})


def test_a_device_whose_memory_nobody_knows_is_shared_with_nobody():
    rooms = {"a": choice.room(None, MOST)}
    assert choice.serve([Want(1, "a", 3), Want(1, "a", 3)], rooms)[0] == [1, 0]
    assert not choice.room(None, MOST, (3,)).fits(1)


def test_one_waits_for_the_device_on_which_least_has_to_end():
    rooms = {"a": room(2, 2), "b": room(9), "c": room(3), "d": Room(1, 3)}
    assert choice.nearest("abcde", rooms, 0) == ["d", "c", "b", "a", "e"]
    assert choice.nearest("abcde", rooms, 8) == ["c", "a", "b", "d", "e"]


def test_nobody_is_seated_beside_one_ahead_who_wants_the_device_alone():
    assert choice.serve([Want(1, "a"), Want(1, "a", 3)], {"a": room()})[0] == [1, 0]


def test_what_is_not_allowed_is_not_chosen_though_there_is_room():
    rooms = {device: room() for device in "ab"}
    assert choice.choose(1, "ab", rooms, [], Terms(4), lambda own: "a" not in own) == ("b",)


# -- whole devices, against a search through all possibilities ------------------------------------------------------

WHOLE = "abcde"


def choose_whole(count, wanted, free, ahead):
    """Choose among devices that nobody shares."""
    return choice.choose(count, wanted, dict.fromkeys(free, room()), [Want(*each) for each in ahead])


def want(dice):
    """Make what `choose_whole` is asked: count, wanted, free, ahead."""
    ahead = [(dice.number(0, 3), dice.some(WHOLE)) for _ in range(dice.number(0, 3))]
    return dice.number(0, 4), dice.some(WHOLE), dice.some(WHOLE), ahead


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
    chosen = choose_whole(count, wanted, free, ahead)
    possible = harmless(count, wanted, free, ahead)
    assert (set(chosen) in possible) if chosen is not None else not possible


@given(WANTS)
def test_as_many_devices_are_given_as_were_asked_each_once(want):
    count, wanted, free, ahead = want
    chosen = choose_whole(count, wanted, free, ahead)
    assert chosen is None or len(chosen) == len(set(chosen)) == count


@given(WANTS)
def test_with_nobody_ahead_the_best_free_devices_are_given_best_first(want):
    count, wanted, free, _ = want
    mine = tuple(device for device in wanted if device in free)
    assert choose_whole(count, wanted, free, []) == (mine[:count] if len(mine) >= count else None)


@given(WANTS)
def test_what_is_given_stands_in_the_order_of_preference(want):
    count, wanted, free, ahead = want
    chosen = choose_whole(count, wanted, free, ahead)
    assert chosen is None or list(chosen) == sorted(chosen, key=wanted.index)


@given(WANTS, st.randoms(use_true_random=False))
def test_the_order_in_which_sets_are_read_decides_nothing(want, random):
    count, wanted, free, ahead = want
    shuffled = [(many, random.sample(devices, len(devices))) for many, devices in ahead]
    again = choose_whole(count, wanted, random.sample(free, len(free)), shuffled)
    assert again == choose_whole(count, wanted, free, ahead)


def test_somebody_ahead_moves_aside_where_another_device_serves_as_well():
    assert choose_whole(1, ["a"], {"a", "b"}, [(1, ["a", "b"])]) == ("a",)


def test_nobody_ahead_moves_aside_for_less():
    assert choose_whole(1, ["a", "b"], {"a", "b"}, [(2, ["a", "b"])]) is None


def test_somebody_ahead_who_cannot_use_a_free_device_does_not_keep_it():
    assert choose_whole(1, ["a", "b"], {"b"}, [(1, ["a"])]) == ("b",)


def test_somebody_who_collects_keeps_what_he_has_so_far():
    assert choose_whole(1, ["a", "b"], {"a"}, [(2, ["a", "b"])]) is None
