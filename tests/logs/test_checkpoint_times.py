"""When a job last wrote a checkpoint, and what that keeps of its run time."""

import os

import pytest

from dibs.logs import checkpoint_times


def write(path, at_ms):
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def test_the_newest_file_counts_also_in_a_folder(tmp_path):
    assert checkpoint_times.newest(str(tmp_path)) is None
    write(tmp_path / "a", 1000)
    write(tmp_path / "step" / "b", 3000)
    assert checkpoint_times.newest(str(tmp_path)) == 3000


def test_files_of_the_next_attempt_do_not_count(tmp_path):
    write(tmp_path / "a", 1000)
    write(tmp_path / "b", 3000)
    assert checkpoint_times.newest(str(tmp_path), 2000) == 1000


def test_a_missing_folder_has_no_checkpoint(tmp_path):
    assert checkpoint_times.newest(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("newest", "saved", "lost"), [(None, 0, 100), (50, 0, 100), (130, 30, 70), (200, 100, 0), (900, 100, 0)]
)
def test_what_ran_since_the_last_checkpoint_is_lost(newest, saved, lost):
    assert checkpoint_times.kept(100, 200, newest) == (saved, lost)


def test_two_checkpoints_of_one_attempt_are_regular():
    seen = checkpoint_times.Regularity()
    assert not seen.see(1, 1, 5000, 4000), "that of the attempt before"
    assert not seen.see(1, 1, 5000, 6000)
    assert not seen.see(1, 1, 5000, 6500), "a second file of the same one"
    assert seen.see(1, 1, 5000, 7000)
    assert seen.is_new(1, 1)
    assert not seen.is_new(1, 1)
    seen.keep_only(set())
    assert not seen.see(1, 1, 5000, 7000)
