"""Counts of the jobs of a sweep, a batch or a submission: large groups are counted from indexes, not row by row."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import build
from dibs.model import lifecycle
from dibs.model.jobs import JobId
from dibs.store import groups
from dibs.store.writer import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(groups, "LARGE", 5)
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as opened:
        yield opened


def add(store: Store, count: int, at: int, **fields: object) -> list[JobId]:
    with store.batch():
        return list(store.submit([build.spec(**fields)] * count, at))


def change_some(store: Store, ids: list[JobId], chance: random.Random) -> None:
    with store.batch():
        for job_id in chance.sample(ids, 3):
            job = store.job(job_id)
            if job.is_waiting:
                store.record(job, lifecycle.CancelAsked(build.NOW))


def counted(store: Store, shown: list[JobId]) -> list[tuple[int, int, int, dict[str, int]]]:
    return [
        (job.id, group.first, group.last, group.counts)
        for job, group in groups.groups_of_jobs(store, store.jobs(shown))
    ]


def uncached(store: Store, shown: list[JobId]) -> list[tuple[int, int, int, dict[str, int]]]:
    store.spans.clear()
    return counted(store, shown)


@pytest.mark.parametrize("seed", range(5))
def test_a_group_that_is_known_is_counted_as_one_that_is_not(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    alone = add(store, 1, build.NOW)
    ids = add(store, 40, build.NOW + 1)
    shown = [*alone, *ids[:2]]
    counted(store, shown)
    assert store.spans
    for step in range(6):
        change_some(store, ids, chance)
        if step == chance.randrange(6):
            # From now on another job follows the group, or more of the same moment.
            add(store, 7, build.NOW + chance.choice([1, 2]))
        kept = dict(store.spans)
        found = counted(store, shown)
        assert found == uncached(store, shown)
        store.spans.update(kept)


def test_a_group_with_others_between_its_jobs_is_counted_job_by_job(store: Store) -> None:
    with store.batch():
        batch = store.add_batch(None, None, 12)
    first = add(store, 6, build.NOW, batch=batch)
    counted(store, first[:1])
    add(store, 1, build.NOW)
    more = add(store, 6, build.NOW + 1, batch=batch)
    assert counted(store, [first[0], more[-1]]) == [(1, 1, 13, {"queued": 12})]


def test_jobs_that_were_deleted_are_not_counted(store: Store) -> None:
    ids = add(store, 10, build.NOW)
    counted(store, ids[:1])
    with store.batch():
        for job_id in ids[:3]:
            store.record(store.job(job_id), lifecycle.CancelAsked(build.NOW))
    with store.batch():
        store.forget(ids[:3], with_checkpoints=False)
    assert counted(store, ids[3:4]) == [(4, 4, 10, {"queued": 7})]
