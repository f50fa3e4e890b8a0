"""Explain why jobs wait and when they start, for `why`, `status` and the receipt of a submission.

Reads queue, leases and line as the scheduler does, but with names, and changes nothing.
"""

from __future__ import annotations

import bisect
import contextlib
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dibs.engines.remote import Remote
from dibs.errors import MachineError
from dibs.jobqueue import machine_line, shared_forecast, turns
from dibs.jobqueue.remote import reasons as remote_reasons
from dibs.jobqueue.shared_forecast import SharedForecast
from dibs.jobqueue.thread import QueueThread, now_ms
from dibs.leases import blockers
from dibs.model import dependencies, devices, selectors, units
from dibs.model.devices import DeviceId, Inventory
from dibs.model.fields import DEFAULT_PROJECT, JobSpec
from dibs.model.jobs import Cause, Job, JobId, Request, State
from dibs.scheduling import capacity, explanation, forecasts, planner, views, vram_advice
from dibs.scheduling.explanation import Reason
from dibs.scheduling.forecasts import Forecast, StartForecaster
from dibs.scheduling.views import Policy, View, WaitingJob
from dibs.store.writer import Reader
from dibs.system.locks import Folder

#: Dependencies that are named in a reason.
MOST_NAMED = 8
#: Characters of a list of ids that a sentence can hold.
LONGEST_IDS = 60
#: Outcomes that do not fit after "it is".
ENDED = {"failed": "it failed", "cancelled": "it was cancelled", "timeout": "it reached its time limit"}


@dataclass(frozen=True, slots=True)
class KeptBack:
    """Why a free device is not given to our next jobs: it is kept for one that needs more, or by a setting."""

    reserved_for: JobId | None = None
    #: `max_gpus` or `keep_free`, which leave it to other users.
    by: str | None = None


#: A device that is given to the next job that it suits.
NOT_KEPT = KeptBack()


@dataclass(eq=False)
class QueueOutlook:
    """The state of queue and machine, read once to explain many jobs."""

    view: View
    policy: Policy
    inventory: Inventory
    reader: Reader
    grace_s: float
    is_closing: bool = False
    shared: SharedForecast | None = None
    commits: int = 0
    #: Jobs whose start the machine refused, with the reason; they are tried again later.
    resting: Mapping[JobId, str] = field(default_factory=dict)
    #: The engines that others operate, by name.
    remotes: Mapping[str, Remote] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._forecast = self.shared or SharedForecast()
        self._plan: planner.Plan | None = None
        self._places = sorted(head.place for head in self.view.waiting)
        self._heads = {head.id: head for head in self.view.waiting}
        self._explained: dict[tuple[Request, int], Reason] = {}
        self._batches: dict[int, str] = {}

    @classmethod
    def of_queue(cls, core: QueueThread, reader: Reader) -> QueueOutlook:
        """Read the queue and the machine once."""
        # Before anything else is read: the data may then be newer than this commit, but never older.
        commits = core.commits
        inventory, policy = core.devices.inventory(), core.bounding_policy
        active = core.line.apart(reader.active_devices())
        now, pauses = time.monotonic(), core.backoff.pauses
        pause, resting = pauses.told([job.id for job in active], now), pauses.resting(now)
        try:
            held, sharers = machine_line.people(core.line.folder, inventory, active)
            line, ahead = core.line.collectors(inventory)
            policy = machine_line.within_quotas(policy, core.line.bounds(), active)
            positions = core.line.positions(line[:ahead])
            inventory, _ = core.line.with_reservations(inventory, policy.assumed_s, now_ms())
        except (OSError, MachineError):
            if pause is None:
                raise
            # The same trouble pauses all starts, and that is the reason to tell.
            held, sharers, line, ahead, positions = {}, {}, (), 0, {}
        in_use = {device for job in active for device in job.devices}.union(sharers)
        held = dict(core.devices.hold_back(held, in_use))
        heads = views.bounded(core.backoff.waiting_jobs(reader, inventory, policy, now), active, policy)
        heads = core.in_order(heads, active, now_ms())
        is_paused = core.is_closing or bool(reader.fact(turns.PAUSED))
        used_at, is_refused = core.line.used_at(inventory), pause is not None
        trouble = None if is_paused else pause
        heads, active = reader.histories.in_plan(heads, active)
        lendable = core.lendable(held)
        view = View(
            heads, active, held, line, ahead, is_paused or is_refused, sharers, used_at, trouble, positions,
            lendable=lendable,
        )  # fmt: skip
        grace_s, forecast = core.settings.grace, core.forecast
        return cls(view, policy, inventory, reader, grace_s, core.is_closing, forecast, commits, resting, core.remotes)

    def reason(self, job: Job) -> Reason:
        """Return why a waiting job waits."""
        if job.state is State.HELD:
            return self.held(job)
        if not job.is_ready:
            return self._not_ready(job)
        if self.is_closing:
            return Reason("the daemon is draining: it stops when the running jobs have ended and starts no new ones")
        if not job.is_local and not self.view.is_paused and job.id not in self.resting:
            return remote_reasons.of_waiting(job, self.remotes, self.reader)
        if job.id in self.resting and not self.view.is_paused:
            return Reason(f"its start was refused: {self.resting[job.id]}", explanation.BY_ITSELF)
        alike = self._heads.get(job.id)
        waiting = alike or views.bounded([self.reader.waiting(job)], self.view.active, self.policy)[0]
        if waiting.limits or alike is not None:
            return self._explain(waiting)
        # Behind the heads of the lines, jobs with the same request and the same heads before them have the same reason.
        # Explaining is most of the cost of a long list.
        key = waiting.request, bisect.bisect_left(self._places, waiting.place)
        if key not in self._explained:
            self._explained[key] = self._explain(waiting)
        return self._explained[key]

    def active_reason(self, job: Job) -> str | None:
        """Describe an active job."""
        return job.remark or (None if job.is_local else remote_reasons.of_active(job, self.remotes))

    def held(self, job: Job, among: Sequence[JobId] = ()) -> Reason:
        """Return who holds a job and what lets it continue, or all of `among`, which are held for the same reason."""
        ids = selectors.ranges(among or [job.id])
        ids = ids if len(ids) <= LONGEST_IDS else State.HELD.value
        them = "it" if len(among) <= 1 else "them"
        if job.remark == turns.FROM_COPY:
            hint = f"It may have been cancelled or have run since then; `dibs unhold {ids}` releases {them}."
            return Reason(f"held: {job.remark}", f"{hint} `dibs unhold all` releases all held jobs.")
        if job.remark is not None:
            return Reason(f"held: {job.remark}", f"`dibs unhold {self._batch(job)}` releases all of them.")
        if job.held_by is None:
            return Reason("held by you", f"`dibs unhold {ids}` releases {them}.")
        hint = f"If that program is not running, start it again; `dibs unhold {ids}` releases {them} without it."
        return Reason(f"held until `{job.held_by}` releases {them}", hint)

    def _batch(self, job: Job) -> str:
        """Return a selector of the held jobs of a job's batch."""
        if job.spec.sweep is not None:
            project = "" if job.spec.project == DEFAULT_PROJECT else f"{job.spec.project}/"
            return shlex.quote(f"sweep:{project}{job.spec.sweep}")
        if job.spec.batch not in self._batches:
            self._batches[job.spec.batch] = self.reader.held_of_batch(job.spec.batch)
        return self._batches[job.spec.batch]

    def _explain(self, waiting: WaitingJob) -> Reason:
        now = now_ms()
        return explanation.explain(waiting, self.view, self.inventory, self.policy, now, self._planned(now))

    def _planned(self, now: int) -> planner.Plan:
        """Return what starts now."""
        if self._plan is None:
            self._plan = planner.plan(self.view, self.inventory, self.policy, now)
        return self._plan

    def kept_back(self) -> dict[DeviceId, KeptBack]:
        """Return the free devices on which no further job of ours starts now, and why."""
        plan = self._planned(now_ms())
        free = planner.free_devices(self.view, self.inventory) - {d for start in plan.starts for d in start.devices}
        found: dict[DeviceId, KeptBack] = {}
        for reserved in reversed(plan.reserved):
            limit = explanation.own_limit(self._heads[reserved.id], self.view, self.inventory, self.policy, plan)
            why = KeptBack(by=limit) if limit else KeptBack(reserved_for=reserved.id)
            found |= dict.fromkeys(reserved.devices & free, why)
        return found

    def if_submitted(self, spec: JobSpec) -> Forecast:
        """Forecast when and where a job would start if it were submitted now."""
        return self.expected(Job(JobId(self.reader.last_id() + 1), spec, now_ms()))

    def expected(self, job: Job) -> Forecast:
        """Forecast when and where a waiting job starts, or say why that is unknown."""
        now = now_ms()
        if job.state is State.HELD:
            return Forecast(unknown=self.held(job).text)
        if not job.is_local:
            return Forecast(unknown=f"{job.engine} decides when it starts")
        begun = next((active for active in self.view.active if active.id == job.id), None)
        if begun is not None:
            return Forecast(now, now, begun.devices)
        with self._foreseen(now) as foreseen:
            if foreseen.knows(job.id):
                return self._not_before_its_turn(job.id, foreseen.starts([job.id])[job.id], now)
        # It is in no line of the shared forecast: make one that includes its dependencies.
        prospect = self._prospect(now, job)
        own = StartForecaster(prospect, self.inventory, self.policy, now, self._decide).starts([job.id])[job.id]
        return own if job.id > self.reader.last_id() else self._not_before_its_turn(job.id, own, now)

    def next_starts(self, most: int) -> dict[JobId, Forecast]:
        """Return at most `most` jobs that start next, and when."""
        now = now_ms()
        with self._foreseen(now) as foreseen:
            found = foreseen.next_starts(most)
        return {job_id: self._not_before_its_turn(job_id, forecast, now) for job_id, forecast in found.items()}

    def _not_before_its_turn(self, job_id: JobId, forecast: Forecast, now: int) -> Forecast:
        """Return a forecast that agrees with the reason: only what the plan starts now can start now."""
        is_planned = any(start.id == job_id for start in self._planned(now).starts)
        return forecast if is_planned else forecasts.later(forecast, now)

    def plan_ahead(self, most: int) -> forecasts.Ahead:
        """Return when active jobs end, and which jobs start next on which devices, as far as that is known."""
        with self._foreseen(now_ms()) as foreseen:
            return foreseen.plan_ahead(most)

    def _foreseen(self, now: int) -> contextlib.AbstractContextManager[StartForecaster]:
        """Return the forecast that all readers of the same commit and the same machine state share."""

        def make() -> StartForecaster:
            return StartForecaster(self._prospect(now), self.inventory, self.policy, now, self._decide)

        return self._forecast.for_state((self.commits, self.view, self.inventory), now, make)

    def _decide(self, view: View, inventory: Inventory, policy: Policy, now: int) -> planner.Plan:
        self.reader.pause()
        return planner.plan(view, devices.at(inventory, now), policy, now)

    def _prospect(self, now: int, job: Job | None = None) -> forecasts.Prospect:
        # The larger window if any job shares devices: the forecast reads that many jobs of every line.
        window = views.windows(self.inventory, self.policy)[capacity.is_shared(self.view)]
        return shared_forecast.gather(self.reader, self.view, window, self.grace_s, now, job, self.policy)

    def _not_ready(self, job: Job) -> Reason:
        verdict = dependencies.judge(self.reader.outcomes(job.id))
        if isinstance(verdict, dependencies.Open):
            return Reason(f"waiting for {self._told(verdict.ids)}", dependencies.see(verdict.ids[0]))
        if job.spec.begin_at is None:
            return Reason("about to join the queue")
        hint = f"`dibs edit {job.id} --unset begin` lets it start sooner."
        return Reason("waiting for its begin time (--begin)", hint)

    def _told(self, ids: Sequence[JobId]) -> str:
        if len(ids) == 1:
            word = self.reader.job(ids[0]).word
            # A start takes milliseconds: the word would be out of date when it is read.
            return f"job {ids[0]}, which is {'running' if word == State.STARTING.value else word}"
        more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
        return f"jobs {', '.join(str(job_id) for job_id in ids[:MOST_NAMED])}{more}"


def receipt(core: QueueThread, reader: Reader, ids: list[JobId]) -> str:
    """Describe the result of a submission in one line."""
    if len(ids) > 1:
        return f"{len(ids)} jobs queued: {ids[0]}-{ids[-1]}"
    job = reader.job(ids[0])
    what = units.count_gpus(job.spec.request.gpus) if job.spec.request.gpus else "no GPU"
    if not job.is_local:
        return f"{job.id} queued: {what}, on {job.engine}"
    if job.cause is Cause.DEPENDENCY:
        return f"{job.id} {describe(job).removeprefix('it ')}"
    if not job.is_waiting:
        return f"{job.id} queued: {what}, starts now"
    reason = QueueOutlook.of_queue(core, reader).reason(job)
    return f"{job.id} queued: {what}, waits: {reason.text}"


def declared_amiss(core: QueueThread, reader: Reader, ids: list[JobId]) -> list[str]:
    """Return a hint if earlier runs of a single job used much more or less GPU memory than it declares."""
    request = reader.job(ids[0]).spec.request if len(ids) == 1 else None
    if request is None or not request.gpus:
        return []
    known = [device.memory_total for device in core.devices.inventory().devices if device.memory_total is not None]
    card = min(known, default=None) if core.policy.most_sharers > 1 else None
    text = vram_advice.hint(request.vram, reader.earlier_uses(ids[0]), card)
    return [text] if text else []


def explain_state(job: Job, folder: Folder, remotes: Mapping[str, Remote]) -> Reason:
    """Describe the state of a job that is not waiting; of one that starts, also who keeps it from its devices."""
    if not job.is_local and job.is_active:
        where = f" on {job.engine}" + (f", node {job.node}" if job.node else "")
        told = remote_reasons.of_active(job, remotes)
        return Reason(f"{describe(job)}{where}; {told}" if told else f"{describe(job)}{where}")
    blocked = blockers.find(folder, job.allocation) if job.state is State.STARTING else {}
    texts = dict.fromkeys(blocker.text for blocker in blocked.values())
    cures = dict.fromkeys(blocker.cure for blocker in blocked.values())
    return Reason("; ".join([describe(job), *texts]), " ".join(cures))


def describe(job: Job) -> str:
    """Describe the state of a job that is not waiting."""
    told = ENDED.get(job.word, f"it is {job.word}")
    if job.remark:
        return f"{told}: {job.remark}"
    if job.signal is not None:
        return f"{told}: killed by signal {job.signal}"
    if job.is_finished and job.exit_code:
        return f"{told}: exit code {job.exit_code}"
    where = f" on {', '.join(job.allocation)}" if job.is_active and job.allocation else ""
    return f"{told}{where}"
