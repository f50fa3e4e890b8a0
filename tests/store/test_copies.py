"""Copies of the database: complete, private, due by the age of the last one, and kept an hour apart."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

import build
from dibs.model import selectors
from dibs.store import copies
from dibs.store.writer import Store

HOUR = 3600.0
NOW = 1_800_000_000.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "dibs.db"


@pytest.fixture
def store(path):
    with contextlib.closing(Store.open(path)) as opened:
        yield opened


def submit(store, command):
    with store.batch():
        return store.submit([build.spec(command)], build.NOW)


def copy_at(path: Path, at: float) -> Path:
    """Make a copy at a given time."""
    made = copies.make(path)
    os.utime(made, (at, at))
    return made


def names(path):
    return sorted(file.name for file in (path.parent / "backups").iterdir())


def test_a_copy_made_while_the_store_is_in_use_is_complete(store, path):
    submit(store, "kept")
    copy = copies.make(path)
    submit(store, "after")
    with contextlib.closing(Store.open(copy)) as restored:
        assert [job.spec.command for job in restored.select(selectors.parse(["all"]), 0)] == ["kept"]


def test_the_newest_three_copies_are_kept(store, path):
    for hour in range(12):
        copy_at(path, NOW + hour * HOUR)
    assert names(path) == ["dibs.db.10", "dibs.db.11", "dibs.db.12"]


def test_frequent_copies_do_not_replace_the_older_ones(store, path):
    """A daemon that stops every minute would otherwise keep only the last three minutes."""
    for minute in range(0, 240, 10):
        copy_at(path, NOW + minute * 60)
    times = [copy.stat().st_mtime for copy in copies.numbered(path)]
    assert len(times) == 3
    assert times[-1] - times[0] >= HOUR


def test_a_copy_interrupted_by_a_crash_is_ignored(store, path):
    folder = path.parent / "backups"
    folder.mkdir()
    for name in ("dibs.db.partial", "dibs.db.partial-journal"):
        (folder / name).write_bytes(b"half")
    copies.make(path)
    assert names(path) == ["dibs.db.1"]


def test_copies_are_private(store, path):
    copy = copies.make(path)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (copy, copy.parent)] == [0o600, 0o700]


def test_a_copy_is_due_an_hour_after_the_last_one(store, path):
    assert copies.is_due(path, NOW)
    copy_at(path, NOW)
    assert not copies.is_due(path, NOW + HOUR - 1)
    assert copies.is_due(path, NOW + HOUR)


def test_a_copy_from_the_future_does_not_prevent_new_ones(store, path):
    """It was made while the clock was a year ahead."""
    copy_at(path, NOW + 365 * 24 * HOUR)
    assert copies.is_due(path, NOW)


def test_a_copy_is_current_until_a_job_changes(store, path):
    submit(store, "one")
    assert not copies.is_current(path, store.last_event())
    copies.make(path)
    assert copies.is_current(path, store.last_event())
    submit(store, "two")
    assert not copies.is_current(path, store.last_event())


def test_the_best_of_several_copies_is_the_most_complete(store, path):
    submit(store, "one")
    copies.make(path)
    submit(store, "two")
    best = copies.make(path)
    store.close()
    path.write_bytes(b"garbage " * 1000)
    found = copies.best(path)
    assert (found.path, found.jobs, found.last_id) == (best, 2, 2)
