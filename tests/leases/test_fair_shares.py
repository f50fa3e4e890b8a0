"""The order between users by device time and shares; and what an observer counts of others."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import lease_lab
from dibs.leases import device_lease, fair_shares, rules_file, tickets, usage_records
from dibs.leases.fair_shares import Position
from dibs.leases.lease_observer import WRITE_NS, LeaseObserver
from dibs.leases.rules_file import RulesFile
from dibs.leases.usage_records import DAY_S, Ledger
from dibs.system import locks
from dibs.system.locks import Folder
from lease_lab import needs_root

# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet
TODAY = int(time.time() // DAY_S)


def record_of(place: Folder, uid: int, hours: float, day: int = TODAY) -> None:
    """Write the record of a user; root's tests do it in the name of others."""
    ledger = Ledger()
    ledger.days[day] = hours * 3.6e6
    path = Path(place.line_file(f"{usage_records.USAGE}{uid}"))
    path.write_text(ledger.text())
    os.chown(path, uid, -1)
    path.chmod(0o644)


def rules(tmp_path: Path, text: str) -> RulesFile:
    path = tmp_path / "config.toml"
    path.write_text(text)
    path.chmod(0o644)
    return RulesFile(str(path))


def test_time_for_the_share_comes_before_the_last_turn() -> None:
    much, little, late = Position(900, 3), Position(400, 1), Position(300, 1, served_ns=7)
    assert sorted([much, little, late], key=lambda one: one.key) == [much, late, little]


@needs_root
def test_users_stand_by_time_share_and_age(place: Folder, tmp_path: Path) -> None:
    record_of(place, 61001, 30)
    record_of(place, 61002, 20)
    record_of(place, 61003, 100, TODAY - 6)
    found = fair_shares.of_users(place, rules(tmp_path, '[shares.user]\n"61001" = 3\n'), [61001, 61002, 61003, 61004])
    hours = {uid: (round(one.used_s / 3600, 3), one.share) for uid, one in found.items()}
    assert hours == {61001: (30, 3), 61002: (20, 1), 61003: (25, 1), 61004: (0, 1)}
    assert sorted(found, key=lambda uid: found[uid].key) == [61004, 61001, 61002, 61003]


@needs_root
def test_the_line_is_ordered_by_device_time(place: Folder, puppet) -> None:
    record_of(place, 61001, 2)
    record_of(place, 61002, 1)
    first, second, third = puppet(uid=61001), puppet(uid=61002), puppet(uid=61003)
    names = [one.ask("ticket 1 A") for one in (first, second, third)]
    assert [ticket.name for ticket in tickets.line(place)] == [names[2], names[1], names[0]]


@needs_root
def test_an_observer_counts_others_and_settles_ourselves(place: Folder, puppet) -> None:
    other = puppet(uid=61001)
    other.ask("take A")
    (lease,) = device_lease.take(place, ["B"], device_lease.Note("1"))
    observer = LeaseObserver(place)
    began = locks.boot_ns()
    assert not observer.look(now_ns=began)
    assert observer.look(now_ns=began + 2 * WRITE_NS)
    seen = usage_records.days_of_users(place, [61001])[61001]
    assert sum(seen.values()) >= 2 * WRITE_NS / 1e6
    assert sum(usage_records.read(place, os.geteuid()).days.values()) > 0
    lease.close()


def test_rules_are_read_again_when_they_change(tmp_path: Path) -> None:
    file = rules(tmp_path, "[shares.user]\nann = 3\n")
    if os.geteuid() != 0:
        assert file.now().user_shares == {}
        return
    assert file.now().user_shares == {"ann": 3}
    assert file.now() is file.now()
    rules(tmp_path, "[shares.user]\nann = 2\nben = 4\n")
    assert file.now().user_shares == {"ann": 2, "ben": 4}
    rules(tmp_path, "[shares.user]\nann = ???\n")
    assert file.now().user_shares == {"ann": 2, "ben": 4}
    (tmp_path / "config.toml").unlink()
    assert file.now().user_shares == {}


def test_groups_of_a_user_are_known() -> None:
    me = rules_file.person(os.geteuid())
    assert me.name in me.groups or me.groups
    assert rules_file.person(61999).groups == ()


@pytest.mark.parametrize("text", ["", "[quotas.user.nobody]\ngpus = 1\n"])
def test_quotas_of_others_do_not_bind_us(tmp_path: Path, text: str) -> None:
    found = rules_file.quotas(rules(tmp_path, text).now())
    assert [quota.gpus for _, quota in found if quota.gpus is not None] == []
