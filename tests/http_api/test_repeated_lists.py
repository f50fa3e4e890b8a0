"""Lists that are loaded again: what is remembered of them is never older than what happened."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

import build
from bench import Bench
from desk import Desk
from dibs.http_api.jobs import Shown
from dibs.model import lifecycle


def edit(**changes: object) -> dict[str, object]:
    return {"verb": "edit", "changes": changes}


#: What is done to a job, one after the other. Afterwards all lists know of it.
CHANGES: tuple[dict[str, object], ...] = (
    {"verb": "hold"},
    {"verb": "unhold"},
    edit(name="another", tags=["x"]),
    edit(priority=7),
    edit(gpus=2),
    {"verb": "cancel"},
    {"verb": "retry"},
)


def rows(queue: Bench, *query: tuple[str, str]) -> dict[int, dict[str, Any]]:
    return {job["id"]: job for job in queue.client.get("/v1/jobs", list(query))["jobs"]}


def test_a_change_is_seen_in_the_next_list(bench: Bench) -> None:
    """As one job is told, of which nothing is remembered, so are those of the overview and of a page."""
    bench.long_job(gpus=4)
    waiting = bench.add_many([{"command": f"true {n}", "gpus": 1} for n in range(3)])

    def check(before: dict[int, dict[str, Any]]) -> None:
        for found in (rows(bench), rows(bench), rows(bench, ("limit", "10"))):
            assert found != before
            for job_id in waiting:
                whole = bench.job(job_id)
                assert found[job_id] == {key: whole[key] for key in found[job_id]}

    for change in CHANGES:
        before = rows(bench)
        bench.client.post("/v1/jobs/actions", {"select": [str(waiting[1])], **change})
        check(before)
    for is_paused in (True, False):
        before = rows(bench)
        bench.client.post("/v1/queue", {"paused": is_paused})
        check(before)


def shown(desk: Desk, **more: Any) -> Shown:
    (job,) = desk.store.overview(10, 10)
    return replace(Shown(job, "it waits", None, [], build.inventory(2)), **more)


def test_an_unchanged_job_is_told_in_the_same_words(desk: Desk) -> None:
    with desk.store.batch():
        desk.store.submit([build.spec()], build.NOW)
    assert shown(desk).is_same(shown(desk))
    # Devices come and go; a job that has none does not care.
    assert shown(desk).is_same(shown(desk, inventory=build.inventory(1)))
    assert not shown(desk).is_same(shown(desk, reason="it waits for another"))
    assert not shown(desk).is_same(shown(desk, report={"loss": 0.5}))
    assert not shown(desk).is_same(shown(desk, marks=["idle"]))


def test_a_job_that_moved_on_is_told_anew(desk: Desk) -> None:
    with desk.store.batch():
        (job_id,) = desk.store.submit([build.spec(gpus=1)], build.NOW)
    waiting = shown(desk)
    with desk.store.batch():
        desk.store.record(desk.store.job(job_id), lifecycle.Placed(build.NOW, build.ids(1)))
    assert not waiting.is_same(shown(desk))
    assert shown(desk).is_same(shown(desk))
    # Its device has another index, or is gone.
    assert not shown(desk).is_same(shown(desk, inventory=build.inventory(1)))


def test_a_change_is_seen_in_the_next_forecast(bench: Bench) -> None:
    """One in the middle of a line goes, behind those at which the scheduler looks: those behind it come sooner."""
    bench.long_job(gpus=4, time_limit_s=3600)
    waiting = bench.add_many([{"command": f"true {n}", "gpus": 4, "time_limit_s": 60} for n in range(20)])

    def latest(job_id: int) -> float:
        told = bench.client.get(f"/v1/jobs/{job_id}/why")["expected_start"]["latest"]
        return datetime.fromisoformat(told).timestamp()

    before = latest(waiting[19])
    bench.cancel(waiting[15])
    # What runs has begun meanwhile, and its hour is over at the same moment as before.
    assert before - latest(waiting[19]) == pytest.approx(60, abs=2)
