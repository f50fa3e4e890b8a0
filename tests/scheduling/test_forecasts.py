"""When a waiting job starts: the forecast against the days as the simulator then plays them.

A world is its kind and its seed, as in `test_simulation`; a step is one point in its time. `DIBS_PROVE=1` tries more.
"""

import dataclasses
import os
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scheduling.test_planner import WORLDS

import build
import simulation
from dibs.model.jobs import JobId, Outcome, When
from dibs.scheduling import forecasts, planner
from dibs.scheduling.durations import Span
from dibs.scheduling.forecasts import Forecast, FutureJob, Prospect, StartForecaster
from dibs.scheduling.views import Active, Collector, Occupant, Policy, View, WaitingJob

PROVING = bool(os.environ.get("DIBS_PROVE"))
SEEDS = range(300 if PROVING else 10)
KINDS = {
    "kept": {},
    "overrun": {"estimates_hold": False},
    "unlimited": {"has_limits": False, "estimates_hold": False},
    "plain": {"is_plain": True},
    "in order": {"is_plain": True, "has_limits": False},
}


@dataclasses.dataclass(frozen=True)
class Moment:
    """A step of a simulated world, and how long each of its jobs may still take."""

    world: simulation.World
    step: simulation.Step
    spans: dict

    @property
    def prospect(self):
        step = self.step
        batch = {job.id: job.batch for job in self.world.jobs}
        active = [dataclasses.replace(job, batch=batch[job.id]) for job in step.view.active]
        coming = [FutureJob(self.waiting(job), job.joins_at) for job in self.world.jobs if job.joins_at > step.now]
        view = dataclasses.replace(step.view, active=active)
        return Prospect(view, len(step.inventory.devices) + step.policy.cpu_slots, self.spans, coming)

    def waiting(self, job):
        most = self.world.at_once.get(job.batch)
        batch = {job.id: job.batch for job in self.world.jobs}
        under_way = sum(batch[active.id] == job.batch for active in self.step.view.active)
        return WaitingJob(job.id, job.request, job.priority, job.batch, None if most is None else most - under_way)

    def foresee(self, **more):
        prospect, step = self.prospect, self.step
        wanted = [job.id for job in prospect.view.waiting] + [each.job.id for each in prospect.coming]
        return forecast_starts(wanted, prospect, step.inventory, step.policy, step.now, **more)

    def lived(self, choose):
        """Return when and where each job starts if each takes the duration that `choose` picks from its span."""
        ran_s = {job.id: (self.step.now - job.started_at) // 1000 for job in self.step.view.active}
        takes = {job_id: ran_s.get(job_id, 0) + choose(span) for job_id, span in self.spans.items()}
        jobs = [dataclasses.replace(job, takes_s=takes.get(job.id, job.takes_s)) for job in self.world.jobs]
        steps = simulation.run(dataclasses.replace(self.world, jobs=tuple(jobs)))
        return {
            start.id: (step.now, start.devices)
            for step in steps
            for start in step.plan.starts
            if step.now >= self.step.now
        }


def forecast_starts(wanted, *world, **more):
    """Return when jobs are expected to start."""
    return StartForecaster(*world, **more).starts(wanted)


def moment(kind, seed):
    """Choose a step at which jobs wait, and spans around the true durations of the unfinished jobs."""
    dice = Random(seed)
    world = simulation.world(seed, **KINDS[kind], most_jobs=60)
    # Whole seconds, so that the elapsed time of a running job is a whole number too.
    jobs = [dataclasses.replace(job, joins_at=job.joins_at // 1000 * 1000) for job in world.jobs]
    world = dataclasses.replace(world, jobs=tuple(jobs))
    steps = list(simulation.run(world))
    step = dice.choice(steps)
    left_s = {job.id: job.takes_s for job in world.jobs}
    began = {start.id: each.now for each in steps for start in each.plan.starts}
    over = {job_id for job_id, at in began.items() if at + left_s[job_id] * 1000 <= step.now}
    for job in step.view.active:
        left_s[job.id] -= (step.now - job.started_at) // 1000
    spans = {
        job_id: Span(max(1, seconds // dice.randint(1, 3)), seconds * dice.randint(1, 3))
        for job_id, seconds in left_s.items()
        if job_id not in over
    }
    return Moment(world, step, spans)


@pytest.fixture(scope="module", params=[f"{kind}-{seed}" for seed in SEEDS for kind in KINDS])
def now(request):
    kind, seed = request.param.split("-")
    return moment(kind, int(seed))


def test_with_minimum_durations_each_job_starts_at_its_earliest_forecast(now):
    lived = {job_id: at for job_id, (at, _) in now.lived(lambda span: span.least_s).items()}
    assert {job_id: forecast.if_short for job_id, forecast in now.foresee().items()} == lived


def test_with_maximum_durations_each_job_starts_when_and_where_the_forecast_says(now):
    lived = now.lived(lambda span: span.most_s)
    assert {job_id: (forecast.if_long, forecast.devices) for job_id, forecast in now.foresee().items()} == lived


@pytest.mark.parametrize("seed", range(3 * len(SEEDS)))
def test_in_a_fifo_queue_each_job_starts_within_its_forecast_range(seed):
    """Without limits and later jobs there is no backfill, so no anomaly, whatever duration each job takes."""
    then = moment("in order", seed)
    here = tuple(job for job in then.world.jobs if job.joins_at <= then.step.now)
    then = dataclasses.replace(then, world=dataclasses.replace(then.world, jobs=here))
    dice = Random(seed)
    lived = then.lived(lambda span: dice.randint(span.least_s, span.most_s))
    for job_id, forecast in then.foresee().items():
        earliest, latest = forecast.range
        at, _ = lived[job_id]
        assert earliest <= at <= latest


# -- bounds -------------------------------------------------------------------------------------------------------


class CountingPlanner:
    """The planner, with a count of its calls."""

    def __init__(self):
        self.plans = self.looks = 0

    def __call__(self, view, inventory, policy, now):
        self.plans += 1
        self.looks += len(view.waiting)
        return planner.plan(view, inventory, policy, now)


@given(WORLDS, st.dictionaries(st.integers(0, 300), st.tuples(st.floats(0, 1e9), st.none() | st.floats(0, 1e9))))
def test_every_job_has_a_range_or_a_reason_why_not(world, spans):
    known = {JobId(job_id): Span(least, most) for job_id, (least, most) in spans.items()}
    prospect = Prospect(world.view, len(world.inventory.devices) + world.policy.cpu_slots, known)
    wanted = [job.id for job in world.view.waiting]
    for forecast in forecast_starts(wanted, prospect, world.inventory, world.policy, build.NOW).values():
        assert (forecast.range is None) is bool(forecast.unknown)
        assert forecast.range or not forecast.devices


@given(
    WORLDS, st.dictionaries(st.integers(0, 300), st.tuples(st.floats(0, 1e9), st.none() | st.floats(0, 1e9))), st.data()
)
def test_a_shared_forecast_gives_the_same_answers_as_a_separate_one(world, spans, data):
    known = {JobId(job_id): Span(least, most) for job_id, (least, most) in spans.items()}
    prospect = Prospect(world.view, len(world.inventory.devices) + world.policy.cpu_slots, known)
    days = prospect, world.inventory, world.policy, build.NOW
    shared = StartForecaster(*days)
    for job in data.draw(st.permutations(world.view.waiting))[:5]:
        assert shared.starts([job.id]) == StartForecaster(*days).starts([job.id])
    assert shared.next_starts(3) == StartForecaster(*days).next_starts(3)
    assert shared.plan_ahead(3) == StartForecaster(*days).plan_ahead(3)


@pytest.mark.parametrize("job_id", [50_000, 100_000])
def test_the_cost_does_not_grow_with_the_queue(job_id):
    count, policy, inventory = CountingPlanner(), Policy(4), build.inventory(4)
    queue = [build.waiting(number) for number in range(1, 100_001)]
    prospect = Prospect(View(queue), 8, {job.id: Span(60, 60) for job in queue})
    (forecast,) = forecast_starts([JobId(job_id)], prospect, inventory, policy, build.NOW, count).values()
    assert forecast == Forecast(unknown="more than 1600 jobs start before it")
    assert count.plans <= 2 * forecasts.MOST_PLANS


def test_with_many_kinds_of_requests_fewer_jobs_are_examined():
    count, policy, inventory = CountingPlanner(), Policy(4), build.inventory(4)
    queue = [build.waiting(number, limit_s=60.0 + number) for number in range(1, 5001)]
    prospect = Prospect(View(queue), 8, {job.id: Span(60, 60) for job in queue})
    (forecast,) = forecast_starts([JobId(5000)], prospect, inventory, policy, build.NOW, count).values()
    assert forecast.unknown
    assert count.looks <= 2 * (forecasts.MOST_LOOKS + len(queue))


def test_a_job_that_is_not_in_the_input_costs_no_plan():
    count = CountingPlanner()
    prospect = Prospect(View([build.waiting(1)]), 8, {}, cut_lines=[build.waiting(1).line])
    found = forecast_starts([JobId(9)], prospect, build.inventory(4), Policy(4), build.NOW, count)
    assert (found, count.plans) == ({9: forecasts.TOO_FAR}, 0)


# -- one job at a time --------------------------------------------------------------------------------------------

MINUTE = 60_000


#: The lower the index, the later it was used.
LONG_AGO = dict(zip(build.ids(0, 1, 2, 3), (9, 8, 7, 6), strict=True))


def running(number, *indices, batch=0):
    return Active(JobId(number), build.ids(*indices), started_at=build.NOW, batch=batch)


def foreseen(prospect, job_id):
    (forecast,) = forecast_starts([JobId(job_id)], prospect, build.inventory(2), Policy(4), build.NOW).values()
    return forecast


def expected(prospect, job_id):
    """Return the range in minutes from now, or the reason why there is none."""
    forecast = foreseen(prospect, job_id)
    if forecast.range is None:
        return forecast.unknown
    return tuple((at - build.NOW) / MINUTE for at in forecast.range)


def prospect(view, spans, **more):
    """Return a prospect with durations in minutes: (least, most)."""
    seconds = {
        JobId(n): Span(60 * least, most and 60 * most, "has no time limit", "Give it one.")
        for n, (least, most) in spans.items()
    }
    return Prospect(view, 6, seconds, **more)


def test_a_job_with_free_devices_starts_now():
    assert expected(prospect(View([build.waiting(1)]), {1: (1, 2)}), 1) == (0, 0)


def test_a_job_starts_when_enough_devices_are_free():
    view = View([build.waiting(3, gpus=2)], [running(1, 0), running(2, 1)])
    assert expected(prospect(view, {1: (5, 10), 2: (1, 20)}), 3) == (5, 20)


def test_a_running_job_of_unknown_duration_makes_the_latest_start_unknown():
    view = View([build.waiting(3, gpus=2)], [running(1, 0), running(2, 1)])
    assert expected(prospect(view, {1: (5, 10), 2: (0, None)}), 3) == "job 2 has no time limit"


def test_a_running_job_of_unknown_duration_does_not_matter_on_other_devices():
    view = View([build.waiting(3)], [running(1, 0), running(2, 1)])
    assert expected(prospect(view, {1: (5, 10), 2: (9, None)}), 3) == (5, 10)


def test_the_hint_is_to_set_a_time_limit():
    view = View([build.waiting(3)], [running(1, 0, 1)])
    (found,) = forecast_starts(
        [JobId(3)], prospect(view, {1: (0, None)}), build.inventory(2), Policy(4), build.NOW
    ).values()
    assert found.hint == "Give it one."


def test_devices_held_by_other_users_may_be_freed_at_once_or_never():
    view = View([build.waiting(3)], [running(1, 0)], {build.ids(1)[0]: Occupant("bob")})
    assert expected(prospect(view, {1: (5, 10)}), 3) == (0, 10)


def test_forecast_devices_are_those_that_need_no_other_user_to_leave():
    """The earliest start may be on a device that somebody holds; the devices are those it gets even if they stay."""
    view = View([build.waiting(3)], held={build.ids(0)[0]: Occupant("bob")})
    assert foreseen(prospect(view, {}), 3) == Forecast(build.NOW, build.NOW, build.ids(1))
    view = View([build.waiting(3)], [running(1, 1)], {build.ids(0)[0]: Occupant("bob")})
    assert foreseen(prospect(view, {1: (5, 10)}), 3) == Forecast(build.NOW, build.NOW + 10 * MINUTE, build.ids(1))


def test_a_job_without_a_latest_start_has_no_forecast_devices():
    view = View([build.waiting(3)], held=dict.fromkeys(build.ids(0, 1), Occupant("bob")))
    found = foreseen(prospect(view, {}), 3)
    assert (found.if_short, found.if_long, found.devices) == (build.NOW, None, ())


def test_a_device_that_is_checked_first_counts_as_free():
    """A real device is read before it is given to a job; that does not delay the forecast."""
    view = View([build.waiting(3)], held=dict.fromkeys(build.ids(0, 1), Occupant("nobody", note="is checked first")))
    assert foreseen(prospect(view, {}), 3) == Forecast(build.NOW, build.NOW, build.ids(0))


def test_among_equal_devices_the_least_recently_used_are_forecast():
    view = View([build.waiting(n, gpus=2) for n in (1, 2)], used_at=LONG_AGO)
    ahead = prospect(view, {1: (5, 5), 2: (5, 5)})
    found = forecast_starts([JobId(1), JobId(2)], ahead, build.inventory(4), Policy(4), build.NOW)
    assert [found[n].devices for n in (1, 2)] == [build.ids(2, 3), build.ids(0, 1)]


def test_simulated_starts_update_the_order_of_use():
    view = View([build.waiting(n, gpus=2) for n in (1, 2, 3)], [running(4, 2, 3)], used_at=LONG_AGO)
    ahead = prospect(view, {1: (5, 5), 2: (9, 9), 4: (2, 2)})
    found = forecast_starts([JobId(3)], ahead, build.inventory(4), Policy(4), build.NOW)
    assert found[3] == Forecast(build.NOW + 5 * MINUTE, build.NOW + 5 * MINUTE, build.ids(0, 1))


def test_how_long_other_users_stay_is_unknown():
    view = View([build.waiting(3)], held=dict.fromkeys(build.ids(0, 1), Occupant("bob")))
    assert expected(prospect(view, {}), 3) == "bob holds the GPUs it needs for an unknown time"


def test_tickets_ahead_in_the_machine_wide_line_may_stay_too():
    line = [Collector("eve", 1, frozenset(build.ids(0, 1)))]
    view = View([build.waiting(3, gpus=2)], [running(1, 0)], line=line, ahead=1)
    assert expected(prospect(view, {1: (5, 10)}), 3) == "eve is ahead and will use GPUs for an unknown time"


def test_a_faulty_device_stays_faulty():
    view, inventory = View([build.waiting(3, gpus=2)]), build.inventory(2, faulty=[0])
    (found,) = forecast_starts([JobId(3)], prospect(view, {}), inventory, Policy(4), build.NOW).values()
    assert found.unknown == "the GPUs it needs cannot be used now"


def test_while_the_queue_is_paused_there_is_no_forecast():
    assert expected(prospect(View([build.waiting(3)], is_paused=True), {}), 3) == "the queue is paused"


def test_a_job_waits_for_its_begin_time():
    coming = [FutureJob(build.waiting(3), build.NOW + 7 * MINUTE)]
    assert expected(prospect(View(), {}, coming=coming), 3) == (7, 7)


def test_a_job_with_a_begin_time_may_start_before_a_waiting_one():
    view = View([build.waiting(3)], [running(1, 0, 1)])
    coming = [FutureJob(build.waiting(4, gpus=2, priority=1), build.NOW + 2 * MINUTE)]
    assert expected(prospect(view, {1: (5, 5), 4: (10, 20)}, coming=coming), 3) == (15, 25)


def needing(job, *others, when=When.DONE):
    return FutureJob(job, outcomes=[(JobId(other), when, None) for other in others])


def test_a_job_waits_for_waiting_dependencies():
    view = View([build.waiting(2, gpus=2)], [running(1, 0)])
    coming = [needing(build.waiting(4), 3), needing(build.waiting(3), 1, 2)]
    assert expected(prospect(view, {1: (5, 6), 2: (10, 20), 3: (1, 2)}, coming=coming), 4) == (16, 28)


def test_a_job_that_needs_any_of_several_starts_after_the_first():
    view = View([], [running(1, 0), running(2, 1)])
    coming = [needing(build.waiting(3), 1, 2, when=When.ANY)]
    assert expected(prospect(view, {1: (5, 50), 2: (20, 30)}, coming=coming), 3) == (5, 30)


def test_a_job_at_the_end_of_a_dependency_chain_gets_the_reason_of_its_start():
    view = View([], [running(1, 0)])
    coming = [needing(build.waiting(3), 2), needing(build.waiting(2), 1)]
    assert expected(prospect(view, {1: (5, None), 2: (1, 1)}, coming=coming), 3) == "job 1 has no time limit"


def test_a_job_that_depends_on_a_held_job_has_no_forecast():
    coming = [needing(build.waiting(3), 2)]
    assert (
        expected(prospect(View(), {}, coming=coming), 3) == "the end of job 2, which it waits for, cannot be predicted"
    )


def test_finished_dependencies_do_not_count():
    coming = [FutureJob(build.waiting(3), outcomes=[(JobId(1), When.DONE, Outcome.DONE)])]
    assert expected(prospect(View(), {}, coming=coming), 3) == (0, 0)


def test_a_batch_limit_is_respected():
    queue = [WaitingJob(JobId(n), build.waiting().request, batch=7, room=0) for n in (2, 3)]
    view = View(queue, [running(1, 0, batch=7)])
    assert expected(prospect(view, {1: (5, 6), 2: (10, 20)}), 3) == (15, 26)


def test_a_truncated_line_is_forecast_as_far_as_the_input_is_complete():
    queue = [build.waiting(n) for n in range(1, 11)]
    spans = dict.fromkeys(range(1, 11), (1, 1))
    whole, cut = (prospect(View(queue), spans, cut_lines=lines) for lines in ((), [queue[0].line]))
    assert (expected(whole, 6), expected(cut, 6)) == ((2, 2), (2, 2))
    assert (expected(whole, 10), expected(cut, 10)) == ((4, 4), "more than 6 jobs start before it")


def test_a_job_missing_from_the_input_may_start_after_a_dependency_or_at_its_begin_time():
    view = View([build.waiting(3)], [running(1, 0, 1)])
    for cut in ({"cut_needs": [JobId(1)]}, {"known_until": build.NOW + MINUTE}):
        assert expected(prospect(view, {1: (5, 5)}, **cut), 3) == forecasts.TOO_FAR.unknown


def test_the_next_starts_are_in_order():
    queue = [build.waiting(n) for n in (2, 3, 4, 5)]
    ahead = prospect(View(queue, [running(1, 0, 1)]), dict.fromkeys(range(1, 6), (5, 10)))
    found = StartForecaster(ahead, build.inventory(2), Policy(4), build.NOW).next_starts(3)
    ranges = {n: tuple((at - build.NOW) / MINUTE for at in forecast.range) for n, forecast in found.items()}
    assert ranges == {2: (5, 10), 3: (5, 10), 4: (10, 20)}


def test_a_running_job_is_drawn_until_the_next_start_in_its_place():
    view = View([build.waiting(3), build.waiting(4)], [running(1, 0), running(2, 1)])
    known = prospect(view, {1: (5, 10), 2: (5, None), 3: (1, 2)})
    ahead = StartForecaster(known, build.inventory(2), Policy(4), build.NOW).plan_ahead(5)
    assert ahead.ends == {1: build.NOW + 10 * MINUTE}
    assert [(each.id, each.at, each.devices) for each in ahead.planned] == [
        (3, build.NOW + 10 * MINUTE, build.ids(0)),
        (4, build.NOW + 12 * MINUTE, build.ids(0)),
    ]


def test_running_jobs_end_while_the_queue_is_paused():
    view = View([build.waiting(3)], [running(1, 0)], is_paused=True)
    ahead = StartForecaster(prospect(view, {1: (5, 10)}), build.inventory(2), Policy(4), build.NOW).plan_ahead(5)
    assert (ahead.planned, ahead.ends) == ([], {1: build.NOW + 10 * MINUTE})


def test_a_paused_queue_has_no_next_start():
    view = View([build.waiting(1)], is_paused=True)
    assert StartForecaster(prospect(view, {}), build.inventory(2), Policy(4), build.NOW).next_starts(3) == {}
