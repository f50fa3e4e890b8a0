"""Traces and the work that is made from them: what is read, what is refused and on which line, and the seed."""

from __future__ import annotations

import pytest

from dibs.errors import UserError
from dibs.scheduling.simulation import traces, workloads
from dibs.scheduling.simulation.traces import TraceJob

HEADER = "submit_time_s,duration_s,gpus,tenant,limit_s"


def test_jobs_are_read_in_order_of_submission() -> None:
    lines = [HEADER, "60,10,2,ada,3600", "0,5.5,1,bob,", "", "60,1,4"]
    assert traces.read(lines) == [
        TraceJob(1, 0, 5.5, 1, "bob"),
        TraceJob(2, 60, 10, 2, "ada", 3600),
        TraceJob(3, 60, 1, 4),
    ]


def test_columns_may_come_in_any_order_beside_others() -> None:
    assert traces.read(["user,gpus,submit_time_s,duration_s", "ada,2,1,3"]) == [TraceJob(1, 1, 3, 2)]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], 'line 1 of the trace: expected a column submit_time_s, got "nothing".'),
        (["a,b"], 'line 1 of the trace: expected a column submit_time_s, got "a,b".'),
        ([HEADER], "a trace expected at least one job, got none."),
        ([HEADER, "0,1,1", "x,1,1"], 'line 3 of the trace: expected a number of seconds as submit_time_s, got "x".'),
        ([HEADER, "0,-1,1"], 'line 2 of the trace: expected duration_s from 0 to 3200000000, got "-1".'),
        (
            [HEADER, "nan,1,1"],
            'line 2 of the trace: expected submit_time_s from -1000000000000 to 1000000000000, got "nan".',
        ),
        ([HEADER, "0,inf,1"], 'line 2 of the trace: expected duration_s from 0 to 3200000000, got "inf".'),
        ([HEADER, "0,1e300,1"], 'line 2 of the trace: expected duration_s from 0 to 3200000000, got "1e300".'),
        ([HEADER, "0,1,1,ada,5,6"], 'line 2 of the trace: expected at most 5 values, got "0,1,1,ada,5,6".'),
        (
            ["submit_time_s,duration_s,gpus,gpus"],
            'line 1 of the trace: expected one column gpus, got "submit_time_s,duration_s,gpus,gpus".',
        ),
        ([HEADER, '0,1,"1'], 'line 2 of the trace: expected comma-separated values, got "unexpected end of data".'),
        ([HEADER, "0,1,0"], 'line 2 of the trace: expected gpus from 1 to 100000, got "0".'),
        ([HEADER, "0,1,1.5"], 'line 2 of the trace: expected a whole number of gpus, got "1.5".'),
        ([HEADER, "0,1"], 'line 2 of the trace: expected a whole number of gpus, got "".'),
        ([HEADER, "0,1,1,ada,0"], 'line 2 of the trace: expected limit_s from 1 to 3200000000, got "0".'),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(lines: list[str], text: str) -> None:
    with pytest.raises(UserError) as refused:
        traces.read(lines)
    assert refused.value.message == text


def jobs(count: int = 2000) -> list[TraceJob]:
    """Return a job every 100 s, of 1 to 8 GPUs and up to 9 hours."""
    return [TraceJob(n, n * 100.0, (n * 7919) % 32400 + 1.0, (1, 1, 2, 8)[n % 4]) for n in range(1, count + 1)]


@pytest.mark.parametrize("load", [0.5, 3.0])
def test_a_load_is_reached_by_leaving_out_jobs_or_by_submitting_faster(load: float) -> None:
    work = workloads.make(jobs(), 4, 8, load=load, seed=1)
    assert work.load == pytest.approx(load)
    assert (len(work.jobs) < 2000) is (load < workloads.offered_gpus(jobs()) / 32)


def test_the_same_seed_makes_the_same_work() -> None:
    made = [workloads.make(jobs(), 2, 8, load=0.5, seed=seed, evictable=0.5) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_made_up_limits_are_kept_by_the_jobs_and_rounded() -> None:
    work = workloads.make(jobs(), 1, 8)
    assert work.has_made_up_limits
    assert all(job.limit_s is not None and job.limit_s >= job.duration_s for job in work.jobs)
    assert {job.limit_s for job in work.jobs} <= set(workloads.USUAL_LIMITS_S)


def test_limits_of_the_trace_stay_unless_they_are_to_be_ignored() -> None:
    own = [TraceJob(1, 0, 5, 1, limit_s=7), TraceJob(2, 0, 5, 1)]
    assert [job.limit_s for job in workloads.make(own, 1, 8).jobs] == [7, None]
    assert [job.limit_s for job in workloads.make(own, 1, 8, has_limits=False).jobs] == [None, None]


def test_a_share_of_the_long_jobs_is_evictable() -> None:
    work = workloads.make(jobs(), 1, 8, evictable=0.6)
    long = [job for job in work.jobs if job.duration_s >= workloads.EVICTABLE_FROM_S]
    assert all(not job.is_evictable for job in work.jobs if job not in long)
    assert sum(job.is_evictable for job in long) / len(long) == pytest.approx(0.6, abs=0.05)


def test_jobs_larger_than_all_boxes_are_left_out_and_counted() -> None:
    work = workloads.make([TraceJob(1, 0, 5, 17), TraceJob(2, 0, 5, 16)], 2, 8)
    assert ([job.id for job in work.jobs], work.too_large) == ([2], 1)
