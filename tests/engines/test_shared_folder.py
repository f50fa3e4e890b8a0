"""The folder that the nodes of a cluster share: it holds our code and our orders, so it must be ours."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

import build
from dibs.engines import node_code
from dibs.engines.protocol import Needs, Start, Unavailable
from dibs.engines.remote_starts import Packer
from dibs.system.configuration.engines import EngineSettings


def packer(shared: Path) -> Packer:
    nothing: Any = None
    return Packer(EngineSettings("night", shared=shared), nothing, nothing, "me", nothing)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
@pytest.mark.parametrize("step", ["", "deeper"])
def test_a_shared_folder_of_another_user_is_not_used(tmp_path: Path, step: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 61002, -1)
    with pytest.raises(Unavailable, match=r"expected a folder of yours, but .*theirs belongs to another user"):
        packer(theirs / step).prepare()
    assert list(theirs.rglob("*.py")) == []


def test_a_shared_folder_that_all_can_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(Unavailable, match="expected a folder of yours"):
        packer(tmp_path / "open").prepare()


def test_the_folder_is_for_its_owner(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    root = packer(shared).prepare()
    assert root == node_code.root_in(shared)
    assert shared.stat().st_mode & 0o077 == 0


def test_a_full_disk_does_not_become_fuller_with_each_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []

    def write_bytes(path: Path, content: bytes) -> int:
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        path.touch()
        return 0

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(Unavailable, match="No space left on device"):
        packer(tmp_path / "shared").prepare()
    assert len(written) == 3
    assert list((tmp_path / "shared" / "code").iterdir()) == []


def test_a_claim_is_as_old_as_the_clock_of_the_file_server_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is slow must not make a claim look like that of an older job, or the job would run twice."""
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "started.1").touch()
    slow, set_times = time.time() - 300, os.utime
    set_times(folder / "started.1", (slow, slow))
    job = build.job(start=1, submitted_at=int(time.time() * 1000))
    own = Start("key", str(folder), (), Needs(), 0, "n", "", 0)
    monkeypatch.setattr(os, "utime", lambda path: set_times(path, (slow, slow)))
    packer(tmp_path)._move_aside(job, own)
    assert (folder / "started.1").exists()
    monkeypatch.undo()
    packer(tmp_path)._move_aside(job, own)
    assert not folder.exists()
    assert len(list(tmp_path.glob("1.older-*"))) == 1
