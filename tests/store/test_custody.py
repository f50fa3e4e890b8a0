"""Whether a database is the one that the last daemon left, and the cost of its marker."""

from __future__ import annotations

import contextlib

import pytest

import build
from dibs.errors import MachineError
from dibs.store import copies, custody, marker
from dibs.store.marker import Mark
from dibs.store.writer import FileGone, Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "dibs.db"


@pytest.fixture
def store(path):
    with contextlib.closing(Store.open(path)) as opened:
        opened.custody.begin("this", 0)
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
    assert marker.read(path.parent) == first
    submit(store)
    assert marker.read(path.parent).ids > first.ids


def test_a_torn_marker_still_shows_that_there_was_a_queue(path):
    (path.parent / marker.NAME).write_bytes(b"\0" * 512)
    assert marker.read(path.parent) == Mark()


def test_nothing_is_stored_in_a_replaced_file_and_everything_is_saved(store, path):
    submit(store, 3)
    path.rename(path.with_name("moved"))
    path.write_bytes(b"")
    with pytest.raises(FileGone, match="dibs daemon restart"):
        submit(store)
    assert copies.look(copies.saved(path)).jobs == 3


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
