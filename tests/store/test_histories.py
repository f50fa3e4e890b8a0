"""What a plan knows about run times: read from the store, kept, and read again after a change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import build
from dibs.model import lifecycle
from dibs.model.jobs import JobId
from dibs.scheduling.views import Active, WaitingJob
from dibs.store.reader import Reader
from dibs.store.writer import Store

NOW = build.NOW


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as opened:
        yield opened


def submit(store: Store, *many: dict[str, object]) -> list[JobId]:
    with store.batch():
        return store.submit([build.spec(**{"command": "train", **each}) for each in many], NOW)


def finish(store: Store, job_id: JobId, took_ms: int) -> None:
    with store.batch():
        for event in (
            lifecycle.Placed(NOW, build.ids(0)),
            lifecycle.Started(NOW - took_ms, 77),
            lifecycle.Ended(NOW, exit_code=0, started_at=NOW - took_ms),
        ):
            store.record(store.job(job_id), event)


def planned(reader: Reader) -> tuple[list[WaitingJob], list[Active]]:
    return reader.histories.in_plan(reader.head(10), reader.active_devices())


def histories(reader: Reader) -> dict[int, tuple[float, ...]]:
    return {job.id: job.history for job in planned(reader)[0]}


def test_a_plan_knows_how_long_similar_jobs_took(store: Store) -> None:
    for job_id, took_ms in zip(submit(store, {}, {}, {}), (3000, 1000, 2000), strict=True):
        finish(store, job_id, took_ms)
    one, two, running = submit(store, {}, {"gpus": 2}, {})
    with store.batch():
        store.record(store.job(running), lifecycle.Placed(NOW, build.ids(1)))
    waiting, (active,) = planned(store)
    assert {job.id: (job.since, job.history) for job in waiting} == {one: (NOW, (1, 2, 3)), two: (NOW, ())}
    assert active.history == (1, 2, 3)


def test_nothing_is_read_if_all_jobs_ask_for_the_same(store: Store) -> None:
    submit(store, {}, {}, {})
    heads, active = store.head(10), store.active_devices()
    asked: list[str] = []
    store.connection.set_trace_callback(asked.append)
    assert store.histories.in_plan(heads, active) == (heads, active)
    assert asked == []


def test_the_same_plan_reads_nothing_again(store: Store) -> None:
    submit(store, {}, {"gpus": 2})
    planned(store)
    heads, active = store.head(10), store.active_devices()
    asked: list[str] = []
    store.connection.set_trace_callback(asked.append)
    store.histories.in_plan(heads, active)
    assert asked == ["PRAGMA data_version"]


def test_a_finished_job_counts_at_once_for_the_writer_and_for_readers(store: Store, tmp_path: Path) -> None:
    done = submit(store, {}, {}, {}, {})
    one, _ = submit(store, {}, {"gpus": 2})
    with contextlib.closing(Reader.open(tmp_path / "dibs.db")) as reader:
        for number, job_id in enumerate(done, 1):
            finish(store, job_id, 1000)
            expected = (1.0,) * number
            assert histories(store)[one] == histories(reader)[one] == expected


def test_what_was_undone_does_not_count(store: Store) -> None:
    for job_id in submit(store, {}, {}, {}):
        finish(store, job_id, 1000)
    last, one, _ = submit(store, {}, {}, {"gpus": 2})
    with contextlib.suppress(ZeroDivisionError), store.batch():
        for event in (lifecycle.Placed(NOW, build.ids(0)), lifecycle.Started(NOW, 77)):
            store.record(store.job(last), event)
        store.record(store.job(last), lifecycle.Ended(NOW, exit_code=0, started_at=NOW))
        histories(store)
        raise ZeroDivisionError
    assert histories(store)[one] == (1.0, 1.0, 1.0)


def test_an_edited_job_is_like_others(store: Store) -> None:
    for job_id in submit(store, {}, {}, {}):
        finish(store, job_id, 1000)
    one, two = submit(store, {}, {"gpus": 2})
    known = planned(store)[0]
    edited = [job if job.id != two else WaitingJob(two, build.spec(gpus=3).request) for job in known]
    assert {job.id: len(job.history) for job in store.histories.in_plan(edited, [])[0]} == {one: 3, two: 0}
