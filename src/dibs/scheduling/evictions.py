"""Decide which evictable jobs give up their devices, and for whom.

Pure, like `planner`, which confirms every decision: nothing is evicted unless that lets the waiting job start.
Evictable jobs yield to ordinary ones, and to older evictable ones of the same user that need more GPUs
(`precedence.yields_to`). The daemons of all users decide by the same facts, and each evicts its own jobs.

- A job is not evicted before it has run for `Policy.evict_min_run_s`, and no more jobs are evicted than are needed.
- Jobs that were not evicted last for the same user come first, then those of the waiting user, then those that hold
  the fewest devices beyond what is needed (a large job that yields one GPU loses all and has to collect them again),
  then those that have run for the shortest time.
- No job is evicted forever: see `after`, and `precedence.is_overdue`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import NO, YES, JobId, Request
from dibs.scheduling import capacity, choice, planner, precedence, views
from dibs.scheduling.choice import Room, Want
from dibs.scheduling.planner import Plan
from dibs.scheduling.views import Active, Occupant, Policy, View, WaitingJob


@dataclass(frozen=True, slots=True)
class Eviction:
    """These devices have to be given up for a waiting user."""

    #: The job of ours that gives them up; None: a job of another user does.
    id: JobId | None
    devices: tuple[DeviceId, ...]
    user: str
    #: The job that waits, if it is one of ours.
    waiter: JobId | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Which jobs are evicted now, and when to decide again."""

    evictions: tuple[Eviction, ...] = ()
    #: When the next job has run for the minimum time, if somebody waits for it; wall-clock milliseconds.
    again_at: int | None = None

    @property
    def ours(self) -> tuple[Eviction, ...]:
        """Return the evictions of our own jobs."""
        return tuple(each for each in self.evictions if each.id is not None)


NOTHING = Decision()
#: Milliseconds until the next decision if a job is just starting.
STARTING_MS = 100


def after(request: Request, evictions: int, most: int) -> Request:
    """Return the request of a job after it was evicted this often: from `most` on, it runs to its end.

    One that was evictable because it wrote checkpoints stays so: as an ordinary job it would be ahead of those for whom
    it was evicted.
    """
    return replace(request, evictable=NO if evictions >= most else YES)


def decide(view: View, inventory: Inventory, policy: Policy, now: int, decided: Plan | None = None) -> Decision:
    """Return which evictable jobs stop for the jobs that wait now, ours and those of other users.

    `decided` is the plan for `view`, if there is one.
    """
    view = precedence.with_overdue(view, policy, now)
    ours, is_wanted = _ours(view), _is_wanted(view)
    if not ours or not is_wanted:
        return NOTHING
    running = [*ours, *_others(view)]
    ends = {each: precedence.evictable_at(each.started_at, policy, now) for each in running}
    due = [each for each, at in ends.items() if _is_due(each, at, now)]
    again_at = min((max(at, now + STARTING_MS) for each, at in ends.items() if each not in due), default=None)
    if not due:
        return Decision((), again_at)
    staying = [job for job in view.active if job.leaves_at is None]
    if decided is None or len(staying) < len(view.active):
        # Devices of jobs that are being evicted already count as free: they serve the first who wait.
        view = replace(view, active=staying)
        decided = planner.plan(view, inventory, policy, now)
    ground = _Ground(view, inventory, policy, now, due, decided)
    if not view.is_paused:
        ground.yield_to_own()
    ground.yield_to_others()
    return Decision(tuple(ground.found.values()), again_at)


def _is_due(yielder: _Yielder, at: int, now: int) -> bool:
    """Tell whether a job may be evicted now; one that is just starting may not."""
    return yielder.started_at is not None and at <= now


def _is_wanted(view: View) -> bool:
    """Tell whether a job waits for devices that others give up: an ordinary one, or one of ours with several GPUs."""
    own = any(job.request.gpus > job.is_evictable for job in view.waiting)
    return own or any(not other.is_evictable for other in view.line)


@dataclass(frozen=True, slots=True)
class _Yielder:
    """An evictable job that is running, ours or another user's."""

    #: None: it is another user's.
    job: Active | None
    user: str
    devices: tuple[DeviceId, ...]
    started_at: int | None
    evicted_by: str

    @property
    def id(self) -> JobId | None:
        """Return the job, if it is ours."""
        return None if self.job is None else self.job.id


@dataclass(frozen=True, slots=True)
class _Claim:
    """Devices that an ordinary waiting job has a right to."""

    user: str
    count: int
    devices: Sequence[str]
    mib: int
    waiter: WaitingJob | None = None

    def may_take(self, yielder: _Yielder) -> bool:
        """Tell whether a job yields to this claim; evictable jobs yield to those of the same user only."""
        if self.waiter is None or not self.waiter.is_evictable:
            return True
        return yielder.job is not None and precedence.yields_to(yielder.job, self.waiter)

    def preference(self, yielder: _Yielder, need: int) -> tuple[bool, bool, int, int, Sequence[str]]:
        """Return the key that sorts the jobs that could yield `need` devices, those to evict first at the front."""
        is_again = yielder.evicted_by == self.user
        needless = max(0, len(yielder.devices) - need)
        return is_again, yielder.user != self.user, needless, -(yielder.started_at or 0), yielder.devices


def _ours(view: View) -> list[_Yielder]:
    return [
        _Yielder(job, view.user, job.devices, job.started_at, job.evicted_by)
        for job in view.active
        if job.is_evictable and job.devices and job.leaves_at is None
    ]


def _others(view: View) -> list[_Yielder]:
    """Return the evictable jobs of other users; one that holds several devices yields them together."""
    jobs: dict[Occupant, list[DeviceId]] = {}
    for device, who in view.held.items():
        if who.is_evictable and who.started_at is not None:
            jobs.setdefault(who, []).append(device)
    return [
        _Yielder(None, who.user, tuple(sorted(devices)), who.started_at, who.evicted_by)
        for who, devices in jobs.items()
    ]


def _without(view: View, gone: Collection[_Yielder]) -> View:
    ids = {each.id for each in gone}
    given = {device for each in gone for device in each.devices}
    active = [job for job in view.active if job.id not in ids]
    held = {device: who for device, who in view.held.items() if device not in given}
    return replace(view, active=active, held=held)


@dataclass
class _Ground:
    """The machine while evictions are decided: every eviction leaves more devices free."""

    view: View
    inventory: Inventory
    policy: Policy
    now: int
    yielders: list[_Yielder]
    #: What starts in `view`.
    plan: Plan
    found: dict[_Yielder, Eviction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = self.view
        #: Our jobs on each device, those that are evicted included.
        self._users: dict[DeviceId, list[Active]] = {}
        for job in self.view.active:
            for device in job.devices:
                self._users.setdefault(device, []).append(job)

    # -- our own waiting jobs

    def yield_to_own(self) -> None:
        """Evict for each of our ordinary jobs, in order, what it lacks."""
        hopeless: set[Request] = set()
        while (job := self._first_claim(hopeless)) is not None:
            if not self._yield_to(job):
                hopeless.add(job.request)
        if len(self.found) > 1:
            self._drop_needless()

    def _drop_needless(self) -> None:
        """Keep a job that is not needed after all: one evicted later for two devices may serve two who wait."""
        waiters = {each.waiter for each in self.found.values()}
        for yielder in list(self.found):
            rest = [other for other in self.found if other is not yielder]
            view = _without(self._before, rest)
            plan = planner.plan(view, self.inventory, self.policy, self.now)
            if waiters.issubset(start.id for start in plan.starts):
                del self.found[yielder]
                self.yielders.append(yielder)
                self.view, self.plan = view, plan

    def _first_claim(self, hopeless: Collection[Request]) -> WaitingJob | None:
        pool = planner.pool_of(_started(self.view, self.plan), self.inventory, self.policy)
        for job in self.plan.waits:
            request = job.request
            is_within_share = job.is_evictable or request.vram > 0 or request.gpus <= pool.gpus
            if request.gpus > job.is_evictable and request not in hopeless and is_within_share:
                return job
        return None

    def _yield_to(self, job: WaitingJob) -> bool:
        """Evict what lets a job of ours start; tell whether that is possible."""
        wanted = views.eligible(self.inventory, job.request)
        claim = _Claim(self.view.user, job.request.gpus, wanted, job.request.mib, job)
        rooms = self._rooms(_started(self.view, self.plan))
        fitting = sum(device in rooms and rooms[device].fits(claim.mib) for device in wanted)
        # Free devices may be kept for others: then more of them are needed than it seems.
        for kept in range(min(fitting, claim.count) + 1):
            chosen = self._choose(claim, max(0, claim.count - fitting) + kept)
            if chosen is None:
                return False
            view = _without(self.view, chosen)
            plan = planner.plan(view, self.inventory, self.policy, self.now)
            if any(start.id == job.id for start in plan.starts):
                self._accept(chosen, claim, view, plan)
                return True
        return False

    # -- other users

    def yield_to_others(self) -> None:
        """Evict for each ticket of an ordinary job, in order, what it lacks."""
        line = [each for each in self.view.line if not each.is_evictable]
        wants = [Want(each.count, tuple(each.devices), each.mib, each.is_emptying) for each in line]
        for place, other in enumerate(line):
            lacking = self._lacking(wants, place, self.view)
            if not lacking:
                continue
            claim = _Claim(other.user, other.count, wants[place].devices, other.mib)
            chosen = self._choose(claim, lacking)
            if chosen is not None and not self._lacking(wants, place, view := _without(self.view, chosen)):
                self._accept(chosen, claim, view, self.plan)

    def _lacking(self, wants: Sequence[Want], place: int, view: View) -> int:
        """Return how many devices a ticket lacks, after our starts and the tickets before it."""
        served, _ = choice.serve(wants[: place + 1], self._rooms(_started(view, self.plan)))
        return wants[place].count - served[place]

    # -- both

    def _choose(self, claim: _Claim, need: int) -> list[_Yielder] | None:
        """Return the fewest jobs, in order of preference, that free `need` devices for a claim; None: they cannot."""
        wanted = frozenset(claim.devices)
        able = [each for each in self.yielders if claim.may_take(each) and not wanted.isdisjoint(each.devices)]
        able.sort(key=lambda each: claim.preference(each, need))
        chosen: list[_Yielder] = []
        for each in able:
            if self._freed(claim, chosen) >= need:
                break
            chosen.append(each)
        if self._freed(claim, chosen) < need:
            return None
        for each in reversed(chosen):
            rest = [other for other in chosen if other is not each]
            if self._freed(claim, rest) >= need:
                chosen = rest
        return chosen

    def _freed(self, claim: _Claim, gone: Sequence[_Yielder]) -> int:
        """Return on how many more devices a claim fits when these jobs are gone."""
        touched = {device for each in gone for device in each.devices}.intersection(map(DeviceId, claim.devices))
        ids = {each.id for each in gone}.union(each.id for each in self.found)
        return sum(self._fits(device, ids, claim.mib) for device in touched)

    def _fits(self, device: DeviceId, gone: Collection[JobId | None], mib: int) -> bool:
        """Tell whether a claim fits on a device of jobs that are gone, beside those that share it."""
        staying = [job for job in self._users.get(device, ()) if job.id not in gone]
        if any(not job.mib for job in staying):
            return False
        shares = [*(job.mib for job in staying), *(who.mib for who in self.view.sharers.get(device, ()))]
        size = capacity.capacity_mib(self.inventory.by_id[device])
        return choice.room(size, self.policy.most_sharers, shares).fits(mib)

    def _rooms(self, view: View) -> Mapping[DeviceId, Room]:
        if capacity.is_shared(view):
            return capacity.rooms_of_view(view, self.inventory, self.policy)
        return dict.fromkeys(planner.free_devices(view, self.inventory, ignores_foreign=True), capacity.WHOLE)

    def _accept(self, chosen: Iterable[_Yielder], claim: _Claim, view: View, plan: Plan) -> None:
        """Evict these jobs for a claim; what they leave is free for the next claims."""
        gone = list(chosen)
        waiter = None if claim.waiter is None else claim.waiter.id
        self.found |= {each: Eviction(each.id, each.devices, claim.user, waiter) for each in gone}
        self.yielders = [each for each in self.yielders if each not in gone]
        self.view, self.plan = view, plan


def _started(view: View, plan: Plan) -> View:
    """Return the view after the starts of a plan."""
    waiting = {job.id: job for job in view.waiting}
    new: list[Active] = [waiting[start.id].on(() if start.is_loan else start.devices) for start in plan.starts]
    return replace(view, active=[*view.active, *new])
