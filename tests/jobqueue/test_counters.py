"""What the daemon counts: waiting times of first starts, ends of attempts, and idle gaps of devices."""

from __future__ import annotations

from dataclasses import replace

import build
from dibs.jobqueue.counters import Histogram, Tally
from dibs.model.devices import DeviceId
from dibs.model.jobs import Cause, Job, Outcome, State

ONE, TWO = DeviceId("GPU-1"), DeviceId("GPU-2")


def ran(submitted_at: int, started_at: int, finished_at: int, *devices: DeviceId, vram: int = 0) -> Job:
    job = build.job(gpus=len(devices) or 0)
    return replace(
        job,
        spec=replace(job.spec, request=replace(job.spec.request, vram=vram)),
        state=State.FINISHED,
        outcome=Outcome.DONE,
        start=1,
        allocation=devices,
        submitted_at=submitted_at,
        started_at=started_at,
        finished_at=finished_at,
    )


def gaps(*jobs: Job) -> tuple[int, float]:
    tally = Tally()
    tally.count([], jobs, 0)
    return sum(tally.gaps.counts), tally.gaps.total


def test_a_value_belongs_to_the_first_bucket_that_it_does_not_exceed() -> None:
    counted = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        counted.add(value)
    assert (counted.counts, counted.total) == ([2, 2, 1], 7.5)


def test_a_gap_is_the_time_between_an_end_and_the_start_of_a_job_that_was_waiting() -> None:
    assert gaps(ran(0, 0, 1000, ONE), ran(500, 1004, 2000, ONE), ran(600, 2010, 3000, ONE)) == (2, 0.014)


def test_a_device_that_was_idle_before_the_submit_has_no_gap() -> None:
    assert gaps(ran(0, 0, 1000, ONE), ran(5000, 5004, 6000, ONE)) == (0, 0.0)


def test_devices_have_separate_gaps() -> None:
    assert gaps(ran(0, 0, 1000, ONE), ran(0, 0, 3000, TWO), ran(0, 3005, 4000, ONE, TWO)) == (2, 2.01)


def test_jobs_that_share_a_device_have_no_gaps() -> None:
    assert gaps(ran(0, 0, 1000, ONE, vram=1), ran(0, 1004, 2000, ONE, vram=1)) == (0, 0.0)


def test_the_wait_begins_at_the_submit_or_at_the_begin_time() -> None:
    tally = Tally()
    at_once, later = replace(build.job(), start=1, submitted_at=1000), replace(build.job(), start=1, submitted_at=1000)
    later = replace(later, spec=replace(later.spec, begin_at=3000))
    tally.count([at_once, later, replace(at_once, attempt=2), replace(at_once, start=2)], [], 3500)
    assert (sum(tally.waits.counts), tally.waits.total) == (2, 3.0)


def test_ends_are_counted_by_outcome_and_cause_for_started_attempts_only() -> None:
    tally = Tally()
    failed = replace(ran(0, 0, 1), outcome=Outcome.FAILED, cause=Cause.OOM)
    tally.count([], [ran(0, 0, 1), failed, failed, replace(failed, start=0)], 0)
    assert tally.ends == {("done", ""): 1, ("failed", "oom"): 2}
