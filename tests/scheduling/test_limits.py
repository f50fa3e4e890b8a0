"""Limits of batches, groups and projects: what they keep back, and how that is explained."""

from __future__ import annotations

from dataclasses import replace

import build
from dibs.model.jobs import NO, YES, JobId
from dibs.model.lab_rules import Quota
from dibs.scheduling import explanation, forecasts, planner, views
from dibs.scheduling.durations import Span
from dibs.scheduling.views import Active, Limit, Policy, View, WaitingJob

GROUP = ("group", "night")
POLICY = Policy(cpu_slots=4, project_quotas={"vision": Quota(gpus=2)})


def in_group(number: int, room: int, **more: object) -> WaitingJob:
    return replace(build.waiting(number), group="night", bounds=(Limit(GROUP, room),), **more)


def of_project(number: int, gpus: int) -> WaitingJob:
    return replace(build.waiting(number, gpus), project="vision")


def started(view: View) -> list[int]:
    return [start.id for start in planner.plan(view, build.inventory(4), POLICY, build.NOW).starts]


def test_a_group_starts_no_more_jobs_than_it_has_room_for() -> None:
    waiting = [in_group(1, 2), in_group(2, 2), in_group(3, 2), build.waiting(4)]
    assert started(View(waiting)) == [1, 2, 4]


def test_a_project_uses_no_more_gpus_than_its_quota() -> None:
    active = [Active(JobId(9), build.ids(0), project="vision")]
    waiting = views.bounded([of_project(1, 2), of_project(2, 1), build.waiting(3)], active, POLICY)
    assert started(View(waiting, active)) == [2, 3]


def test_reasons_name_the_group_and_the_project() -> None:
    active = [Active(JobId(8), build.ids(0), project="vision"), Active(JobId(9), build.ids(1), group="night")]
    paused = replace(build.waiting(3), bounds=(Limit(GROUP, 0, is_paused=True),))
    jobs = [in_group(1, 0), *views.bounded([of_project(2, 2)], active, POLICY), paused]
    told = [explanation.explain(job, View(jobs, active), build.inventory(4), POLICY, build.NOW).text for job in jobs]
    assert told == [
        "the group night is at its limit: 1 of 1 jobs run",
        "the jobs of project vision use 1 of 2 GPUs (quota)",
        "the group night is paused",
    ]


def test_a_forecast_knows_that_room_comes_back() -> None:
    active = [Active(JobId(9), build.ids(0), group="night")]
    view = View([in_group(1, 0)], active)
    spans = {JobId(9): Span(60, 60), JobId(1): Span(60, 60)}
    prospect = forecasts.Prospect(view, 8, spans)
    found = forecasts.StartForecaster(prospect, build.inventory(4), POLICY, build.NOW).starts([JobId(1)])
    assert found[JobId(1)].if_long == build.NOW + 60_000


def test_a_project_that_used_up_its_hours_starts_only_evictable_jobs_and_those_without_gpus() -> None:
    quota = Policy(cpu_slots=4, project_quotas={"vision": Quota(gpu_hours_per_week=10)}, project_hours={"vision": 10.5})
    cheap, free = (
        replace(build.waiting(n, gpus, evictable=way), project="vision") for n, gpus, way in ((2, 1, YES), (3, 0, NO))
    )
    waiting = views.bounded([of_project(1, 1), cheap, free, build.waiting(4)], [], quota)
    assert sorted(started(View(waiting))) == [2, 3, 4]
    told = explanation.explain(waiting[0], View(waiting), build.inventory(4), quota, build.NOW)
    assert told.text == "the jobs of project vision used 10.5 of 10 GPU-hours in 7 days (quota)"
    below = replace(quota, project_hours={"vision": 9.9, "audio": 50.0})
    assert views.bounded([of_project(1, 1)], [], below) == [of_project(1, 1)]
