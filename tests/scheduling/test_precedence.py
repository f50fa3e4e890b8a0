"""Who may pass a waiting job without time limits: by what jobs like it took, in which order, and until when."""

from __future__ import annotations

import dataclasses
import re

import pytest

import build
from dibs.model import ranks
from dibs.model.jobs import JobId, Request
from dibs.scheduling import durations, explanation, planner, precedence
from dibs.scheduling.views import Active, Policy, View, WaitingJob

HOUR_S = 3600.0
HOUR = 3_600_000
NOW = build.NOW
POLICY = Policy(pass_for_s=24 * HOUR_S)
SHORT, LONG = (60.0,) * 3, (HOUR_S, 5 * HOUR_S, 20 * HOUR_S, 100 * HOUR_S)


def waiting(number: int, gpus: int = 1, age_h: float = 0, **more: object) -> WaitingJob:
    return WaitingJob(JobId(number), Request(gpus), since=NOW - int(age_h * HOUR), **more)  # type: ignore[arg-type]


def running(number: int, *indices: int, ran_h: float = 0, **more: object) -> Active:
    return Active(JobId(number), build.ids(*indices), started_at=NOW - int(ran_h * HOUR), **more)  # type: ignore[arg-type]


def starts(view: View, count: int = 2, policy: Policy = POLICY) -> list[int]:
    return [start.id for start in planner.plan(view, build.inventory(count), policy, NOW).starts]


@pytest.mark.parametrize(
    ("history", "ran_s", "left_s"),
    [
        ((), 0, None),
        ((5.0, 6.0), 0, None),
        ((1.0, 2.0, 9.0), 0, 2),
        ((1.0, 2.0, 9.0), 1.5, 7.5),
        ((1.0, 2.0, 9.0), 8, 1),
        ((1.0, 2.0, 9.0), 30, 30),
    ],
)
def test_the_longer_a_job_has_run_the_longer_it_will(history: durations.History, ran_s: float, left_s: float) -> None:
    assert durations.expected_left_s(history, ran_s) == left_s


BIG = waiting(2, gpus=2, age_h=1)


def test_a_short_job_passes_one_that_waits_for_a_long_one() -> None:
    """It has run for two hours, and half of those that ran so long took 18 hours more."""
    active = [running(1, 0, ran_h=2, history=LONG)]
    assert starts(View([BIG, waiting(3, history=SHORT)], active)) == [3]
    # Those like it took less than a millisecond: that is known.
    assert starts(View([BIG, waiting(3, history=(0.0,) * 3)], active)) == [3]
    assert starts(View([BIG, waiting(3, history=(HOUR_S * 17,) * 3)], active)) == [3]
    assert starts(View([BIG, waiting(3, history=(HOUR_S * 19,) * 3)], active)) == []


def test_nobody_passes_a_job_that_is_expected_to_start_sooner() -> None:
    active = [running(1, 0, ran_h=0.9, history=(HOUR_S,) * 3)]
    assert starts(View([BIG, waiting(3, history=(HOUR_S,) * 3)], active)) == []
    assert starts(View([BIG, waiting(3, history=SHORT)], active)) == [3]


def test_a_limit_counts_and_not_the_history() -> None:
    active = [running(1, 0, ran_h=1, limit_s=2 * HOUR_S, history=LONG)]
    limited = dataclasses.replace(waiting(3, history=SHORT), request=Request(1, limit_s=3 * HOUR_S))
    assert starts(View([BIG, limited], active)) == []


def test_a_job_of_which_nothing_is_known_passes_nobody() -> None:
    active = [running(1, 0, ran_h=2)]
    assert starts(View([BIG, waiting(3)], active)) == []


def test_of_those_that_pass_the_most_delayed_for_its_length_is_first() -> None:
    active = [running(1, 0, ran_h=50, history=LONG)]
    slow = waiting(3, age_h=2, history=(4 * HOUR_S,) * 3)
    quick = waiting(4, age_h=1, history=SHORT)
    assert starts(View([BIG, slow, quick], active)) == [4]
    urgent = dataclasses.replace(slow, priority=10)
    assert starts(View([BIG, urgent, quick], active)) == [3]


def test_jobs_that_are_alike_keep_their_order() -> None:
    active = [running(1, 0, ran_h=50, history=LONG)]
    first = dataclasses.replace(waiting(5, age_h=0, history=SHORT), rank="a")
    older = dataclasses.replace(waiting(4, age_h=9, history=SHORT), rank="b")
    assert starts(View([dataclasses.replace(BIG, rank="A"), older, first], active)) == [5]


def limited(number: int, limit_h: float, age_h: float, gpus: int = 1, **more: object) -> WaitingJob:
    request = Request(gpus, limit_s=limit_h * HOUR_S)
    return WaitingJob(JobId(number), request, since=NOW - int(age_h * HOUR), **more)  # type: ignore[arg-type]


def served(*jobs: WaitingJob) -> list[int]:
    return [job.id for job in precedence.serving_order(jobs, POLICY, NOW)]


def test_a_job_with_a_limit_moves_ahead_when_it_has_waited_long_for_it() -> None:
    assert served(limited(1, 24, age_h=5), limited(2, 1, age_h=2.9)) == [1, 2]
    assert served(limited(1, 24, age_h=5), limited(2, 1, age_h=3)) == [2, 1]
    # A job for more GPUs has waited with each of them.
    assert served(limited(1, 24, age_h=5), limited(2, 1, age_h=1, gpus=3)) == [2, 1]
    assert starts(View([limited(1, 24, age_h=5), limited(2, 1, age_h=3)], [running(9, 0)])) == [2]


def test_estimates_alone_move_no_job_ahead() -> None:
    """Jobs without limits keep their order; one with a limit passes those that have waited less for their length."""
    quick = waiting(2, age_h=50, history=SHORT)
    assert served(waiting(1, age_h=60, history=LONG), quick) == [1, 2]
    assert served(waiting(1, age_h=60, history=LONG), quick, limited(3, 1, age_h=20)) == [1, 2, 3]
    assert served(waiting(1, age_h=20, history=(10 * HOUR_S,) * 3), limited(3, 1, age_h=9)) == [3, 1]
    # Not even while another one moves ahead, and not before a job whose limit keeps its place.
    assert served(limited(1, 24, age_h=20), waiting(2, age_h=10, history=SHORT), limited(3, 1, age_h=9)) == [3, 1, 2]


def test_a_job_that_has_waited_as_long_as_it_may_be_passed_is_served_first() -> None:
    """The bound is `pass_for`, here a day, for each GPU."""
    assert served(limited(1, 100, age_h=24), limited(2, 1, age_h=20)) == [1, 2]
    assert served(limited(1, 100, age_h=24, gpus=2), limited(2, 1, age_h=20)) == [2, 1]


def test_priority_and_moves_of_a_user_come_before_slowdown() -> None:
    assert served(limited(1, 24, age_h=5, priority=1), limited(2, 1, age_h=5)) == [1, 2]
    own = [limited(n, limit_h, age_h=5, rank=ranks.rank_of_id(n)) for n, limit_h in ((1, 24), (2, 1))]
    assert served(*own) == [2, 1]
    moved = limited(3, 24, age_h=5, rank=ranks.between(own[0].rank, own[1].rank, 3))
    assert served(*own, moved) == [1, 3, 2]


def test_equal_jobs_keep_their_order_when_one_moves_ahead() -> None:
    sweep = [limited(2, 1, age_h=1), limited(3, 1, age_h=5)]
    assert served(limited(1, 24, age_h=5), *sweep) == [2, 3, 1]


def test_why_says_that_a_job_is_ahead_because_of_its_limit() -> None:
    view = View([slow := limited(1, 24, age_h=5), limited(2, 1, age_h=3)], [running(9, 0), running(8, 1)])
    reason = explanation.explain(slow, view, build.inventory(2), POLICY, NOW)
    assert reason.text.endswith("job 2 is ahead of it because it has waited long for its time limit")


def test_passing_ends_when_those_are_gone_that_ran_in_time() -> None:
    """Job 4 passed too late: it gives no reason to pass further, but job 1 does."""
    big = waiting(2, gpus=2, age_h=100)
    late = running(4, 1, ran_h=10, history=LONG)
    quick = waiting(5, history=SHORT)
    assert starts(View([big, quick], [late], user="ada"), count=2) == []
    assert starts(View([big, quick], [running(4, 1, ran_h=90, history=LONG)]), count=2) == [5]
    early = running(1, 0, ran_h=200, history=LONG)
    assert starts(View([dataclasses.replace(big, request=Request(3)), quick], [early, late]), count=3) == [5]


def test_a_job_is_passed_longer_the_more_gpus_it_wants() -> None:
    def closes_at(gpus: int, active: list[Active]) -> float:
        return (precedence.closes_at(waiting(9, gpus, age_h=1), active, POLICY) - NOW) / HOUR

    assert [closes_at(gpus, []) for gpus in (1, 2, 8)] == [23, 47, 191]
    # It became the first to wait when job 3 started; job 10 passed it.
    assert closes_at(2, [running(3, 0, ran_h=0.5), running(10, 1, ran_h=0.25)]) == 47.5


def test_the_wait_of_a_job_that_is_always_passed_is_bounded() -> None:
    """Jobs that are expected to be short and are not come for ever; the big one starts when passing has ended."""
    policy = Policy(pass_for_s=HOUR_S)
    now, number = NOW, 3
    active = [Active(JobId(1), build.ids(0), started_at=now - 50 * HOUR, history=LONG)]
    ends = {JobId(1): now + HOUR}
    big = WaitingJob(JobId(2), Request(2), since=now)
    for _ in range(200):
        quick = [WaitingJob(JobId(number + n), Request(1), since=now, history=SHORT) for n in range(2)]
        number += 2
        for start in planner.plan(View([big, *quick], active), build.inventory(2), policy, now).starts:
            if start.id == big.id:
                assert now - NOW <= 8 * HOUR
                return
            job = next(job for job in quick if job.id == start.id)
            active.append(job.on(start.devices, now))
            ends[start.id] = now + 2 * HOUR
        now = min(ends[job.id] for job in active)
        active = [job for job in active if ends[job.id] > now]
    pytest.fail("the job was passed for ever")


def test_why_says_who_passed_and_until_when() -> None:
    view = View([BIG, waiting(5)], [running(1, 0, ran_h=2, history=LONG), running(3, 1, history=SHORT)])
    reason = explanation.explain(BIG, view, build.inventory(2), POLICY, NOW)
    assert re.search(r"; 1 shorter job started before it, and no more will after 2026-11-1\d \d\d:\d\d$", reason.text)
    old = waiting(2, gpus=2, age_h=100)
    view = View([old], [running(1, 0, ran_h=100, history=LONG), running(3, 1, history=SHORT)])
    told = explanation.explain(old, view, build.inventory(2), POLICY, NOW)
    assert told.text.endswith("; 1 shorter job started before it, and no more will")
