"""Where a file system puts new folders."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from dibs.system import disk


def flags(folder: Path) -> int:
    """Return the flags of a folder as the kernel has them; 0 where a file system has none."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        return int.from_bytes(fcntl.ioctl(fd, disk.GET_FLAGS, bytes(8))[:4], sys.byteorder)
    except OSError:
        return 0
    finally:
        os.close(fd)


def test_a_folder_is_spread_where_there_is_no_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_lacks_journal", lambda device: True)
    before = flags(tmp_path)
    for _ in range(2):
        can = disk.spread(tmp_path)
        assert flags(tmp_path) == (before | disk.TOP if can else before)


def test_a_file_system_with_a_journal_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_lacks_journal", lambda device: False)
    before = flags(tmp_path)
    assert not disk.spread(tmp_path)
    assert flags(tmp_path) == before


def test_a_file_system_without_flags_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object) -> bytes:
        raise OSError(25, "Inappropriate ioctl for device")

    monkeypatch.setattr(disk, "_lacks_journal", lambda device: True)
    monkeypatch.setattr(fcntl, "ioctl", refuse)
    assert not disk.spread(tmp_path)


def test_a_device_that_holds_no_ext4_lacks_no_journal() -> None:
    assert not disk._lacks_journal(os.stat("/proc").st_dev)


def test_a_missing_folder_is_not_spread(tmp_path: Path) -> None:
    assert not disk.spread(tmp_path / "nowhere")
