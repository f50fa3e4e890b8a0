"""Devices drained by root: which marks count, and that nobody gets a lease of such a device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs.leases import device_lease, drains
from dibs.system.locks import Folder


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


def test_a_mark_gives_the_reason_until_it_is_removed(place: Folder) -> None:
    drains.mark(place, "FAKE-1", "fan is loud")
    drains.mark(place, "FAKE-2", "")
    assert drains.marks(place) == {"FAKE-1": "fan is loud", "FAKE-2": ""}
    drains.mark(place, "FAKE-1", "fan is gone")
    assert drains.reason(place, "FAKE-1") == "fan is gone"
    assert (drains.unmark(place, "FAKE-1"), drains.unmark(place, "FAKE-1")) == (True, False)
    assert drains.reason(place, "FAKE-1") is None


def test_without_the_folder_nothing_is_drained(place: Folder) -> None:
    assert (drains.marks(place), drains.reason(place, "FAKE-1")) == ({}, None)


def test_a_mark_is_world_readable_whatever_the_umask_of_root(place: Folder) -> None:
    mask = os.umask(0o077)
    try:
        drains.mark(place, "FAKE-1", "")
    finally:
        os.umask(mask)
    folder = Path(drains.folder(place))
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "FAKE-1")] == [0o755, 0o644]


def test_a_lease_of_a_drained_device_is_refused(place: Folder) -> None:
    drains.mark(place, "FAKE-1", "")
    with pytest.raises(device_lease.Refused, match="root has drained it") as refused:
        device_lease.take(place, ["FAKE-0", "FAKE-1"], device_lease.Note("1", "ann"))
    assert refused.value.why == "drained"
    # All or none: the other device is free again.
    device_lease.take(place, ["FAKE-0"], device_lease.Note("1", "ann"))[0].close()
    drains.unmark(place, "FAKE-1")
    device_lease.take(place, ["FAKE-1"], device_lease.Note("1", "ann"))[0].close()


def test_a_drain_leaves_a_current_holder_alone(place: Folder) -> None:
    (held,) = device_lease.take(place, ["FAKE-1"], device_lease.Note("1", "ann"))
    drains.mark(place, "FAKE-1", "")
    assert os.fstat(held.file_fd)
    held.close()


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o620])
def test_a_mark_that_others_can_write_is_ignored(place: Folder, mode: int) -> None:
    drains.mark(place, "FAKE-1", "")
    os.chmod(Path(drains.folder(place)) / "FAKE-1", mode)
    assert drains.marks(place) == {}


def test_a_folder_that_others_can_write_is_ignored(place: Folder) -> None:
    drains.mark(place, "FAKE-1", "")
    os.chmod(drains.folder(place), 0o777)
    assert drains.marks(place) == {}


def test_links_pipes_and_strange_names_are_ignored(place: Folder, tmp_path: Path) -> None:
    drains.mark(place, "FAKE-1", "")
    folder = Path(drains.folder(place))
    (folder / "FAKE-2").symlink_to(folder / "FAKE-1")
    os.mkfifo(folder / "FAKE-3", 0o644)
    (folder / "a b").write_text("")
    (folder / ".FAKE-4.77").write_text("")
    assert list(drains.marks(place)) == ["FAKE-1"]


def test_machine_wide_marks_are_below_run_and_not_in_the_lease_folder() -> None:
    assert {drains.folder(Folder(path)) for path in drains.STANDARD} == {"/run/dibs/drained"}


def test_the_reasons_of_root_and_of_the_user_are_both_shown(place: Folder) -> None:
    drains.mark(place, "FAKE-1", "fan")
    drained = drains.Drains(place, {"FAKE-1": "mine", "FAKE-2": ""})
    assert drained.now() == {"FAKE-1": "drained by root: fan", "FAKE-2": "drained by you"}
