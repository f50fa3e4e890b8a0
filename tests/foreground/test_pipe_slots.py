"""Slots: which one a command gets, and when a device is taken, kept, shared, offered back and released."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

import lease_lab
from dibs.foreground import slots
from dibs.foreground.slot_kinds import ChosenSlots, FixedSlots, SharedSlots
from dibs.foreground.slots import Etiquette, LeaseOptions, Slot, Slots
from dibs.leases import device_lease, holders
from dibs.scheduling.choice import Terms
from dibs.system import process_tree
from lease_lab import Puppet, hangs_up

# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet

Make = Callable[..., Puppet]
NOTE = device_lease.Note("test")


@pytest.fixture
def opened() -> Iterator[list[Slots]]:
    """Return a list whose slots are closed at the end of the test."""
    made: list[Slots] = []
    yield made
    for one in made:
        one.close()


def chosen(
    place: device_lease.Folder, opened: list[Slots], devices: str, count: int = 1, per_device: int = 1, most: int = 99
) -> ChosenSlots:
    made = ChosenSlots(LeaseOptions(place, NOTE, etiquette=Etiquette(most)), count, list(devices), per_device, "".join)
    opened.append(made)
    return made


def fixed(place: device_lease.Folder, opened: list[Slots], *groups: str) -> FixedSlots:
    made = FixedSlots(LeaseOptions(place, NOTE), [Slot(group, group) for group in groups])
    opened.append(made)
    return made


def taken(some: Slots, count: int = 1, now: float = 0.0) -> list[Slot]:
    """Take up to the given number of slots."""
    return [slot for _ in range(count) if (slot := some.take(now)) is not None]


def labels(found: Sequence[Slot]) -> list[str]:
    return [slot.label for slot in found]


def held(place: device_lease.Folder) -> str:
    return "".join(sorted(holders.held(place, "ABCD")))


def test_the_preferred_device_comes_first_and_only_needed_ones_are_taken(
    place: device_lease.Folder, opened: list[Slots]
) -> None:
    some = chosen(place, opened, "BAC")
    assert labels(taken(some, 2)) == ["B", "A"]
    assert held(place) == "AB"


def test_empty_devices_come_before_shared_ones(place: device_lease.Folder, opened: list[Slots]) -> None:
    some = chosen(place, opened, "AB", per_device=2)
    found = taken(some, 5)
    assert sorted(labels(found)) == ["A", "A", "B", "B"]
    assert set(labels(found[:2])) == {"A", "B"}


def test_at_most_the_allowed_number_of_devices_is_taken(place: device_lease.Folder, opened: list[Slots]) -> None:
    assert labels(taken(chosen(place, opened, "ABCD", count=2, most=3), 4)) == ["AB"]


def test_a_group_uses_the_devices_that_are_free(place: device_lease.Folder, opened: list[Slots], puppet: Make) -> None:
    puppet().ask("take B other")
    assert labels(taken(chosen(place, opened, "ABCD", count=2), 2)) == ["AC"]


def test_the_slot_freed_last_is_used_next(place: device_lease.Folder, opened: list[Slots]) -> None:
    some = fixed(place, opened, "A", "B", "C")
    c, b, a = taken(some, 3)
    assert labels([c, b, a]) == ["C", "B", "A"]
    some.give(b, 0.0)
    some.give(c, 0.0)
    assert labels(taken(some, 3)) == ["C", "B"]


def test_slots_that_overlap_share_a_lease(place: device_lease.Folder, opened: list[Slots]) -> None:
    some = fixed(place, opened, "AB", "B", "B")
    found = taken(some, 3)
    assert labels(found) == ["B", "B", "AB"]
    assert held(place) == "AB"
    for slot in found:
        some.give(slot, 0.0)
    some.rest(0.0, is_over=True)
    assert held(place) == ""


def test_the_next_slot_is_used_when_the_first_is_held(
    place: device_lease.Folder, opened: list[Slots], puppet: Make
) -> None:
    puppet().ask("take C other")
    assert labels(taken(fixed(place, opened, "AB", "CD"), 2)) == ["AB"]


def test_a_device_is_kept_for_the_next_command_without_a_new_lease(
    place: device_lease.Folder, opened: list[Slots]
) -> None:
    some = chosen(place, opened, "A")
    (slot,) = taken(some)
    before = some.inherited(slot)
    some.give(slot, 1.0)
    (again,) = taken(some, now=1.0)
    assert some.inherited(again) == before
    assert min(before) >= slots.KEPT_FD


def test_an_idle_device_is_kept_briefly_and_at_the_end_not_at_all(
    place: device_lease.Folder, opened: list[Slots]
) -> None:
    some = chosen(place, opened, "AB")
    a, b = taken(some, 2)
    some.give(a, 5.0)
    assert some.rest(5.5, is_over=False) == 5.0 + slots.IDLE_S
    assert held(place) == "AB"
    assert some.rest(6.0, is_over=False) == process_tree.NEVER
    assert held(place) == "B"
    some.give(b, 7.0)
    some.rest(7.0, is_over=True)
    assert held(place) == ""


def test_an_idle_device_goes_to_an_older_ticket_and_comes_back(
    place: device_lease.Folder, opened: list[Slots], puppet: Make
) -> None:
    some = chosen(place, opened, "A")
    (slot,) = taken(some)
    other = puppet()
    assert other.ask("acquire 1 A") == "waits"
    some.give(slot, 0.0)
    assert some.take(0.0) is None, "we stand behind it now"
    assert other.hear() == "took A"
    # It may have been between the line and the device when we checked.
    assert some.take(some.ask_at) is None
    assert some.fds(), "and wait for its end"
    other.kill()
    assert hangs_up(*some.fds(), within_s=10)
    some.woken(list(some.fds()), 0.0)
    assert labels(taken(some)) == ["A"]


def test_a_shared_device_accepts_no_new_command_while_a_ticket_waits_for_it(
    place: device_lease.Folder, opened: list[Slots], puppet: Make
) -> None:
    some = chosen(place, opened, "A", per_device=2)
    one, two = taken(some, 2)
    other = puppet()
    assert other.ask("acquire 1 A") == "waits"
    some.give(one, 0.0)
    assert some.take(0.0) is None
    assert held(place) == "A"
    some.give(two, 0.0)
    assert some.take(0.0) is None
    assert other.hear() == "took A"


def test_a_device_just_received_is_used_before_it_is_offered_to_later_tickets(
    place: device_lease.Folder, opened: list[Slots], puppet: Make
) -> None:
    """Otherwise two waiters could pass it back and forth for ever, and nobody would use it."""
    for some in (chosen(place, opened, "A"), fixed(place, opened, "A")):
        holder, other = puppet(), puppet()
        holder.ask("take A other")
        assert some.take(0.0) is None
        assert other.ask("acquire 1 A") == "waits"
        holder.kill()
        assert hangs_up(next(iter(some.fds())), within_s=10)
        some.woken(list(some.fds()), 0.0)
        (slot,) = taken(some)
        some.give(slot, 0.0)
        assert some.take(0.0) is None, "now it is the other's turn"
        assert other.hear() == "took A"
        other.kill()
        some.close()


def test_a_ticket_that_other_devices_can_serve_takes_nothing_from_us(
    place: device_lease.Folder, opened: list[Slots], puppet: Make
) -> None:
    some = chosen(place, opened, "A")
    (slot,) = taken(some)
    holder, other = puppet(), puppet()
    holder.ask("take B other")
    assert other.ask("acquire 1 B") == "waits"
    some.give(slot, 0.0)
    assert labels(taken(some)) == ["A"]


@pytest.mark.parametrize(
    ("text", "key"), [("7", "7"), ("GPU-8f4a", "GPU-8f4a"), ("a b", "text-"), ("x" * 99, "text-"), ("é", "text-")]
)
def test_any_text_maps_to_a_valid_lease_key(text: str, key: str) -> None:
    assert slots.key_of(text).startswith(key)
    assert holders.checked(slots.key_of(text))
    assert slots.key_of(text) == slots.key_of(text) != slots.key_of(text + "!")


def test_waiting_is_reported_once(place: device_lease.Folder, opened: list[Slots], puppet: Make) -> None:
    told: list[Sequence[str]] = []
    some = FixedSlots(LeaseOptions(place, NOTE, on_wait=told.append), [Slot("A", "A")])
    opened.append(some)
    holder = puppet()
    holder.ask("take A other")
    for _ in range(3):
        assert some.take(0.0) is None
        some.leave_line()
    assert told == [("A",)]


# -- etiquette


def polite(place: device_lease.Folder, opened: list[Slots], keep_free: int, told: list[Sequence[str]]) -> ChosenSlots:
    etiquette = Etiquette(None, keep_free, "ABCD")
    how = LeaseOptions(place, NOTE, etiquette=etiquette, on_wait=told.append)
    made = ChosenSlots(how, 1, list("ABCD"), 1, "".join)
    opened.append(made)
    return made


def shared_slots(place: device_lease.Folder, opened: list[Slots], etiquette: Etiquette, most: int = 4) -> SharedSlots:
    terms = Terms(1000, dict.fromkeys("ABCD", 8000), most)
    made = SharedSlots(LeaseOptions(place, NOTE, terms=lambda: terms, etiquette=etiquette), 1, list("ABCD"), "".join)
    opened.append(made)
    return made


def test_keep_free_is_respected_and_reported_once(place: device_lease.Folder, opened: list[Slots]) -> None:
    told: list[Sequence[str]] = []
    some = polite(place, opened, 2, told)
    first, _ = taken(some, 4)
    assert held(place) == "AB"
    assert told == [()]
    # No event reports free devices: they are checked again after a while.
    assert some.ask_at == slots.RETRY_S
    some.give(first, 0.5)
    assert labels(taken(some, 2, now=0.6)) == ["A"]


def test_devices_held_by_others_do_not_count_for_keep_free(
    place: device_lease.Folder, opened: list[Slots], puppet: Make
) -> None:
    other = puppet()
    other.ask("take A,B other")
    some = polite(place, opened, 2, [])
    assert taken(some) == []
    assert other.ask("release") == "released"
    assert labels(taken(some, 1, now=slots.RETRY_S)) == ["A"]


def test_max_gpus_also_limits_groups(place: device_lease.Folder, opened: list[Slots]) -> None:
    some = FixedSlots(LeaseOptions(place, NOTE, etiquette=Etiquette(3)), [Slot("AB", "AB"), Slot("CD", "CD")])
    opened.append(some)
    (slot,) = taken(some, 2)
    assert slot.label == "CD"
    some.give(slot, 1.0)
    assert labels(taken(some, 2, now=1.0)) == ["CD"]


def test_max_gpus_also_limits_shares(place: device_lease.Folder, opened: list[Slots]) -> None:
    some = shared_slots(place, opened, Etiquette(1))
    found = taken(some, 5)
    assert len(found) == 4
    assert len(held(place)) == 1
    some.give(found[0], 1.0)
    assert labels(taken(some, 2, now=1.0)) == [found[0].label]


def test_keep_free_also_applies_to_shares(place: device_lease.Folder, opened: list[Slots], puppet: Make) -> None:
    other = puppet()
    other.ask("take A,B other")
    some = shared_slots(place, opened, Etiquette(None, 1, "ABCD"), most=2)
    assert len(taken(some, 3)) == 2
    assert len(held(place)) == 3
    assert some.ask_at <= slots.RETRY_S
    assert other.ask("release") == "released"
    assert len(taken(some, 5, now=slots.RETRY_S)) == 4
    assert len(held(place)) == 3


# -- slots that need no lease


def test_inherited_devices_are_used_without_a_lease(
    place: device_lease.Folder, opened: list[Slots], puppet: Make
) -> None:
    puppet().ask("take A,B runner")
    some = FixedSlots(LeaseOptions(place, NOTE), [Slot("B", "B"), Slot("A", "A")], granted="AB")
    opened.append(some)
    found = taken(some, 3)
    assert labels(found) == ["A", "B"]
    assert some.inherited(found[0]) == []
    some.give(found[0], 1.0)
    assert labels(taken(some, now=1.0)) == ["A"]
    some.close()
    assert held(place) == "AB"


def test_slots_without_a_device_need_no_lease(place: device_lease.Folder, opened: list[Slots]) -> None:
    some = FixedSlots(LeaseOptions(place, NOTE), [Slot((), "no GPU")] * 2)
    opened.append(some)
    assert labels(taken(some, 3)) == ["no GPU", "no GPU"]
    assert held(place) == ""
