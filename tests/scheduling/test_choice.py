"""Which devices a share may take, against the rule applied to every possibility."""

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
    """Make the input of `choose`: count, MiB, wanted, rooms, ahead."""
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
    """Return how many devices one request can have, by counting."""
    return min(want.count, sum(device in want.devices and room.fits(want.mib) for device, room in rooms.items()))


# -- properties of every choice -----------------------------------------------------------------------------------


@given(CASES)
def test_only_devices_with_enough_room_are_given(case):
    count, mib, wanted, rooms, ahead = case
    chosen = choice.choose(count, wanted, rooms, ahead, Terms(mib))
    assert chosen is None or len({*chosen}) == count
    for device in chosen or ():
        assert device in wanted
        assert rooms[device].fits(mib)
        assert mib or not rooms[device].sharers


@given(CASES)
def test_a_choice_takes_nothing_from_requests_ahead(case):
    count, mib, wanted, rooms, ahead = case
    chosen = choice.choose(count, wanted, rooms, ahead, Terms(mib))
    if chosen is not None:
        assert choice.serve(ahead, after(rooms, chosen, mib))[0] >= choice.serve(ahead, rooms)[0]


@given(CASES)
def test_a_device_that_is_being_emptied_for_a_request_ahead_is_not_given(case):
    count, mib, wanted, rooms, ahead = case
    chosen = choice.choose(count, wanted, rooms, ahead, Terms(mib))
    closed = choice.serve(ahead, rooms)[1]
    assert not closed or any(room.sharers for room in rooms.values())
    assert closed.isdisjoint(chosen or ())


@given(CASES)
def test_with_one_request_ahead_devices_are_given_exactly_when_it_loses_nothing(case):
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
def test_without_sharing_requests_ahead_are_served_as_by_an_exact_matching(case):
    """The placement for shares must not be worse where nothing is shared."""
    _, _, _, rooms, ahead = case
    alone = [Want(want.count, want.devices) for want in ahead]
    free = [device for device, left in rooms.items() if not left.sharers]
    served = choice.serve(alone, {device: room() for device in free})[0]
    assert list(itertools.accumulate(served)) == build.most_held([(w.count, w.devices) for w in alone], free)


def test_a_huge_device_count_costs_no_time():
    """Any user can write a ticket: its count must not be iterated over."""
    rooms = {device: room() for device in "abc"}
    assert choice.serve([Want(10**18, "abc", 4)], rooms)[0] == [3]


@given(CASES)
def test_a_device_is_emptied_only_if_that_helps_a_request_ahead(case):
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


def test_the_fullest_device_with_enough_room_is_chosen():
    rooms = {"a": room(), "b": room(3), "c": room(3, 3), "d": room(9)}
    assert choice.choose(1, "abcd", rooms, [], Terms(4)) == ("c",)
    assert choice.choose(1, "abcd", rooms, [], Terms(1)) == ("d",)
    assert choice.choose(1, "abcd", rooms, [], Terms(8)) == ("a",)


def test_a_device_with_the_maximum_number_of_shares_is_full():
    assert choice.choose(1, "a", {"a": room(1, 1, 1)}, [], Terms(1)) is None


def test_among_equal_devices_the_least_recently_used_is_chosen():
    rooms = {"a": room(), "b": room(), "c": room()}
    used_at = {"a": 30.0, "b": 10.0, "c": 20.0}
    assert choice.choose(1, "abc", rooms, [], Terms(4, used_at=used_at)) == ("b",)
    assert choice.choose(2, "abc", rooms, [], Terms(used_at=used_at)) == ("b", "c")


def test_explicit_preference_comes_before_best_fit():
    rooms = {"a": room(5), "b": room()}
    assert choice.choose(1, "ba", rooms, [], Terms(4)) == ("a",)
    assert choice.choose(1, "ba", rooms, [], Terms(4, first="b")) == ("b",)


def test_several_devices_are_chosen_by_their_links():
    rooms = {device: room() for device in "abcd"}
    links = {("b", "c"): 5, ("c", "b"): 5}
    assert choice.choose(2, "abcd", rooms, [], Terms(closeness=links)) == ("b", "c")
    assert choice.choose(2, "abcd", rooms, [], Terms(3, closeness=links)) == ("b", "c")


def test_chosen_devices_are_in_the_requested_order():
    rooms = {device: room() for device in DEVICES}
    terms = Terms(0, used_at={"a": 9, "b": 1, "c": 5})
    assert choice.choose(3, "dabc", rooms, [], terms) == ("d", "b", "c")


def test_an_exclusive_request_is_not_starved_by_small_shares():
    """Nothing new starts on the first device of its ticket; on the other there is still room."""
    rooms = {"a": room(2), "b": room(2, 2)}
    alone = Want(1, ["b", "a"])
    assert choice.choose(1, "ab", rooms, [alone], Terms(1)) == ("a",)
    assert choice.choose(1, "b", rooms, [alone], Terms(1)) is None
    assert choice.choose(1, "b", rooms, [Want(1, ["b", "a"], is_emptying=False)], Terms(1)) == ("b",)


def test_a_large_share_is_not_starved_by_small_ones():
    rooms = {"a": room(4), "b": room(4)}
    assert choice.choose(1, "ab", rooms, [Want(1, ["a", "b"], 8)], Terms(1)) == ("b",)


def test_a_device_is_not_emptied_for_a_request_that_would_not_fit_even_then():
    rooms = {"a": choice.room(6, MOST, (4,)), "b": room(4)}
    assert choice.serve([Want(1, ["a", "b"], 8)], rooms) == ([0], {"b"})


def test_a_device_of_unknown_memory_is_not_shared():
    rooms = {"a": choice.room(None, MOST)}
    assert choice.serve([Want(1, "a", 3), Want(1, "a", 3)], rooms)[0] == [1, 0]
    assert not choice.room(None, MOST, (3,)).fits(1)


def test_the_device_with_least_use_to_wait_for_comes_first():
    rooms = {"a": room(2, 2), "b": room(9), "c": room(3), "d": Room(1, 3)}
    assert choice.nearest("abcde", rooms, 0) == ["d", "c", "b", "a", "e"]
    assert choice.nearest("abcde", rooms, 8) == ["c", "a", "b", "d", "e"]


def test_no_share_is_placed_on_a_device_that_an_exclusive_request_ahead_needs():
    assert choice.serve([Want(1, "a"), Want(1, "a", 3)], {"a": room()})[0] == [1, 0]


def test_a_device_that_is_not_requested_is_not_chosen_though_it_has_room():
    rooms = {device: room() for device in "ab"}
    assert choice.choose(1, "ab", rooms, [], Terms(4), lambda own: "a" not in own) == ("b",)


# -- whole devices, against a search through all possibilities ------------------------------------------------------

WHOLE = "abcde"


def choose_whole(count, wanted, free, ahead):
    """Choose among devices that nobody shares."""
    return choice.choose(count, wanted, dict.fromkeys(free, room()), [Want(*each) for each in ahead])


def want(dice):
    """Make the input of `choose_whole`: count, wanted, free, ahead."""
    ahead = [(dice.number(0, 3), dice.some(WHOLE)) for _ in range(dice.number(0, 3))]
    return dice.number(0, 4), dice.some(WHOLE), dice.some(WHOLE), ahead


WANTS = build.drawn(want)


def harmless(count, wanted, free, ahead):
    """Return all sets of `count` free wanted devices that no request ahead would miss."""
    mine = [device for device in wanted if device in free]
    before = build.most_held(ahead, free)
    return [
        set(own)
        for own in itertools.combinations(mine, count)
        if build.most_held(ahead, set(free) - set(own)) == before
    ]


@given(WANTS)
def test_devices_are_given_exactly_when_no_request_ahead_would_miss_them(want):
    count, wanted, free, ahead = want
    chosen = choose_whole(count, wanted, free, ahead)
    possible = harmless(count, wanted, free, ahead)
    assert (set(chosen) in possible) if chosen is not None else not possible


@given(WANTS)
def test_the_requested_number_of_distinct_devices_is_given(want):
    count, wanted, free, ahead = want
    chosen = choose_whole(count, wanted, free, ahead)
    assert chosen is None or len(chosen) == len(set(chosen)) == count


@given(WANTS)
def test_with_no_request_ahead_the_preferred_free_devices_are_given(want):
    count, wanted, free, _ = want
    mine = tuple(device for device in wanted if device in free)
    assert choose_whole(count, wanted, free, []) == (mine[:count] if len(mine) >= count else None)


@given(WANTS)
def test_devices_are_given_in_order_of_preference(want):
    count, wanted, free, ahead = want
    chosen = choose_whole(count, wanted, free, ahead)
    assert chosen is None or list(chosen) == sorted(chosen, key=wanted.index)


@given(WANTS, st.randoms(use_true_random=False))
def test_the_iteration_order_of_sets_does_not_matter(want, random):
    count, wanted, free, ahead = want
    shuffled = [(many, random.sample(devices, len(devices))) for many, devices in ahead]
    again = choose_whole(count, wanted, random.sample(free, len(free)), shuffled)
    assert again == choose_whole(count, wanted, free, ahead)


def test_a_request_ahead_is_moved_to_another_device_that_serves_it_as_well():
    assert choose_whole(1, ["a"], {"a", "b"}, [(1, ["a", "b"])]) == ("a",)


def test_a_request_ahead_is_never_moved_to_fewer_devices():
    assert choose_whole(1, ["a", "b"], {"a", "b"}, [(2, ["a", "b"])]) is None


def test_a_request_ahead_does_not_keep_a_free_device_it_cannot_use():
    assert choose_whole(1, ["a", "b"], {"b"}, [(1, ["a"])]) == ("b",)


def test_a_collecting_ticket_keeps_the_devices_it_has_so_far():
    assert choose_whole(1, ["a", "b"], {"a"}, [(2, ["a", "b"])]) is None
