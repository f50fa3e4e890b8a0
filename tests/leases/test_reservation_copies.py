"""Reservations after a reboot: what the lease folder lost is put back, except what was cancelled or is over."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dibs.leases import reservation_copies, reservations
from dibs.leases.reservations import Reservation
from dibs.system.locks import Folder
from lease_lab import needs_root

NOW = 1_999_944_000.0
HOUR = 3600.0
ME = os.geteuid()


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    return folder(tmp_path / "leases")


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def folder(path: Path) -> Folder:
    path.mkdir(parents=True)
    path.chmod(0o1777)
    return Folder(str(path))


def make(place: Folder, home: str, **more: float | str) -> Reservation:
    """Make a reservation with its copy, as `dibs reserve` does."""
    said = {"from_s": NOW + HOUR, "for_s": HOUR, "made_s": 1000.0} | more
    one = Reservation(0, ME, ME, ("FAKE-0",), **said)  # type: ignore[arg-type]
    one.number = reservations.make(place, one)
    reservation_copies.keep(place, home, one)
    return one


def reboot(place: Folder) -> None:
    """Empty the lease folder."""
    for path in Path(place.line_path).iterdir():
        path.unlink()


def listed(place: Folder, now_s: float = NOW) -> list[int]:
    return [one.number for one in reservations.read_all(place, now_s)]


def copies(home: str) -> list[str]:
    return sorted(os.listdir(f"{home}/{reservation_copies.COPIES}"))


def test_a_lost_reservation_is_put_back_as_it_was(place: Folder, home: str) -> None:
    """With the time at which it was made: a repetition ends when it would have ended without the reboot."""
    make(place, home)
    second = make(place, home, from_s=NOW + 5 * HOUR, every="week", name="course")
    reservation_copies.cancel(place, home, reservations.read_all(place, NOW)[0])
    reboot(place)
    assert reservation_copies.restore(place, home, NOW) == [2]
    (back,) = reservations.read_all(place, NOW)
    assert (back.number, back.from_s, back.every, back.name, back.devices, back.made_s) == (
        2, second.from_s, "week", "course", ("FAKE-0",), 1000.0,
    )  # fmt: skip
    assert reservation_copies.restore(place, home, NOW) == [], "it is there"


def test_what_was_cancelled_does_not_come_back(place: Folder, home: str) -> None:
    reservation_copies.cancel(place, home, make(place, home))
    assert reservation_copies.restore(place, home, NOW) == listed(place) == copies(home) == []


def test_what_is_over_does_not_come_back(place: Folder, home: str) -> None:
    make(place, home)
    make(place, home, every="day")
    reboot(place)
    assert reservation_copies.restore(place, home, NOW + 3 * HOUR) == [2]
    assert copies(home) == [f"{place.prefix}-2"]


def test_a_copy_of_another_lease_folder_stays_where_it_is(place: Folder, home: str, tmp_path: Path) -> None:
    make(place, home)
    assert reservation_copies.restore(folder(tmp_path / "other"), home, NOW) == []
    assert copies(home) == [f"{place.prefix}-1"]


def test_a_number_that_somebody_has_got_meanwhile_is_replaced(place: Folder, home: str) -> None:
    make(place, home, name="mine")
    reboot(place)
    Path(place.line_file(f"{reservations.RESERVE}4242-1")).write_text("{}")
    assert reservation_copies.restore(place, home, NOW) == [2]
    assert copies(home) == [f"{place.prefix}-2"]
    assert [one.name for one in reservations.read_all(place, NOW)] == ["mine"]


def test_a_damaged_copy_is_not_put_back(place: Folder, home: str) -> None:
    make(place, home)
    reboot(place)
    copy = Path(home, reservation_copies.COPIES, f"{place.prefix}-1")
    for text in ("", "[]", "{}", json.dumps(json.loads(copy.read_text()) | {"made": "long ago"})):
        copy.write_text(text)
        assert reservation_copies.restore(place, home, NOW) == []
    assert listed(place) == []


@needs_root
def test_roots_are_read_where_a_reboot_leaves_them(tmp_path: Path, home: str) -> None:
    place = folder(tmp_path / "run" / "dibs")
    make(place, home)
    reboot(place)
    assert listed(place) == [1]
    assert not os.path.exists(home)
    # Its number stays its own.
    second = make(place, home)
    assert (second.number, listed(place)) == (2, [1, 2])
    reservation_copies.cancel(place, home, second)
    assert listed(place) == [1]
    planted = tmp_path / "var" / "lib" / "dibs" / f"{reservations.RESERVE}0-1"
    os.chown(planted, 4242, -1)
    assert listed(place) == []


@needs_root
def test_roots_are_removed_when_they_are_over(tmp_path: Path, home: str) -> None:
    place = folder(tmp_path / "run" / "dibs")
    make(place, home)
    reboot(place)
    reservations.remove_ended(place, NOW + 3 * HOUR)
    assert os.listdir(tmp_path / "var" / "lib" / "dibs") == []


def test_over_ones_do_not_count_among_those_that_a_user_may_have(place: Folder, home: str) -> None:
    """Nobody removed them before, and the ninth was ignored."""
    for _ in range(reservations.MOST_OF_USER):
        make(place, home, from_s=1000.0)
    assert make(place, home).number == 1
    assert listed(place) == [1]
