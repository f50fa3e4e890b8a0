"""The folders of jobs: what removing them frees, and what it must never touch."""

from __future__ import annotations

from pathlib import Path

from dibs.daemon import cleanup


def made(root: Path, job_id: int = 7) -> Path:
    """Make the folder of a job with 10 bytes of log and 100 of checkpoint."""
    folder = root / str(job_id)
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "log").write_text("x" * 10)
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "model").write_text("x" * 100)
    return folder


def test_logs_are_removed_and_checkpoints_kept(tmp_path: Path) -> None:
    folder = made(tmp_path)
    assert cleanup.folder_size([tmp_path], 7, with_checkpoint=False) == 10
    assert cleanup.remove_folder([tmp_path], 7, with_checkpoint=False) == 10
    assert sorted(path.name for path in folder.rglob("*")) == ["checkpoint", "model"]


def test_checkpoints_are_removed_on_request(tmp_path: Path) -> None:
    folder = made(tmp_path)
    assert cleanup.remove_folder([tmp_path], 7, with_checkpoint=True) == 110
    assert not folder.exists()


def test_an_empty_checkpoint_folder_counts_as_none(tmp_path: Path) -> None:
    folder = made(tmp_path)
    (folder / "checkpoint" / "model").unlink()
    cleanup.remove_folder([tmp_path], 7, with_checkpoint=False)
    assert not folder.exists()


def test_the_folders_of_one_job_are_removed_in_all_places(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    other = made(tmp_path / "a", 8)
    assert cleanup.remove_folder([tmp_path / "a", tmp_path / "b"], 7, with_checkpoint=True) == 220
    assert [first.exists(), second.exists(), other.exists()] == [False, False, True]


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    folder, outside = made(tmp_path / "jobs"), tmp_path / "dear"
    outside.mkdir()
    (outside / "thesis").write_text("y")
    (folder / "log").symlink_to("1/log")
    (folder / "1" / "data").symlink_to(outside)
    (folder / "2").symlink_to(outside)
    cleanup.remove_folder([tmp_path / "jobs"], 7, with_checkpoint=True)
    assert (outside / "thesis").read_text() == "y"
    assert not folder.exists()


def test_a_job_without_a_folder_has_nothing_to_remove(tmp_path: Path) -> None:
    assert (cleanup.folder_size([tmp_path], 7, True), cleanup.remove_folder([tmp_path], 7, True)) == (0, 0)
