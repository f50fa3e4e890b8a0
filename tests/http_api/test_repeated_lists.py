"""Lists that are loaded repeatedly: the cache is never older than the last change."""

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


#: Changes to a job, in this order. Afterwards all lists have them.
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


def test_a_change_is_visible_in_the_next_list(bench: Bench) -> None:
    """A single job is not cached; the overview and a page must show the same."""
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


def test_an_unchanged_job_is_reused_from_the_cache(desk: Desk) -> None:
    with desk.store.batch():
        desk.store.submit([build.spec()], build.NOW)
    assert shown(desk).is_same(shown(desk))
    # Devices come and go; that does not affect a job without one.
    assert shown(desk).is_same(shown(desk, inventory=build.inventory(1)))
    assert not shown(desk).is_same(shown(desk, reason="waiting for another"))
    assert not shown(desk).is_same(shown(desk, report={"loss": 0.5}))
    assert not shown(desk).is_same(shown(desk, marks=["idle"]))


def test_a_changed_job_is_rendered_again(desk: Desk) -> None:
    with desk.store.batch():
        (job_id,) = desk.store.submit([build.spec(gpus=1)], build.NOW)
    waiting = shown(desk)
    with desk.store.batch():
        desk.store.record(desk.store.job(job_id), lifecycle.Placed(build.NOW, build.ids(1)))
    assert not waiting.is_same(shown(desk))
    assert shown(desk).is_same(shown(desk))
    # Its device has another index, or is gone.
    assert not shown(desk).is_same(shown(desk, inventory=build.inventory(1)))


def test_a_change_is_visible_in_the_next_forecast(bench: Bench) -> None:
    """A job in the middle of a line is removed, beyond what the scheduler examines: later ones start sooner."""
    bench.long_job(gpus=4, time_limit_s=3600)
    waiting = bench.add_many([{"command": f"true {n}", "gpus": 4, "time_limit_s": 60} for n in range(20)])

    def latest(job_id: int) -> float:
        told = bench.client.get(f"/v1/jobs/{job_id}/why")["expected_start"]["latest"]
        return datetime.fromisoformat(told).timestamp()

    before = latest(waiting[19])
    bench.cancel(waiting[15])
    # The running job has started meanwhile, and its hour ends at the same time as before.
    assert before - latest(waiting[19]) == pytest.approx(60, abs=2)
