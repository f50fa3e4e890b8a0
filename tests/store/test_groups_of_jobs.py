"""Named groups: their limit, their pause, and lines that do not hide each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import build
from dibs.model import lifecycle
from dibs.scheduling.views import Limit
from dibs.store.writer import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as opened:
        yield opened


def test_the_head_of_each_group_and_project_is_read(store: Store) -> None:
    with store.batch():
        lanes = [{"group": "night"}, {"project": "vision"}, {}]
        store.submit([build.spec(**lane) for lane in lanes for _ in range(5)], build.NOW)
    heads = store.head(2)
    assert sorted((job.id, job.group, job.project) for job in heads) == [
        (1, "night", "default"), (2, "night", "default"),
        (6, "default", "vision"), (7, "default", "vision"),
        (11, "default", "default"), (12, "default", "default"),
    ]  # fmt: skip


def test_a_group_counts_its_active_jobs(store: Store) -> None:
    with store.batch():
        first, _ = store.submit([build.spec(group="night")] * 2, build.NOW)
        store.set_group("night", 3)
        store.record(store.job(first), lifecycle.Placed(build.NOW, build.ids(0)))
    assert store.head(2)[0].bounds == (Limit(("group", "night"), 2),)
    assert [(each.name, each.at_once, each.active, each.waiting) for each in store.groups()] == [("night", 3, 1, 1)]


def test_a_paused_group_has_no_room_and_is_forgotten_when_it_has_no_rule(store: Store) -> None:
    with store.batch():
        store.submit([build.spec(group="night")], build.NOW)
        store.pause_group("night", True)
    assert store.head(1)[0].bounds == (Limit(("group", "night"), 0, is_paused=True),)
    with store.batch():
        store.pause_group("night", False)
    assert store.head(1)[0].bounds == ()
    assert store.group_bounds() == {}


def test_a_job_that_changes_its_group_changes_its_line(store: Store) -> None:
    with store.batch():
        job = store.job(store.submit([build.spec(group="night")], build.NOW)[0])
        store.edit(job, build.spec(group="day"), build.NOW, "group")
    assert [head.group for head in store.head(1)] == ["day"]
