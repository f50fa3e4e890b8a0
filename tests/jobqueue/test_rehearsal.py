"""What the start of a job needs is tried without a job: trouble is named, and nothing stays."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.jobqueue import backoff


def test_a_healthy_machine_refuses_nothing_and_nothing_is_left(tmp_path: Path) -> None:
    assert backoff.find_trouble([str(tmp_path), str(tmp_path)]) is None
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, with little space and few inodes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=8", "dibs-test", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_without_space_is_named_until_there_is_some(disk: Path) -> None:
    (disk / "filler").write_bytes(bytes(64 * 1024))
    assert backoff.find_trouble([str(disk)]) == "No space left on device"
    assert [path.name for path in disk.iterdir()] == ["filler"]
    (disk / "filler").unlink()
    assert backoff.find_trouble([str(disk)]) is None


def test_a_disk_without_inodes_is_named(disk: Path) -> None:
    while os.statvfs(disk).f_ffree:
        (disk / f"filler.{len(list(disk.iterdir()))}").touch()
    assert str(backoff.find_trouble([str(disk)])).startswith(f"No space left on device ({disk}/")


def test_a_missing_interpreter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/python")
    assert backoff.find_trouble([]) == f"No such file or directory ({tmp_path}/python)"


def test_a_limit_of_descriptors_is_named(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The next file would get the lowest free number.
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        told = str(backoff.find_trouble([str(tmp_path)]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert told.startswith("Too many open files")
