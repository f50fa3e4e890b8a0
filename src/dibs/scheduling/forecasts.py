"""Forecast when and where a job starts, by running the scheduler's own planner at future times.

Pure. There are two simulations: in one, every job takes its shortest time and other users are gone; in the other, every
job takes its longest time and other users stay. The forecast is the range between both; what the second never reaches
is unknown. Both assume that every job succeeds and nobody submits anything. Work is bounded: beyond the bounds the
answer is unknown too.

The range is no guarantee. If jobs start strictly in order, the start lies in it whenever every job keeps to its span.
Backfill has anomalies: a job that ends sooner may let a third job start, which may then block others later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.model import dependencies
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import JobId, Outcome, Request
from dibs.scheduling import planner, views
from dibs.scheduling.durations import Span
from dibs.scheduling.planner import Plan
from dibs.scheduling.views import Policy, View, WaitingJob

Planner = Callable[[View, Inventory, Policy, int], Plan]
#: Jobs with the same request, batch, group and project form one line.
Line = tuple[Request, int, str, str]

#: Limits per simulation: plans, and jobs passed to all plans together. A plan takes up to 20 µs per job.
MOST_PLANS = 400
MOST_LOOKS = 20_000

#: Milliseconds within which something starts "soon".
SOON_MS = 10_000

UNKNOWN_SPAN = Span(why="cannot be predicted")


@dataclass(frozen=True, slots=True)
class FutureJob:
    """A queued job that is in no line yet: it waits for other jobs or for its begin time."""

    job: WaitingJob
    #: Wall-clock milliseconds.
    begin_at: int | None = None
    outcomes: dependencies.Outcomes = ()


@dataclass(frozen=True)
class Prospect:
    """All information about the future queue, including where that information is incomplete."""

    #: The scheduler's view, but with more jobs of each line than one plan needs.
    view: View
    #: How many jobs of each line the scheduler considers in one plan.
    window: int
    #: The run time of each waiting job and the remaining run time of each running one.
    spans: Mapping[JobId, Span]
    coming: Sequence[FutureJob] = ()
    #: Lines with more jobs than `view` contains.
    cut_lines: Collection[Line] = ()
    #: Jobs with more dependents than `coming` contains.
    cut_needs: Collection[JobId] = ()
    #: From this time on more jobs may begin than `coming` contains.
    known_until: float = math.inf


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a job starts, in wall-clock milliseconds: if all jobs are short, and if all are long."""

    if_short: int | None = None
    if_long: int | None = None
    #: The devices in the long simulation, which assumes that other users release nothing.
    devices: tuple[DeviceId, ...] = ()
    #: Why there is no range, and what would help.
    unknown: str = ""
    hint: str = ""

    @property
    def range(self) -> tuple[int, int] | None:
        """Return the earliest and the latest expected start; None: unknown."""
        if self.if_short is None or self.if_long is None:
            return None
        # With backfill, a job may start earlier in the long simulation.
        return min(self.if_short, self.if_long), max(self.if_short, self.if_long)


def later(forecast: Forecast, now: int) -> Forecast:
    """Return the forecast of a job that does not start now: what it waits for may take longer than foreseen."""
    if forecast.if_short is None or forecast.if_long is None:
        return forecast
    return replace(forecast, if_long=max(forecast.if_long, now + SOON_MS))


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A job, the devices on which it would start, and its end in wall-clock milliseconds; None: unknown."""

    id: JobId
    devices: tuple[DeviceId, ...]
    at: int
    until: int | None


@dataclass(frozen=True, slots=True)
class Ahead:
    """The simulated run in which every job takes its longest time, as far as it is known."""

    #: The next jobs to start, in that order.
    planned: list[PlannedStart]
    #: When active jobs end, in wall-clock milliseconds.
    ends: dict[JobId, int]


#: The answer for a job that the prospect does not contain.
TOO_FAR = Forecast(unknown="too many jobs are ahead of it")


class StartForecaster:
    """Simulates the queue from a given time on, only as far as needed so far. Not thread-safe."""

    def __init__(
        self,
        prospect: Prospect,
        inventory: Inventory,
        policy: Policy,
        now: int,
        decide: Planner = planner.plan,
    ) -> None:
        self.prospect = prospect
        self._decide = decide
        self._known = {job.id for job in prospect.view.waiting} | {each.job.id for each in prospect.coming}
        self._short, self._long = (
            _Simulation(prospect, inventory, policy, now, is_long=is_long) for is_long in (False, True)
        )
        self._ends = {job_id: int(end) for job_id, end in self._long.ends.items() if end != math.inf}

    def knows(self, job_id: JobId) -> bool:
        """Tell whether a job is in a line, or will be."""
        return job_id in self._known

    def starts(self, wanted: Collection[JobId]) -> dict[JobId, Forecast]:
        """Return when each of these waiting jobs is expected to start."""
        if self.prospect.view.is_paused:
            return dict.fromkeys(wanted, Forecast(unknown=self.prospect.view.trouble or "the queue is paused"))
        looked_for = self._known.intersection(wanted)
        for days in (self._short, self._long):
            days.live(self._decide, lambda days=days: looked_for <= days.planned.keys())  # type: ignore[misc]
        return {
            job_id: _forecast(job_id, self._short, self._long) if job_id in self._known else TOO_FAR
            for job_id in wanted
        }

    def next_starts(self, most: int) -> dict[JobId, Forecast]:
        """Return the forecasts of the `most` jobs that start first in the short simulation."""
        if self.prospect.view.is_paused:
            return {}
        self._short.live(self._decide, lambda: len(self._short.planned) >= most)
        return self.starts(list(self._short.planned)[:most])

    def plan_ahead(self, most: int) -> Ahead:
        """Return when running jobs end, and at most `most` next starts with their devices."""
        if not self.prospect.view.is_paused:
            self._long.live(self._decide, lambda: len(self._long.planned) >= most)
        return Ahead(list(self._long.planned.values())[:most], self._ends)


def _forecast(job_id: JobId, short: _Simulation, long: _Simulation) -> Forecast:
    if_short, if_long = short.planned.get(job_id), long.planned.get(job_id)
    if if_short is None or if_long is None:
        why, hint = (short if if_short is None else long).obstacle(job_id)
        return Forecast(if_short.at if if_short else None, if_long.at if if_long else None, (), why, hint)
    return Forecast(if_short.at, if_long.at, if_long.devices)


@dataclass
class _Line:
    """The jobs of one line, in serving order."""

    jobs: list[WaitingJob] = field(default_factory=list)
    is_cut: bool = False


class _Simulation:
    """One simulated run of the queue."""

    def __init__(self, prospect: Prospect, inventory: Inventory, policy: Policy, now: int, *, is_long: bool) -> None:
        self.prospect, self.inventory, self.policy, self.now = prospect, inventory, policy, now
        self.is_long = is_long
        view = prospect.view
        # A device with a note but no holder becomes free by itself soon, or is checked soon.
        self.held = {device: who for device, who in view.held.items() if is_long and who.note is None}
        self.sharers = view.sharers if is_long else {}
        self.others = tuple(view.line) if is_long else ()
        self.ahead = min(view.ahead, len(self.others))
        self.used_at = dict(view.used_at)
        self.lines: dict[Line, _Line] = {line: _Line(is_cut=True) for line in prospect.cut_lines}
        self.room: dict[tuple[str, int | str], int] = {}
        self.active = {job.id: job for job in view.active}
        self.ends: dict[JobId, float] = {job.id: now + self._takes_ms(job.id) for job in view.active}
        self.coming = list(prospect.coming)
        #: When reserved devices can be used again.
        self.openings = sorted({device.closure.until for device in inventory.devices if device.closure is not None})
        self.done: set[JobId] = set()
        #: In the order of their starts.
        self.planned: dict[JobId, PlannedStart] = {}
        #: Number of plans, and of jobs passed to all plans together.
        self.plans = self.looks = 0
        #: Nothing more can be found out.
        self.is_over = False
        #: It ended because of the bounds, not because nothing more happens.
        self.is_beyond = False
        for job in view.waiting:
            self._join(job)
        for line in self.lines.values():
            line.jobs = views.order(line.jobs)

    def _takes_ms(self, job_id: JobId) -> float:
        span = self.prospect.spans.get(job_id, UNKNOWN_SPAN)
        seconds = span.most_s if self.is_long else span.least_s
        return math.inf if seconds is None else round(seconds * 1000)

    def _join(self, job: WaitingJob) -> _Line:
        line = self.lines.setdefault(job.line, _Line())
        line.jobs.append(job)
        for limit in job.limits:
            if limit.key not in self.room:
                self.room[limit.key] = limit.room - self._under_way(limit.key)
        return line

    def _under_way(self, key: tuple[str, int | str]) -> int:
        """Return by how much the use of what a limit bounds has grown since the start of the simulation."""
        begun = sum(job.takes(key) for job in self.prospect.view.active)
        return sum(job.takes(key) for job in self.active.values()) - begun

    def live(self, decide: Planner, is_enough: Callable[[], bool]) -> None:
        """Simulate event by event until enough is known, nothing more happens, or the bounds are reached."""
        while not self.is_over and not is_enough():
            self._live_once(decide)

    def _live_once(self, decide: Planner) -> None:
        """Plan at the next point in time, if there is one within the bounds."""
        is_first = self.plans == 0
        self.is_beyond = self.looks > MOST_LOOKS
        self.is_over = self.is_beyond or not (is_first or self._pass_time())
        if self.is_over:
            return
        self._let_in()
        self.is_beyond = self.is_over = self.plans == MOST_PLANS or self._is_blind()
        if self.is_over:
            return
        heads = [self._with_room(job) for line in self.lines.values() for job in line.jobs[: self.prospect.window]]
        self.plans += 1
        self.looks += len(heads)
        self._place(decide(self._view(heads), self.inventory, self.policy, self.now), heads)

    def _let_in(self) -> None:
        """Queue the jobs whose begin time is reached and whose dependencies are met, if every job succeeds."""
        for each in [
            each for each in self.coming if self._is_due(each) and isinstance(self._judge(each), dependencies.Met)
        ]:
            self.coming.remove(each)
            line = self._join(each.job)
            line.jobs = views.order(line.jobs)

    def _is_due(self, each: FutureJob) -> bool:
        return each.begin_at is None or each.begin_at <= self.now

    def _judge(self, each: FutureJob) -> dependencies.Met | dependencies.Open | dependencies.Hopeless:
        outcomes = [(need, when, Outcome.DONE if need in self.done else end) for need, when, end in each.outcomes]
        return dependencies.judge(outcomes)

    def _is_blind(self) -> bool:
        """Tell whether jobs outside the simulated part of the queue might start now."""
        is_short = any(line.is_cut and len(line.jobs) < self.prospect.window for line in self.lines.values())
        return is_short or self.now >= self.prospect.known_until or not self.done.isdisjoint(self.prospect.cut_needs)

    def _with_room(self, job: WaitingJob) -> WaitingJob:
        left = {limit.key: self.room[limit.key] for limit in job.limits}
        if all(left[limit.key] == limit.room for limit in job.limits):
            return job
        bounds = tuple(replace(limit, room=left[limit.key]) for limit in job.bounds)
        return replace(job, room=left.get(("batch", job.batch)), bounds=bounds)

    def _view(self, heads: Sequence[WaitingJob]) -> View:
        active = list(self.active.values())
        return View(heads, active, self.held, self.others, self.ahead, sharers=self.sharers, used_at=self.used_at)

    def _place(self, plan: Plan, heads: Iterable[WaitingJob]) -> None:
        starts = {start.id: start.devices for start in plan.starts}
        for job in [job for job in heads if job.id in starts]:
            self.active[job.id] = job.on(starts[job.id], self.now)
            self.ends[job.id] = self.now + self._takes_ms(job.id)
            for limit in job.limits:
                self.room[limit.key] -= limit.cost
            if self.used_at:
                self.used_at |= dict.fromkeys(starts[job.id], self.now / 1000)
            end = self.ends[job.id]
            self.planned[job.id] = PlannedStart(job.id, starts[job.id], self.now, None if end == math.inf else int(end))
        for line in self.lines.values():
            # Starting jobs are among the first of their line.
            first = line.jobs[: self.prospect.window]
            line.jobs[: self.prospect.window] = [job for job in first if job.id not in starts]
        if plan.first is None or any(starts.values()):
            # After a start our next ticket goes to the back of the line.
            self.ahead = len(self.others)

    def _pass_time(self) -> bool:
        """Advance to the next time at which a job ends or may begin; tell whether there is one."""
        begins = (each.begin_at for each in self.coming if each.begin_at is not None and each.begin_at > self.now)
        openings = (moment for moment in self.openings if moment > self.now)
        soonest = min((*self.ends.values(), *begins, *openings), default=math.inf)
        if soonest == math.inf:
            return False
        self.now = max(self.now, int(soonest))
        for job_id in [job_id for job_id, end in self.ends.items() if end <= self.now]:
            job = self.active.pop(job_id)
            del self.ends[job_id]
            self.done.add(job_id)
            for key in self.room:
                self.room[key] += job.takes(key)
        return True

    # -- why a forecast is unknown --

    def obstacle(self, job_id: JobId) -> tuple[str, str]:
        """Return why a job did not start in this simulation, and what would help."""
        if self.is_beyond:
            count = len(self.planned)
            return (f"more than {count} jobs start before it" if count else TOO_FAR.unknown), ""
        for each in sorted(self.coming, key=lambda each: -each.job.id):
            # A job depends only on older jobs, so one pass is enough to find the end of the chain.
            if each.job.id == job_id and isinstance(verdict := self._judge(each), dependencies.Open):
                job_id = verdict.ids[0]
        if job_id in self.active:
            return self._endless(job_id)
        job = next((job for line in self.lines.values() for job in line.jobs if job.id == job_id), None)
        if job is None:
            return f"the end of job {job_id}, which it waits for, cannot be predicted", dependencies.see(job_id)
        return self._in_the_way(job)

    def _in_the_way(self, job: WaitingJob) -> tuple[str, str]:
        """Return what keeps a queued job from ever starting in this simulation."""
        wanted = views.eligible(self.inventory, job.request)
        endless = [each for each in self.active.values() if self.ends[each.id] == math.inf]
        endless.sort(key=lambda each: not set(wanted).intersection(each.devices))
        people = [other.user for device, other in self.held.items() if device in wanted]
        people += [other.user for device in wanted for other in self.sharers.get(device, ())]
        if endless and (not people or set(wanted).intersection(endless[0].devices)):
            return self._endless(endless[0].id)
        if people:
            return f"{people[0]} holds the GPUs it needs for an unknown time", ""
        if self.others:
            return f"{self.others[0].user} is ahead and will use GPUs for an unknown time", ""
        return "the GPUs it needs cannot be used now", "`dibs gpus` shows the state of the GPUs."

    def _endless(self, job_id: JobId) -> tuple[str, str]:
        span = self.prospect.spans.get(job_id, UNKNOWN_SPAN)
        return f"job {job_id} {span.why or UNKNOWN_SPAN.why}", span.hint
