"""One forecast for all requests: as accurate as a separate one, and computed once per state of the queue."""

from __future__ import annotations

import threading

import pytest

import build
from desk import Desk
from dibs.errors import MachineError
from dibs.jobqueue.outlook import QueueOutlook
from dibs.jobqueue.shared_forecast import HOLDS_FOR_MS, SharedForecast
from dibs.model import lifecycle
from dibs.model.jobs import JobId
from dibs.scheduling.durations import Span
from dibs.scheduling.forecasts import Prospect, StartForecaster
from dibs.scheduling.views import Policy, View


def make() -> StartForecaster:
    queue = [build.waiting(number) for number in (1, 2, 3)]
    spans = {job.id: Span(60, 60) for job in queue}
    return StartForecaster(Prospect(View(queue), 4, spans), build.inventory(1), Policy(4), build.NOW)


def asked(forecast: SharedForecast, state: object, now: int = build.NOW) -> StartForecaster:
    with forecast.for_state(state, now, make) as foreseen:
        return foreseen


def test_a_forecast_is_reused_while_nothing_changes_but_not_for_long() -> None:
    forecast = SharedForecast()
    first = asked(forecast, "as it is")
    assert asked(forecast, "as it is") is first
    assert asked(forecast, "as it is", build.NOW + HOLDS_FOR_MS - 1) is first
    assert asked(forecast, "as it is", build.NOW + HOLDS_FOR_MS) is not first


@pytest.mark.parametrize(("state", "now"), [("changed", build.NOW), ("as it is", build.NOW - 1)])
def test_a_change_or_a_clock_step_makes_a_new_forecast(state: str, now: int) -> None:
    forecast = SharedForecast()
    first = asked(forecast, "as it is")
    assert asked(forecast, state, now) is not first


def test_a_failed_forecast_is_tried_again() -> None:
    forecast = SharedForecast()
    first = asked(forecast, "as it was")

    def fail() -> StartForecaster:
        raise MachineError("the disk does not answer.")

    with pytest.raises(MachineError), forecast.for_state("as it is", build.NOW, fail):
        pass
    assert asked(forecast, "as it is") is not first


def test_two_concurrent_requests_share_one_forecast() -> None:
    forecast = SharedForecast()
    found: list[StartForecaster] = []
    with forecast.for_state("as it is", build.NOW, make) as first:
        other = threading.Thread(target=lambda: found.append(asked(forecast, "as it is")))
        other.start()
        assert found == []
    other.join()
    assert found == [first]


class Viewer:
    """A client that reads a queue with one device repeatedly, and counts the plans that took."""

    def __init__(self, desk: Desk) -> None:
        self.store = desk.store
        # Longer than any test takes.
        self.forecast = SharedForecast(holds_for_ms=10**9)
        self.commits = self.plans = 0
        self.submit(30)

    def submit(self, count: int) -> None:
        with self.store.batch():
            self.store.submit([build.spec(gpus=1, limit_s=60.0) for _ in range(count)], build.NOW)
        self.commits += 1

    def outlook(self, forecast: SharedForecast | None) -> QueueOutlook:
        self.store.pause = lambda: None
        view = View(self.store.head(6), self.store.active_devices())
        seen = QueueOutlook(
            view, Policy(4), build.inventory(1), self.store, 30.0, shared=forecast, commits=self.commits
        )
        self.store.pause = self.count
        return seen

    def count(self) -> None:
        self.plans += 1

    def expected(self, job_id: int, forecast: SharedForecast | None = None) -> tuple[object, str]:
        """Return which jobs would start before, in minutes of the longer day, or why that is unknown."""
        found = self.outlook(forecast).expected(self.store.job(JobId(job_id)))
        span = found.range and round((found.range[1] - found.range[0]) / 60_000)
        return span, found.unknown


def test_all_jobs_of_a_queue_are_forecast_with_the_plans_of_one(desk: Desk) -> None:
    viewer = Viewer(desk)
    last = viewer.expected(30, viewer.forecast)
    needed = viewer.plans
    assert last == (29, "")
    assert [viewer.expected(number, viewer.forecast)[0] for number in range(1, 31)] == list(range(30))
    viewer.outlook(viewer.forecast).next_starts(5)
    viewer.outlook(viewer.forecast).plan_ahead(5)
    assert viewer.plans == needed


def test_the_shared_forecast_equals_separate_ones(desk: Desk) -> None:
    viewer = Viewer(desk)
    for number in (7, 30, 1, 15):
        assert viewer.expected(number, viewer.forecast) == viewer.expected(number)


def test_a_change_behind_the_first_of_a_line_is_visible_at_once(desk: Desk) -> None:
    viewer = Viewer(desk)
    assert viewer.expected(20, viewer.forecast) == (19, "")
    assert viewer.store.head(6)[-1].id < 10
    with viewer.store.batch():
        viewer.store.record(viewer.store.job(JobId(10)), lifecycle.CancelAsked(build.NOW))
    viewer.commits += 1
    assert viewer.expected(20, viewer.forecast) == (18, "")
    viewer.submit(1)
    assert viewer.expected(31, viewer.forecast) == (29, "")
