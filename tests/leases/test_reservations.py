"""Reservations as files: whose they are, when they apply, to whom a device is closed, and when it is released."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from dibs.leases import device_lease, reservations
from dibs.leases.reservations import Reservation
from dibs.system.locks import Folder
from lease_lab import needs_root

#: Not in the past: nothing is unused since before the machine was booted.
NOW = 1_999_944_000.0
HOUR, DAY = 3600.0, 86400.0
ME = os.geteuid()
NOTE = device_lease.Note("1")


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    tmp_path.chmod(0o1777)
    return Folder(str(tmp_path))


def draft(from_s: float = NOW + HOUR, for_s: float = HOUR, **more: object) -> Reservation:
    return Reservation(0, ME, more.pop("uid", ME), ("FAKE-0", "FAKE-1"), from_s, for_s, **more)  # type: ignore[arg-type]


def closures(
    place: Folder, found: list[Reservation], uid: int, now_s: float, unused_for_s: float
) -> dict[str, reservations.Closure]:
    kept = reservations.kept(place, found, ["FAKE-0", "FAKE-1"], now_s, unused_for_s)
    return reservations.closures(kept, uid, now_s)


def closed(place: Folder, uid: int, now_s: float, unused_for_s: float = 900.0) -> dict[str, tuple[float, float]]:
    found = closures(place, reservations.read_all(place, now_s), uid, now_s, unused_for_s)
    return {device: (one.at_s - NOW, one.until_s - NOW) for device, one in found.items()}


def test_a_reservation_is_read_as_it_was_made(place: Folder) -> None:
    assert (reservations.make(place, draft(name="course")), reservations.make(place, draft(NOW))) == (1, 2)
    first, second = reservations.read_all(place, NOW)
    assert (first.number, second.number) == (2, 1)
    assert (second.uid, second.devices, second.name) == (ME, ("FAKE-0", "FAKE-1"), "course")
    reservations.cancel(place, first)
    assert [one.number for one in reservations.read_all(place, NOW)] == [1]


def test_it_closes_devices_from_its_begin_on_to_others_and_until_then_to_all(place: Folder) -> None:
    reservations.make(place, draft())
    both = {"FAKE-0": (HOUR, 2 * HOUR), "FAKE-1": (HOUR, 2 * HOUR)}
    assert closed(place, 4242, NOW) == closed(place, 4242, NOW + HOUR + 60) == both
    assert closed(place, ME, NOW) == {"FAKE-0": (HOUR, HOUR), "FAKE-1": (HOUR, HOUR)}
    assert closed(place, ME, NOW + HOUR + 60) == closed(place, 4242, NOW + 2 * HOUR) == {}


def test_it_is_repeated_at_the_same_time_of_the_day() -> None:
    weekly = draft(every="week", made_s=NOW)
    for week in range(4):
        begin, end = weekly.window(NOW + HOUR + week * 7 * DAY) or (0, 0)
        assert time.localtime(begin)[2:5] == time.localtime(NOW + HOUR + week * 7 * DAY)[2:5]
        assert end - begin == HOUR
    assert (weekly.window(NOW + 2 * HOUR) or (0, 0))[0] - NOW == pytest.approx(HOUR + 7 * DAY, abs=HOUR)
    assert draft().window(NOW + 2 * HOUR) is None


def test_a_users_repetition_ends_and_roots_does_not() -> None:
    late = NOW + 60 * DAY
    mine = Reservation(1, 4242, 4242, ("FAKE-0",), NOW, HOUR, "day", "", NOW)
    assert mine.window(NOW + 30 * DAY) is not None
    assert mine.window(late) is None
    mine.owner = 0
    assert mine.window(late) is not None


def test_unused_devices_are_released(place: Folder) -> None:
    reservations.make(place, draft(NOW))
    assert closed(place, 4242, NOW + 899) == {"FAKE-0": (0, HOUR), "FAKE-1": (0, HOUR)}
    assert closed(place, 4242, NOW + 900) == {}
    begin = time.time()
    reservations.cancel(place, reservations.read_all(place, NOW)[0])
    reservations.make(place, draft(begin))
    # A device that is used, or was until just now, stays reserved.
    leases = device_lease.take(place, ["FAKE-0"], NOTE)
    found = reservations.read_all(place, begin)
    assert set(closures(place, found, 4242, begin + 1000, 900)) == {"FAKE-0"}
    device_lease.release(place, leases)
    assert set(closures(place, found, 4242, begin + 1000, 900)) == set()
    assert set(closures(place, found, 4242, time.time() + 800, 900)) == {"FAKE-0", "FAKE-1"}


def test_the_next_change_is_known(place: Folder) -> None:
    found = [draft()]
    assert reservations.next_change_s(found, NOW, 900) == NOW + HOUR
    assert reservations.next_change_s(found, NOW + HOUR, 900) == NOW + HOUR + 900
    assert reservations.next_change_s(found, NOW + HOUR + 900, 900) == NOW + 2 * HOUR
    assert reservations.next_change_s(found, NOW + 2 * HOUR, 900) is None


@needs_root
def test_nobody_reserves_for_another_or_without_bounds(place: Folder) -> None:
    def plant(number: int, owner: int = 61001, **said: object) -> None:
        path = Path(reservations.path_of(place, owner, number))
        path.write_text(json.dumps({
            "uid": owner, "from": NOW, "for": HOUR, "every": "", "name": "", "devices": ["FAKE-0"], **said,
        }))  # fmt: skip
        os.chown(path, owner, -1)
        path.chmod(0o644)

    plant(1, uid=0)
    plant(2, **{"for": 25 * HOUR})
    plant(3, **{"from": NOW + 8 * DAY})
    plant(4, devices=["../../etc/passwd"])
    plant(5, **{"from": "soon"})
    plant(6, every="hour")
    Path(reservations.path_of(place, 61002, 7)).write_text("{}")
    assert [(one.number, one.uid) for one in reservations.read_all(place, NOW)] == [(1, 61001)]
    for number in range(10, 30):
        plant(number)
    assert len(reservations.read_all(place, NOW)) <= reservations.MOST_OF_USER


@needs_root
def test_a_reserved_device_cannot_be_taken_by_others(place: Folder) -> None:
    reservations.make(place, draft(time.time() - 1, uid=4242))
    with pytest.raises(device_lease.Refused, match="reserved for 4242 until"):
        device_lease.take(place, ["FAKE-0"], NOTE)
