"""Which processes on a shared GPU are of nobody's share, told by real processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import wait_for
from dibs.devices import ownership
from dibs.leases import holders
from dibs.leases import keeper as lease_keeper
from dibs.leases.holders import Holder
from dibs.model.devices import Device, DeviceId, Process
from dibs.system import processes, users
from dibs.system.locks import Folder

CARD = Device(DeviceId("GPU-a"), 0, "A100", 24 * 2**30)


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


@pytest.fixture
def sharer() -> Iterator[int]:
    """The pid of one who has a share."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


def holder(pid: int | None, mib: int | None = 1024) -> Holder:
    return Holder(CARD.id, pid, os.getuid(), mib, {})


def outside(place: Folder, pid: int, *found: Holder) -> bool:
    """Tell whether a process of ours on the card is of nobody's share."""
    used = Device(CARD.id, 0, "A100", CARD.memory_total, processes=(Process(pid, users.own(), "python", 2**30),))
    told = ownership.outside(place, used, found)
    assert told <= {pid}
    return bool(told)


def test_what_was_started_beside_a_share_is_outside_and_what_is_below_it_is_not(
    place: Folder, sharer: int, stranger: int
) -> None:
    assert outside(place, stranger, holder(sharer))
    assert not outside(place, sharer, holder(sharer))
    # All of them are below this process.
    assert not outside(place, stranger, holder(sharer), holder(os.getpid()))


def test_whoever_has_it_alone_or_cannot_be_seen_may_use_it_with_any_process(
    place: Folder, sharer: int, stranger: int
) -> None:
    assert not outside(place, stranger)
    assert not outside(place, stranger, holder(sharer, None))
    assert not outside(place, stranger, holder(sharer), holder(None))


def test_one_that_is_gone_may_have_been_anybodys(place: Folder, sharer: int) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    assert not outside(place, gone.pid, holder(sharer))


def test_a_keeper_holds_for_all_that_its_owner_starts(place: Folder, stranger: int) -> None:
    pidfd = os.pidfd_open(os.getpid())
    words = lease_keeper.command(os.getpid(), place.path, [CARD.id], None, pidfd)
    with subprocess.Popen(words, pass_fds=[pidfd]) as keeper:
        os.close(pidfd)
        try:
            # For an instant a program that has just begun has no command line.
            wait_for(lambda: processes.words(keeper.pid) == words)
            assert not outside(place, stranger, holder(keeper.pid))
        finally:
            keeper.kill()


def test_who_has_inherited_the_lease_belongs_to_it_also_without_its_runner(place: Folder, sharer: int) -> None:
    lease = Path(holders.file(place, CARD.id))
    with lease.open("wb") as inherited, subprocess.Popen(["sleep", "1000"], stdin=inherited) as left:
        try:
            assert not outside(place, left.pid, holder(sharer))
        finally:
            left.kill()
