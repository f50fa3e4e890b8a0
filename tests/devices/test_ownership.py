"""Which processes on a shared GPU belong to no share, tested with real processes."""

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
    """Return the pid of a process that holds a share."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


def holder(pid: int | None, mib: int | None = 1024) -> Holder:
    return Holder(CARD.id, pid, os.getuid(), mib, {})


def outside(place: Folder, pid: int, *found: Holder) -> bool:
    """Return whether a process of ours on the card belongs to no share."""
    used = Device(CARD.id, 0, "A100", CARD.memory_total, processes=(Process(pid, users.own(), "python", 2**30),))
    told = ownership.outside(place, used, found)
    assert told <= {pid}
    return bool(told)


def test_a_process_started_beside_a_share_is_outside_and_its_children_are_not(
    place: Folder, sharer: int, stranger: int
) -> None:
    assert outside(place, stranger, holder(sharer))
    assert not outside(place, sharer, holder(sharer))
    # All of them are children of this process.
    assert not outside(place, stranger, holder(sharer), holder(os.getpid()))


def test_an_exclusive_or_invisible_holder_may_use_the_gpu_with_any_process(
    place: Folder, sharer: int, stranger: int
) -> None:
    assert not outside(place, stranger)
    assert not outside(place, stranger, holder(sharer, None))
    assert not outside(place, stranger, holder(sharer), holder(None))


def test_a_process_that_has_exited_is_not_outside(place: Folder, sharer: int) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    assert not outside(place, gone.pid, holder(sharer))


def test_a_lease_keeper_holds_for_all_processes_of_its_owner(place: Folder, stranger: int) -> None:
    pidfd = os.pidfd_open(os.getpid())
    words = lease_keeper.command(os.getpid(), place.path, [CARD.id], None, pidfd)
    with subprocess.Popen(words, pass_fds=[pidfd]) as keeper:
        os.close(pidfd)
        try:
            # A program that has just started has no command line for an instant.
            wait_for(lambda: processes.words(keeper.pid) == words)
            assert not outside(place, stranger, holder(keeper.pid))
        finally:
            keeper.kill()


def test_a_process_that_inherited_the_lease_belongs_to_it_even_without_its_runner(place: Folder, sharer: int) -> None:
    lease = Path(holders.file(place, CARD.id))
    with lease.open("wb") as inherited, subprocess.Popen(["sleep", "1000"], stdin=inherited) as left:
        try:
            assert not outside(place, left.pid, holder(sharer))
        finally:
            left.kill()
