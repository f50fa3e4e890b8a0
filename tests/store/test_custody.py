"""Whether a database is the one that the last daemon left, and the cost of its marker."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from dataclasses import replace

import pytest

import build
from dibs.errors import MachineError
from dibs.store import copies, custody, marker
from dibs.store.marker import Mark
from dibs.store.writer import FileGone, Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "dibs.db"


@contextlib.contextmanager
def session(path):
    """Open a database in a folder of its own, and begin a session."""
    path.parent.mkdir(exist_ok=True)
    with contextlib.closing(Store.open(path)) as opened:
        with opened.batch():
            opened.set_fact(copies.SESSION, "this")
        opened.custody.begin("this", 0, 0)
        yield opened


@pytest.fixture
def store(path):
    with session(path) as opened:
        yield opened


def submit(store, count=1):
    with store.batch():
        return store.submit([build.spec()] * count, build.NOW)


@pytest.mark.parametrize(
    ("mark", "session", "events", "is_older"),
    [
        (None, None, 5, False),
        (Mark("a", is_open=True), "a", 5, False),
        # The daemon died after the commit, or before it.
        (Mark("a", next="b"), "b", 5, False),
        (Mark("a", next="b"), "a", 5, False),
        (Mark("a", is_open=True), "z", 5, True),
        (Mark("a", events=9), "a", 5, True),
        (Mark("a", events=5), "a", 5, False),
        (Mark("a"), copies.COPY, 5, True),
        # An unreadable marker gives no information.
        (Mark(), "a", 5, False),
    ],
)
def test_a_database_is_outdated_if_it_is_a_copy_or_differs_from_the_marker(mark, session, events, is_older):
    assert custody.is_older(mark, session, events) is is_older


def test_the_marker_is_written_once_for_a_thousand_ids(store, path):
    """It must reach the disk before the ids are given, and most submissions must not wait for that."""
    submit(store)
    first = marker.read(path.parent)
    assert first.ids == 1 + marker.BLOCK
    submit(store, marker.BLOCK)
    assert marker.read(path.parent).ids == first.ids
    submit(store)
    assert marker.read(path.parent).ids > first.ids


def test_a_new_reservation_of_ids_keeps_the_number_of_the_last_event(store, path):
    submit(store, marker.BLOCK)
    submit(store, 2)
    assert marker.read(path.parent).events == store.last_event() > marker.BLOCK


def test_a_torn_marker_still_shows_that_there_was_a_queue(path):
    (path.parent / marker.NAME).write_bytes(b"\0" * 512)
    assert marker.read(path.parent) == Mark()


def test_nothing_is_stored_in_a_replaced_file_and_everything_is_saved(store, path):
    submit(store, 3)
    path.unlink()
    path.write_bytes(b"")
    with pytest.raises(FileGone, match="dibs daemon restart") as lost:
        submit(store)
    assert lost.value.is_final
    assert copies.look(copies.saved(path)).jobs == 3


def test_a_file_that_comes_back_is_used_again(store, path):
    submit(store, 3)
    path.rename(path.with_name("moved"))
    path.write_bytes(b"")
    with pytest.raises(FileGone, match="out of reach") as lost:
        submit(store)
    assert not lost.value.is_final
    assert copies.look(copies.saved(path)).jobs == 3
    path.with_name("moved").rename(path)
    assert submit(store) == [4]
    assert store.custody.gone is None
    assert not copies.saved(path).exists()


def test_a_folder_that_comes_back_is_used_again(tmp_path):
    home = tmp_path / "home"
    with session(home / "dibs.db") as store:
        submit(store)
        home.rename(tmp_path / "moved")
        with pytest.raises(FileGone, match="as soon as it is back"):
            submit(store)
        assert not home.exists()
        (tmp_path / "moved").rename(home)
        assert submit(store) == [2]


def test_a_file_that_was_deleted_while_it_was_away_does_not_come_back(store, path):
    """Not even if another file of the same content takes its place."""
    submit(store, 3)
    moved = path.with_name("moved")
    path.rename(moved)
    with pytest.raises(FileGone, match="out of reach"):
        submit(store)
    content = moved.read_bytes()
    moved.unlink()
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(FileGone, match="was deleted or replaced") as lost:
            submit(store)
        assert lost.value.is_final


def test_a_file_that_others_changed_while_it_was_away_is_not_used_again(store, path):
    submit(store)
    moved = path.parent / "moved"
    moved.mkdir()
    for end in ("", "-wal", "-shm"):
        (path.parent / f"dibs.db{end}").rename(moved / f"dibs.db{end}")
    with pytest.raises(FileGone, match="out of reach"):
        submit(store)
    with contextlib.closing(sqlite3.connect(moved / "dibs.db", isolation_level=None)) as other:
        other.execute("DELETE FROM jobs")
    for end in ("", "-wal", "-shm"):
        (moved / f"dibs.db{end}").rename(path.parent / f"dibs.db{end}")
    for _ in range(2):
        with pytest.raises(FileGone, match="another program changed") as lost:
            submit(store)
        assert lost.value.is_final


def test_a_deleted_folder_is_made_again_with_all_jobs_and_the_marker(tmp_path):
    home = tmp_path / "home"
    with session(home / "dibs.db") as store:
        submit(store, 3)
        shutil.rmtree(home)
        with pytest.raises(FileGone, match="dibs daemon restart") as lost:
            submit(store)
        assert lost.value.is_folder
    custody.require_queue(home / "dibs.db", 0)
    assert copies.look(home / "dibs.db").jobs == 3


def test_a_new_queue_in_a_deleted_folder_is_left_alone(tmp_path):
    home = tmp_path / "home"
    with session(home / "dibs.db") as store:
        submit(store, 3)
        shutil.rmtree(home)
        home.mkdir()
        marker.write(home, Mark("other", is_open=True))
        with pytest.raises(FileGone, match="dibs doctor --repair") as lost:
            submit(store)
        assert lost.value.is_folder
    assert marker.read(home).session == "other"
    assert copies.look(copies.saved(home / "dibs.db")).jobs == 3


def left_by_a_crash(path):
    """Leave a database as a killed daemon does, except that its log was copied into it and removed."""
    with session(path) as store:
        submit(store, 3)
    mark = marker.read(path.parent)
    assert mark.is_open
    assert mark.events == 3
    return mark


def test_a_database_that_sqlite_has_completed_after_a_crash_is_accepted(path):
    mark = left_by_a_crash(path)
    assert custody.missing(path, mark, 0) is None


@pytest.mark.parametrize("change", [{"events": 4}, {"boot": "another"}, {"session": "that"}])
def test_a_database_that_may_lack_its_last_events_is_missed(path, change):
    mark = replace(left_by_a_crash(path), **change)
    assert "dibs.db-wal is gone" in custody.missing(path, mark, 0)


def test_a_deleted_log_is_detected_too(store, path):
    submit(store)
    (path.parent / "dibs.db-wal").unlink()
    with pytest.raises(FileGone):
        store.custody.require_log()
    with pytest.raises(FileGone):
        submit(store)


def test_a_folder_without_submitted_jobs_lacks_no_database(path):
    marker.write(path.parent, Mark("a", is_open=True))
    custody.require_queue(path, 0)


@pytest.mark.parametrize("evidence", ["folder", "marker", "copy"])
def test_each_trace_of_a_queue_reveals_a_missing_database(path, evidence):
    if evidence == "marker":
        marker.write(path.parent, Mark("a", ids=7))
    elif evidence == "copy":
        with contextlib.closing(Store.open(path)):
            copies.make(path)
        path.unlink()
    with pytest.raises(MachineError, match="the queue is missing"):
        custody.require_queue(path, 3 if evidence == "folder" else 0)
