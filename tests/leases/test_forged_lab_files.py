"""Reservations, records of use and evictable marks that a hostile user plants: no harm, no other name, no long look."""

from __future__ import annotations

import json
import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lease_lab
from dibs import errors
from dibs.client.checks import leases as lease_checks
from dibs.foreground import reservation as reservation_maker
from dibs.leases import (
    allowances,
    device_lease,
    evictable_marks,
    fair_shares,
    holders,
    own_ticket,
    reservations,
    rules_file,
    served_records,
    usage_records,
)
from dibs.leases.device_lease import Folder
from dibs.leases.lease_observer import LeaseObserver
from dibs.leases.line import LinePlace
from dibs.leases.usage_records import DAY_S
from dibs.system import locks, processes, socket_owners
from lease_lab import Puppet, needs_root

# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet

ANN, BEN = 61001, 61002
ME = os.geteuid()
KINDS = ("link", "dangling link", "fifo", "folder", "socket", "huge", "private", "open")
NAMES = (usage_records.USAGE, usage_records.SEEN, served_records.SERVED, reservations.RESERVE)

Puppets = Callable[..., Puppet]


def plant(path: str, kind: str, uid: int) -> None:
    """Put something of this kind there, as its owner `uid` could."""
    if kind == "link":
        os.symlink("/etc/passwd", path)
    elif kind == "dangling link":
        os.symlink("/nowhere/at/all", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path)
    else:
        Path(path).write_text(json.dumps(reservation()))
        os.chmod(path, 0o600 if kind == "private" else 0o666 if kind == "open" else 0o644)
    if kind == "huge":
        os.truncate(path, 2**40)
    os.lchown(path, uid, -1)


def reservation(**more: Any) -> dict[str, Any]:
    said = {"uid": ANN, "from": time.time() - 60, "for": 3600.0, "every": "", "name": "", "devices": ["A", "B"]}
    return said | more


def reserve(place: Folder, file: str, owner: int, **more: Any) -> str:
    """Write a reservation by hand that `owner` made."""
    path = place.line_file(f"{reservations.RESERVE}{file}")
    Path(path).write_text(json.dumps(reservation(**more)))
    os.chown(path, owner, -1)
    return path


def record_use(place: Folder, uid: int, *rows: str, checksum: str | None = None) -> None:
    """Write a record of use by hand that `uid` owns."""
    body = f"{processes.boot_id()}\n" + "".join(f"{row}\n" for row in rows)
    path = Path(place.line_file(f"{usage_records.USAGE}{uid}"))
    path.write_text(f"{checksum or f'{zlib.crc32(body.encode()):08x}'}\n{body}")
    os.chown(path, uid, -1)


@pytest.fixture
def sockets() -> Iterator[Callable[[str], None]]:
    """Makes listening sockets, and closes them."""
    made: list[socket.socket] = []

    def listen(name: str) -> None:
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].bind("\0" + name)
        made[-1].listen()

    yield listen
    for one in made:
        one.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sockets about which the kernel was asked; each question costs all users time."""
    inodes: list[int] = []
    look_up = socket_owners.look_up
    monkeypatch.setattr(socket_owners, "look_up", lambda inode: inodes.append(inode) or look_up(inode))
    return inodes


# -- planted files --------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_file_of_any_kind_takes_no_device_away(place: Folder, puppet: Puppets, kind: str) -> None:
    paths = [place.line_file(f"{name}{ANN}") for name in NAMES[:-1]]
    paths.append(reservations.path_of(place, ANN, 1))
    for path in paths:
        plant(path, kind, BEN)
    ann = puppet(uid=ANN)
    assert ann.ask("take A") == "took"
    assert ann.ask("release") == "released"
    assert reservations.read_all(place, time.time()) == []
    assert usage_records.days_of_users(place, [ANN]) == {ANN: {}}
    assert usage_records.recorded_users(place) == []
    assert served_records.of_users(place, [ANN]) == {}
    assert set(lease_checks.forgeries(place)) == set(paths)


@needs_root
def test_the_doctor_names_who_planted_a_record_or_reservation(place: Folder) -> None:
    path = reserve(place, f"{ANN}-1", BEN)
    assert lease_checks.forgeries(place) == {path: f"{BEN} made it in the name of {ANN}"}


def test_a_link_planted_at_our_record_is_not_written_through(place: Folder) -> None:
    mine = Path(place.path, "mine")
    mine.write_text("important")
    for name in NAMES[:-1]:
        os.symlink(mine, place.line_file(f"{name}{ME}"))
    leases = device_lease.take(place, ["A"], device_lease.Note("1"))
    device_lease.release(place, leases)
    assert mine.read_text() == "important"


# -- reservations ---------------------------------------------------------------------------------------------------


@needs_root
def test_planted_names_do_not_use_up_the_reservations_of_another_user(place: Folder) -> None:
    reserve(place, f"{ANN}-7", ANN)
    for number in range(reservations.MOST_OF_USER + 1):
        reserve(place, f"{ANN}-0{number}", BEN)
        reserve(place, f"{ANN}-{100 + number}", BEN)
    assert [(one.uid, one.number) for one in reservations.read_all(place, time.time())] == [(ANN, 7)]


@needs_root
def test_a_later_reservation_of_the_same_device_does_not_count(place: Folder) -> None:
    """Written by hand: dibs refuses to make it."""
    now_s = time.time()
    reserve(place, f"{ANN}-1", ANN, devices=["A"])
    later = reserve(place, f"{BEN}-2", BEN, devices=["A", "B"])
    # The change time of a file is coarse.
    lease_lab.wait_for(
        "a later change time", lambda: _touch(later) > os.stat(reservations.path_of(place, ANN, 1)).st_ctime_ns
    )
    kept = reservations.kept(place, reservations.read_all(place, now_s), ["A", "B"], now_s, 900.0)
    assert set(reservations.closures(kept, ANN, now_s)) == {"B"}
    assert set(reservations.closures(kept, BEN, now_s)) == {"A"}


def _touch(path: str) -> int:
    os.chmod(path, 0o644)
    return os.stat(path).st_ctime_ns


@needs_root
def test_root_reserves_over_the_head_of_a_user(place: Folder) -> None:
    now_s = time.time()
    reserve(place, f"{BEN}-1", BEN, devices=["A"])
    reserve(place, "0-2", 0, devices=["A"], uid=ANN)
    kept = reservations.kept(place, reservations.read_all(place, now_s), ["A"], now_s, 900.0)
    assert (set(reservations.closures(kept, ANN, now_s)), set(reservations.closures(kept, BEN, now_s))) == (
        set(),
        {"A"},
    )


@needs_root
def test_root_does_not_cancel_another_reservation_because_of_a_second_one_with_its_number(place: Folder) -> None:
    for uid in (ANN, BEN):
        reserve(place, f"{uid}-1", uid)
    with pytest.raises(errors.Conflict, match=f"2 reservations have the number 1, of {ANN} and {BEN}.*Add --user"):
        reservation_maker.find(place, 1, time.time())
    reserve(place, "65534-1", 65534)
    assert reservation_maker.find(place, 1, time.time(), user="nobody").uid == 65534


@needs_root
def test_a_name_cannot_control_the_terminal_or_add_a_line(place: Folder) -> None:
    reserve(place, f"{BEN}-1", BEN, name="x)\ndibs: root says\x1b[2J \u202eevil")
    (one,) = reservations.read_all(place, time.time())
    assert one.name == "x)?dibs: root says?[2J ?evil"


@needs_root
def test_reservations_of_unknown_devices_cost_one_look_at_the_leases(
    place: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They began long ago, so that each reader asks whether they are unused."""
    # The machine was booted before that: a boot counts as use.
    boot_ns = locks.boot_ns
    monkeypatch.setattr(locks, "boot_ns", lambda: boot_ns() + DAY_S * 10**9)
    since_s = time.time() - 3000
    for number in range(reservations.MOST_OF_USER):
        devices = ["A", *(f"X{number}-{each}" for each in range(100))]
        reserve(place, f"{BEN}-{number}", BEN, devices=devices, **{"from": since_s})
    looks: list[list[str]] = []
    held = holders.held
    monkeypatch.setattr(holders, "held", lambda place, devices: looks.append([*devices]) or held(place, looks[-1]))
    waiting = [own_ticket.queue_up(place, 1, ["A", "B"]) for _ in range(4)]
    (others, _) = LinePlace(place, 3600.0).around(["A", "B"])
    assert [ticket.devices for ticket in others] == [("A", "B")] * 4
    assert looks == [["A"]]
    assert reservations.closed_to_us(place, ["A"]) == {}
    assert looks == [["A"], ["A"]]
    for one in waiting:
        one.close()


# -- records of use -------------------------------------------------------------------------------------------------


@needs_root
def test_impossible_days_of_a_record_are_ignored(place: Folder) -> None:
    today = int(time.time() // DAY_S)
    rows = [f"day {day} 5000000" for day in (today, today + 1, today + 3, today - 100, 10**17, 0)]
    record_use(place, BEN, *rows, f"day {today - 1} {10**17}", *(f"hold {n} A 0 1000" for n in range(3000)))
    days = usage_records.days_of_users(place, [BEN])[BEN]
    assert days == {today: 5000.0, today + 1: 5000.0, today - 1: usage_records.MOST_DAY_MS}
    assert len(usage_records.read(place, BEN).holds) == usage_records.MOST_HOLDS


@needs_root
def test_records_in_the_names_of_others_make_no_user(place: Folder) -> None:
    today = int(time.time() // DAY_S)
    record_use(place, BEN, f"day {today} 5000000")
    for uid in (ANN, *range(70000, 70100)):
        record_use(place, uid, f"day {today} 900000000000")
        os.chown(place.line_file(f"{usage_records.USAGE}{uid}"), BEN, -1)
    assert usage_records.recorded_users(place) == [BEN]
    positions = fair_shares.of_users(place, rules_file.rules_of_folder(place), [ANN, BEN])
    assert (positions[ANN].used_s, positions[BEN].used_s) == (0.0, 5.0)


@needs_root
def test_a_record_that_is_never_whole_is_read_once(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a record that is just being written, readers wait for the end."""
    record_use(place, BEN, "day 20000 1", checksum="00000000")
    reads: list[str] = []
    read_small = locks.read_small
    monkeypatch.setattr(locks, "read_small", lambda path, **more: reads.append(path) or read_small(path, **more))
    monkeypatch.setattr(usage_records, "WRITTEN_S", -1.0)
    assert usage_records.read(place, BEN).days == {}
    assert len(reads) == 1
    monkeypatch.setattr(usage_records, "WRITTEN_S", 3600.0)
    assert usage_records.read(place, BEN).days == {}
    assert len(reads) == 1 + usage_records.TRIES


# -- evictable marks and bells --------------------------------------------------------------------------------------


@needs_root
def test_a_mark_of_another_user_makes_nobody_evictable(place: Folder, puppet: Puppets) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    assert ann.ask("take A 7") == "took"
    ben.ask(f"listen {place.prefix}.evictable.A")
    (holder,) = holders.survey(place, ["A"])["A"]
    assert (holder.uid, holder.is_evictable) == (ANN, False)
    assert allowances.holders_of(place) == {"A": {ANN}}


def test_marks_without_end_are_not_examined(place: Folder, sockets: Callable[[str], None], asked: list[int]) -> None:
    (lease,) = device_lease.take(place, ["A"], device_lease.Note("7", is_evictable=True))
    (mark,) = evictable_marks.put(place, ["A"])
    for number in range(200):
        sockets(f"{place.prefix}.evictable.X{number}")
    asked.clear()
    assert evictable_marks.marked(place, ["A", "B"]) == {"A": ME}
    assert len(asked) == 1
    asked.clear()
    assert holders.survey(place, ["A"])["A"][0].is_evictable
    assert allowances.holders_of(place) == {}
    assert len(asked) < 20
    os.close(mark)
    lease.close()


def test_leases_without_end_of_made_up_devices_are_not_all_examined(
    place: Folder, sockets: Callable[[str], None], asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "MOST_LEASES", 20)
    for number in range(60):
        sockets(f"{place.prefix}.gpu.X{number}")
    allowances.holders_of(place)
    assert len(asked) == 20
    LeaseObserver(place).look()
    assert len(asked) == 40


def test_a_new_ticket_rings_the_bell_of_an_evictable_job_whatever_others_hang_up(
    place: Folder, sockets: Callable[[str], None]
) -> None:
    (lease,) = device_lease.take(place, ["A"], device_lease.Note("7", is_evictable=True))
    (mark,) = evictable_marks.put(place, ["A"])
    for number in range(500):
        sockets(f"{place.prefix}.bell.{4242 + number}-1")
    bell = evictable_marks.hang_bell(place)
    assert bell is not None
    own_ticket.queue_up(place, 1, ["A"]).close()
    rung = socket.socket(fileno=bell)
    rung.accept()[0].close()
    rung.close()
    os.close(mark)
    lease.close()


def test_what_an_evictable_job_holds_is_not_seen_as_device_time_of_its_user(
    place: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in its own record: it counts as nobody's share."""
    ordinary, evictable = (
        device_lease.take(place, ["A"], device_lease.Note("1")),
        device_lease.take(place, ["B"], device_lease.Note("2", is_evictable=True)),
    )
    (mark,) = evictable_marks.put(place, ["B"])
    # Look as another user would.
    monkeypatch.setattr(os, "geteuid", lambda: ME + 4242)
    observer = LeaseObserver(place)
    observer.look(now_ns=10**9)
    observer.look(now_ns=3 * 10**9)
    assert observer.people == {ME: pytest.approx(2000.0)}
    monkeypatch.undo()
    os.close(mark)
    for lease in (*ordinary, *evictable):
        lease.close()
