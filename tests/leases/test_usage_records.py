"""The record of who had devices for how long: what is counted, what survives, and whom it believes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs.leases import device_lease, usage_records
from dibs.leases.usage_records import DAY_S, Hold, Ledger, OwnRecord
from dibs.system import locks
from dibs.system.locks import Folder

NOTE = device_lease.Note("1")
ME = os.geteuid()
DAY = 20_000


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    tmp_path.chmod(0o1777)
    return Folder(str(tmp_path))


def test_a_lease_counts_while_it_lasts_and_when_it_has_ended(place: Folder) -> None:
    leases = device_lease.take(place, ["FAKE-0", "FAKE-1"], NOTE)
    ledger = usage_records.read(place, ME)
    assert {hold.device: hold.part for hold in ledger.holds.values()} == {"FAKE-0": 1000, "FAKE-1": 1000}
    assert sum(usage_records.days_of_users(place, [ME])[ME].values()) > 0
    device_lease.release(place, leases)
    ledger = usage_records.read(place, ME)
    assert ledger.holds == {}
    assert 0 < sum(ledger.days.values()) < 60_000


def test_a_share_counts_as_its_part_of_the_device(place: Folder) -> None:
    lease = device_lease.take_shared(place, "FAKE-0", 6 * 1024, 24 * 1024, 4, NOTE)
    assert [hold.part for hold in usage_records.read(place, ME).holds.values()] == [250]
    lease.close()


def test_time_is_split_at_midnight() -> None:
    ledger = Ledger()
    ledger.add(5 * 10**9, DAY * DAY_S + 2.0, 0, usage_records.WHOLE)
    assert ledger.days == {DAY - 1: 3000.0, DAY: 2000.0}


def test_a_lease_whose_holder_died_stops_counting(place: Folder) -> None:
    with OwnRecord(place) as own:
        own.began({4_000_000_000: "FAKE-0"})
    assert usage_records.days_of_users(place, [ME])[ME] == {}
    with OwnRecord(place) as own:
        own.settle((), locks.boot_ns())
    assert len(usage_records.read(place, ME).holds) == 1
    with OwnRecord(place) as own:
        own.settle((), locks.boot_ns() + 2 * usage_records.SLACK_NS)
    assert usage_records.read(place, ME).holds == {}


def test_what_lasts_is_settled_without_counting_it_twice(place: Folder) -> None:
    ledger = Ledger()
    ledger.holds[7] = Hold("FAKE-0", 0)
    now_ns, wall_s = 10 * 10**9, DAY * DAY_S + 100.0
    assert ledger.now(now_ns, wall_s, {7}) == {DAY: 10_000.0}
    assert ledger.now(now_ns, wall_s, ()) == {}
    (lease,) = device_lease.take(place, ["FAKE-0"], NOTE)
    with OwnRecord(place) as own:
        own.settle({lease.inode}, locks.boot_ns())
    settled = usage_records.read(place, ME)
    assert list(settled.holds) == [lease.inode]
    assert sum(settled.days.values()) > 0
    lease.close()


def test_a_short_lease_is_recorded_once_when_it_ends(place: Folder) -> None:
    (lease,) = device_lease.take(place, ["FAKE-0"], NOTE, is_recorded=False)
    assert usage_records.recorded_users(place) == []
    lease.since_ns -= 5 * 10**9
    device_lease.release(place, [lease])
    recorded = usage_records.read(place, ME)
    assert recorded.holds == {}
    assert sum(recorded.days.values()) >= 5000


def test_a_lease_that_lasts_is_recorded_from_its_beginning(place: Folder) -> None:
    (lease,) = device_lease.take(place, ["FAKE-0"], NOTE, is_recorded=False)
    began_ns = lease.since_ns
    for _ in range(2):
        device_lease.record_beginning(place, [lease])
    assert usage_records.read(place, ME).holds[lease.inode].since_ns == began_ns
    device_lease.release(place, [lease])
    assert usage_records.read(place, ME).holds == {}


def test_a_torn_or_foreign_record_does_not_count(place: Folder) -> None:
    with OwnRecord(place) as own:
        own.restore({DAY: 5000.0})
    path = Path(place.line_file(f"{usage_records.USAGE}{ME}"))
    assert usage_records.read(place, ME).days == {DAY: 5000.0}
    path.write_text(path.read_text().replace("5000000", "9000000"))
    assert usage_records.read(place, ME).days == {}
    with OwnRecord(place) as own:
        own.restore({DAY: 5000.0})
    path.chmod(0o666)
    assert usage_records.read(place, ME).days == {}


def test_the_larger_of_recorded_and_seen_counts_for_others_only(place: Folder) -> None:
    with OwnRecord(place) as own:
        own.see({ME: 1e6, 4242: 7000.0}, DAY * DAY_S)
        own.see({4242: 500.0}, DAY * DAY_S)
    found = usage_records.days_of_users(place, [ME, 4242], DAY * DAY_S)
    assert found == {ME: {}, 4242: {DAY: 7500.0}}


def test_older_time_counts_less() -> None:
    days = {DAY: 1000.0, DAY - 3: 1000.0, DAY - 6: 1000.0}
    assert usage_records.decayed_s(days, 3 * DAY_S, DAY * DAY_S) == pytest.approx(1.75)
    assert usage_records.in_week_s({**days, DAY - 7: 9e9}, DAY * DAY_S) == 3.0


def test_two_months_are_kept(place: Folder) -> None:
    with OwnRecord(place) as own:
        own.restore({DAY + number: 1000.0 for number in range(100)})
    assert sorted(usage_records.read(place, ME).days) == list(range(DAY + 100 - usage_records.MOST_DAYS, DAY + 100))


def test_a_record_without_its_lock_is_left_alone(place: Folder) -> None:
    """A planted file must not stop anybody from getting a device."""
    os.mkdir(place.line_file(f"{usage_records.SEEN}{ME}"))
    with OwnRecord(place) as own:
        assert not own.is_locked
        own.began({1: "FAKE-0"})
    for lease in device_lease.take(place, ["FAKE-0"], NOTE):
        lease.close()
    assert usage_records.recorded_users(place) == []
    assert locks.names(place, usage_records.USAGE) == []


def test_short_leases_are_recorded_together_before_they_add_up(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = locks.boot_ns()
    monkeypatch.setattr(locks, "boot_ns", lambda: now_ns)
    short = usage_records.ShortLeases()
    for spent_ms, total_ms in ((5, 0), (14, 0), (2, 21), (1, 21)):
        (lease,) = device_lease.take(place, ["FAKE-0"], NOTE, is_recorded=False)
        now_ns += spent_ms * 10**6
        device_lease.release(place, [lease], short)
        assert sum(usage_records.read(place, ME).days.values()) == pytest.approx(total_ms)
    assert short
    assert not short.are_many
    with OwnRecord(place) as own:
        short.move_to(own)
    assert not short
    assert sum(usage_records.read(place, ME).days.values()) == pytest.approx(22)


def test_a_recorded_lease_takes_short_ones_before_it_into_the_record(place: Folder) -> None:
    short = usage_records.ShortLeases()
    (lease,) = device_lease.take(place, ["FAKE-0"], NOTE, is_recorded=False)
    device_lease.release(place, [lease], short)
    assert short
    (lease,) = device_lease.take(place, ["FAKE-0"], NOTE)
    device_lease.release(place, [lease], short)
    assert not short
    assert usage_records.read(place, ME).holds == {}
