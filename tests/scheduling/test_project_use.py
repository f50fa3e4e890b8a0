"""GPU time of projects: old time counts less, running jobs count, and the project with the least is served first."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import build
from dibs.model import lifecycle
from dibs.model.jobs import YES, JobId
from dibs.scheduling import views
from dibs.scheduling.project_use import DAY_MS, HOUR_MS, WEEK_MS, ProjectUse, WeekUse
from dibs.scheduling.views import Active
from dibs.store.writer import Store


def test_finished_and_running_jobs_count(tmp_path: Path) -> None:
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as store:
        with store.batch():
            (first,) = store.submit([build.spec(project="vision")], build.NOW)
            job = store.record(store.job(first), lifecycle.Placed(build.NOW, build.ids(0, 1)))
            job = store.record(job, lifecycle.Started(build.NOW, 7))
            store.record(job, lifecycle.Ended(build.NOW + 60_000, exit_code=0))
        use = ProjectUse(86400)
        use.begin(store.project_times(use.since(build.NOW)), build.NOW + 60_000)
    running = [Active(JobId(9), build.ids(2), started_at=build.NOW, project="audio")]
    assert use.now_s(running, build.NOW + 60_000) == {"vision": 120.0, "audio": 60.0}
    assert use.now_s((), build.NOW + 60_000 + DAY_MS) == {"vision": 60.0}
    again = build.job(3, project="vision", allocation=build.ids(0), started_at=build.NOW + DAY_MS)
    use.add([again], build.NOW + 60_000 + DAY_MS)
    assert use.now_s((), build.NOW + 60_000 + DAY_MS) == {"vision": 120.0}


def test_the_project_with_the_least_time_is_served_first_within_a_priority() -> None:
    jobs = [replace(build.waiting(number, priority=p), project=name) for number, p, name in (
        (1, 0, "vision"), (2, 0, "audio"), (3, 0, "vision"), (4, 10, "vision"), (5, 0, "new"),
    )]  # fmt: skip
    ordered = views.order(views.by_project(jobs, {"vision": 50.0, "audio": 20.0}))
    assert [job.id for job in ordered] == [4, 5, 2, 1, 3]


def test_hours_of_a_week_are_those_of_ordinary_jobs(tmp_path: Path) -> None:
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as store:
        with store.batch():
            specs = [build.spec(project="vision"), build.spec(project="vision", evictable=YES)]
            for job_id in store.submit(specs, build.NOW):
                job = store.record(store.job(job_id), lifecycle.Placed(build.NOW, build.ids(0, 1)))
                job = store.record(job, lifecycle.Started(build.NOW, 7))
                store.record(job, lifecycle.Ended(build.NOW + HOUR_MS, exit_code=0))
        use = WeekUse(store.ordinary_times(build.NOW))
    now = build.NOW + HOUR_MS
    running = Active(JobId(9), build.ids(2), started_at=build.NOW, project="vision")
    assert use.hours([running, replace(running, is_evictable=True)], now) == {"vision": 3.0}
    use.add([build.job(3, project="vision", allocation=build.ids(0), started_at=now)], now + HOUR_MS)
    use.add([build.job(4, project="vision", allocation=build.ids(0), started_at=now, evictable=YES)], now + HOUR_MS)
    assert use.hours((), now + HOUR_MS) == {"vision": 3.0}
    assert use.hours((), now + HOUR_MS // 2 + WEEK_MS) == {"vision": 1.0}
    assert use.hours((), now + 2 * HOUR_MS + WEEK_MS) == {"vision": 0.0}
