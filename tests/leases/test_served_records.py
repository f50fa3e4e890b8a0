"""Records of who was served: only what the user alone can have written counts, and times cannot be forged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lease_lab
from dibs.leases import served_records
from dibs.system import locks, processes
from lease_lab import needs_root

# pytest finds fixtures by their names in this module.
place = lease_lab.place


def write(place: locks.Folder, uid: int, boot_ns: int, mode: int = 0o644) -> Path:
    """Write a record of a user; root's tests do it in the name of others."""
    path = Path(place.line_file(f"{served_records.SERVED}{uid}"))
    path.write_text(f"{processes.boot_id()} {boot_ns:0{served_records.BOOT_NS_DIGITS}d}\n")
    os.chown(path, uid, -1)
    path.chmod(mode)
    return path


def test_a_user_who_got_a_device_is_recorded(place):
    before = locks.boot_ns()
    served_records.mark(place)
    assert before <= served_records.of_users(place, [os.geteuid()])[os.geteuid()] <= locks.boot_ns()


def test_a_record_is_never_older_than_its_file(place):
    """A user who writes an early time would always come first."""
    write(place, os.geteuid(), 5)
    served = served_records.of_users(place, [os.geteuid()])[os.geteuid()]
    assert served >= locks.boot_ns() - 60 * 10**9


def test_a_record_is_never_in_the_future(place):
    write(place, os.geteuid(), 10**19)
    assert served_records.of_users(place, [os.geteuid()])[os.geteuid()] <= locks.boot_ns()


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_record_that_others_can_write_is_ignored(place, mode):
    write(place, os.geteuid(), 5, mode)
    assert served_records.of_users(place, [os.geteuid()]) == {}


@needs_root
def test_a_link_to_a_lease_file_of_a_user_is_not_their_record(place):
    """Lease files belong to the user who came first, and all may write and link them: that put their owner last."""
    lease = write(place, 61001, 10**18, 0o1666)
    lease.rename(place.file(".dibs-lease-A"))
    os.link(place.file(".dibs-lease-A"), place.line_file(f"{served_records.SERVED}61001"))
    assert served_records.of_users(place, [61001]) == {}
    os.unlink(place.file(".dibs-lease-A"))
    assert served_records.of_users(place, [61001]) == {}


@needs_root
def test_a_record_made_by_another_user_is_ignored(place):
    path = write(place, 61001, 5)
    path.rename(place.line_file(f"{served_records.SERVED}61002"))
    assert served_records.of_users(place, [61001, 61002]) == {}
