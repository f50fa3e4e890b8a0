"""Folders in advance: created while no job starts, each given out once, and removed with their daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.engines import prepared_folders
from dibs.engines.prepared_folders import PreparedFolders
from waits import wait_for


def names(home: Path) -> list[str]:
    return os.listdir(home / "spares") if (home / "spares").exists() else []


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[PreparedFolders]:
    folders = PreparedFolders(str(tmp_path), 5, lambda: None)
    folders.start()
    yield folders
    folders.close()


def take(prepared: PreparedFolders) -> str:
    """Take a folder that exists; it has its name a moment before it is ready."""
    return wait_for(prepared.take)


def take_all(prepared: PreparedFolders, count: int, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Take folders, and make sure that there are no more; what is taken is not replaced meanwhile."""
    monkeypatch.setattr(prepared_folders, "REST_S", 3600.0)
    taken = {take(prepared) for _ in range(count)}
    assert prepared.take() == ""
    return taken


def test_the_first_start_finds_none_and_later_ones_find_them_ready(
    prepared: PreparedFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prepared.take() == ""
    wait_for(lambda: len(names(tmp_path)) == 5)
    there = {f"{tmp_path}/spares/{name}" for name in names(tmp_path)}
    assert take_all(prepared, 5, monkeypatch) == there


def test_what_was_taken_is_replaced_when_no_job_starts_any_more(prepared: PreparedFolders, tmp_path: Path) -> None:
    prepared.take()
    wait_for(lambda: len(names(tmp_path)) == 5)
    os.rename(take(prepared), tmp_path / "job")
    wait_for(lambda: len(names(tmp_path)) == 5)


def test_they_are_removed_with_their_daemon(tmp_path: Path) -> None:
    folders = PreparedFolders(str(tmp_path), 3, lambda: None)
    folders.start()
    folders.take()
    wait_for(lambda: len(names(tmp_path)) == 3)
    folders.close()
    assert names(tmp_path) == []


def test_those_of_a_dead_daemon_are_removed_by_the_next(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / "spares" / f"{int(dead.stdout)}.cafe" / "1").mkdir(parents=True)
    folders = PreparedFolders(str(tmp_path), 0, lambda: None)
    folders.start()
    wait_for(lambda: names(tmp_path) == [])
    folders.close()


def test_a_disk_without_room_is_tried_again_after_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "spares").write_text("in the way")
    folders = PreparedFolders(str(tmp_path), 2, lambda: None)
    folders.start()
    assert folders.take() == ""
    wait_for(lambda: not folders._is_wanted.is_set())
    (tmp_path / "spares").unlink()
    assert folders.take() == ""
    wait_for(lambda: len(names(tmp_path)) == 2)
    folders.close()


def test_a_daemon_at_its_end_does_not_wait_for_a_thread_that_never_began(tmp_path: Path) -> None:
    PreparedFolders(str(tmp_path), 2, lambda: None).close()
    assert names(tmp_path) == []


def test_a_folder_that_was_not_used_is_given_out_again(
    prepared: PreparedFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.take()
    wait_for(lambda: len(names(tmp_path)) == 5)
    there = {f"{tmp_path}/spares/{name}" for name in names(tmp_path)}
    prepared.put_back(take(prepared))
    prepared.put_back("")
    assert take_all(prepared, 5, monkeypatch) == there
