"""Jobs that wait too long here go elsewhere: after their time, or as soon as it is certain that it will not do."""

from __future__ import annotations

import build
from dibs.jobqueue.remote import overflow
from dibs.model.jobs import Job
from dibs.scheduling.forecasts import Forecast

NOW = build.NOW


def job(number: int = 1, after_s: float | None = 60.0, **more: object) -> Job:
    return build.job(number, overflow="lab", overflow_after_s=after_s, **more)


def test_a_job_that_has_waited_long_enough_goes() -> None:
    assert overflow.decide([job()], {}, NOW + 59_999).why == {}
    assert overflow.decide([job()], {}, NOW + 60_000).why == {1: "it has waited here for 1m00s"}


def test_a_job_that_cannot_start_in_time_goes_at_once() -> None:
    late = Forecast(NOW + 61_000, NOW + 90_000, ())
    assert overflow.decide([job()], {1: late}, NOW).why == {1: "it would not start here for 1m01s"}


def test_a_job_that_may_start_in_time_stays() -> None:
    for expected in (Forecast(NOW, NOW + 10**9, ()), Forecast(NOW + 59_000, NOW + 10**9, ()), Forecast(unknown="x")):
        assert overflow.decide([job()], {1: expected}, NOW).why == {}


def test_the_next_look_is_at_the_first_deadline() -> None:
    found = overflow.decide([job(1, 60.0), job(2, 30.0), job(3, 0.0)], {}, NOW)
    assert (list(found.why), found.look_at) == ([3], NOW + 30_000)
    assert overflow.decide([], {}, NOW).look_at is None


def test_the_usual_wait_and_a_begin_time() -> None:
    assert overflow.deadline(job(after_s=None)) == NOW + 30 * 60_000
    assert overflow.deadline(job(begin_at=NOW + 5_000)) == NOW + 65_000
