"""Marks of when a log was written: they are kept, and what no longer holds is dropped."""

from __future__ import annotations

from pathlib import Path

from dibs.logs import write_times


def test_marks_are_read_back_in_their_order(tmp_path: Path) -> None:
    path = str(tmp_path / "times")
    assert write_times.read(path) == []
    for mark in ((1000, 10), (2000, 30)):
        write_times.append(path, mark)
    # A full disk cut the last one.
    Path(path).write_bytes(Path(path).read_bytes() + b"123")
    assert write_times.read(path) == [(1000, 10), (2000, 30)]


def test_without_the_folder_of_the_attempt_nothing_is_kept(tmp_path: Path) -> None:
    write_times.append(str(tmp_path / "gone" / "times"), (1, 1))
    assert write_times.read(str(tmp_path / "gone" / "times")) == []
    assert write_times.size_of(str(tmp_path / "gone" / "log")) is None


def test_marks_before_a_log_was_emptied_say_nothing() -> None:
    assert write_times.sound([(1, 10), (2, 20), (3, 5), (4, 9)]) == [(3, 5), (4, 9)]


def test_an_earlier_moment_is_the_better_bound() -> None:
    """The time of the file's last change is before that of the last look at it."""
    assert write_times.sound([(1, 10), (5, 20), (4, 20)]) == [(1, 10), (4, 20)]


def test_of_many_marks_the_first_and_the_last_stay() -> None:
    many = [(each, each) for each in range(100)]
    thin = write_times.thinned(many, 10)
    assert (thin[0], thin[-1]) == (many[0], many[-1])
    assert len(thin) <= 10
    assert write_times.thinned(many, 100) == many
    assert write_times.thinned([], 10) == []
