"""Simulated days: random queues, machines and other users, and a clock that jumps from event to event.

Pure and seeded: `world(seed, ...)` is always the same world, and `run` feeds one to a planner and yields every plan.
True run times are known only here. Nothing is checked here; that is for the tests.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import build
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import JobId, Request
from dibs.scheduling import capacity, choice, planner
from dibs.scheduling.planner import Plan
from dibs.scheduling.views import Active, Collector, Occupant, Policy, View, WaitingJob

Planner = Callable[[View, Inventory, Policy, int], Plan]

SECOND = 1000
HOUR_S = 3600
TYPES = ("NVIDIA A100", "Tesla T4")


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job with facts that only its author knows."""

    id: JobId
    request: Request
    #: When it joins the line: submitted, and its begin time has come.
    joins_at: int
    #: How long it really runs.
    takes_s: int
    priority: int = 0
    batch: int = 0

    @property
    def overruns(self) -> bool:
        """Return whether it takes longer than its limit."""
        return self.request.limit_s is not None and self.takes_s > self.request.limit_s


@dataclass(frozen=True, slots=True)
class Visit:
    """Another user comes, waits in the machine-wide line for some devices, and holds them for a while."""

    comes_at: int
    stays_s: int
    collector: Collector


@dataclass(frozen=True, slots=True)
class Fault:
    """A device is faulty for a while."""

    device: DeviceId
    from_at: int
    until_at: int


@dataclass(frozen=True, slots=True)
class Strangers:
    """Processes without a lease use some memory of a device for a while."""

    device: DeviceId
    from_at: int
    until_at: int
    memory: int


@dataclass(frozen=True)
class World:
    """A machine, its rules, and all future events."""

    inventory: Inventory
    policy: Policy
    jobs: tuple[SimulatedJob, ...]
    #: How many jobs of a batch may run at once.
    at_once: dict[int, int] = field(default_factory=dict)
    visits: tuple[Visit, ...] = ()
    faults: tuple[Fault, ...] = ()
    strangers: tuple[Strangers, ...] = ()


@dataclass(frozen=True)
class Step:
    """One plan, and its whole input."""

    now: int
    view: View
    inventory: Inventory
    policy: Policy
    plan: Plan

    def after(self) -> View:
        """Return the view after the starts of the plan."""
        started = {start.id: start.devices for start in self.plan.starts}
        new = [_active(job, started[job.id], self.now) for job in self.view.waiting if job.id in started]
        room = dict.fromkeys((job.batch for job in self.view.waiting), 0)
        for job in self.view.waiting:
            room[job.batch] += job.id in started
        left = [
            dataclasses.replace(job, room=None if job.room is None else job.room - room[job.batch])
            for job in self.view.waiting
            if job.id not in started
        ]
        ahead = len(self.view.line) if any(started.values()) else self.view.ahead
        return dataclasses.replace(self.view, waiting=left, active=[*self.view.active, *new], ahead=ahead)


def _active(job: WaitingJob, devices: tuple[DeviceId, ...], now: int) -> Active:
    request = job.request
    return Active(job.id, devices, request.cpus, request.mem, request.limit_s, now, mib=request.mib)


def run(world: World, decide: Planner = planner.plan) -> Iterator[Step]:
    """Simulate a world from its first event to its last; yield every plan."""
    return _Days(world, decide).steps()


class _Days:
    """A world being simulated."""

    def __init__(self, world: World, decide: Planner) -> None:
        self.world, self.decide = world, decide
        self.coming = sorted(world.jobs, key=lambda job: (job.joins_at, job.id))
        self.visits = sorted(world.visits, key=lambda visit: visit.comes_at)
        self.jobs = {job.id: job for job in world.jobs}
        self.queue: dict[JobId, SimulatedJob] = {}
        self.active: dict[JobId, Active] = {}
        self.ends: dict[JobId, int] = {}
        self.line: list[Visit] = []
        self.held: dict[DeviceId, tuple[int, str]] = {}
        #: Until when another user shares a device, who, and with how many MiB.
        self.shares: list[tuple[DeviceId, int, str, int]] = []
        #: Our ticket, and how many others are before it; None: we have none.
        self.ticket: choice.Want | None = None
        self.ahead = 0

    def steps(self) -> Iterator[Step]:
        """Jump from event to event until there are no more."""
        now = -1
        while (soonest := min((at for at in self._moments() if at > now), default=None)) is not None:
            now = soonest
            inventory = self._pass_time(now)
            self._serve_others(now, inventory)
            if self.queue:
                yield self._place(now, inventory)
                self._serve_others(now, inventory)

    def _moments(self) -> Iterator[int]:
        yield from self.ends.values()
        yield from (until for until, _ in self.held.values())
        yield from (share[1] for share in self.shares)
        yield from (job.joins_at for job in self.coming[:1])
        yield from (visit.comes_at for visit in self.visits[:1])
        for change in (*self.world.faults, *self.world.strangers):
            yield from (change.from_at, change.until_at)

    def _pass_time(self, now: int) -> Inventory:
        for job_id in [job_id for job_id, end in self.ends.items() if end <= now]:
            del self.ends[job_id], self.active[job_id]
        self.held = {device: stay for device, stay in self.held.items() if stay[0] > now}
        self.shares = [share for share in self.shares if share[1] > now]
        while self.coming and self.coming[0].joins_at <= now:
            job = self.coming.pop(0)
            self.queue[job.id] = job
        while self.visits and self.visits[0].comes_at <= now:
            self.line.append(self.visits.pop(0))
            # Without a ticket we would be behind everybody.
            self.ahead += self.ticket is None
        unwell = {fault.device for fault in self.world.faults if fault.from_at <= now < fault.until_at}
        return _with_strangers(_with_faults(self.world.inventory, unwell), self.world.strangers, now)

    def _serve_others(self, now: int, inventory: Inventory) -> None:
        """Let the others collect their devices, by the same rule, earlier tickets and ours first."""
        for visit in list(self.line):
            place = self.line.index(visit)
            before = [_want(other.collector) for other in self.line[:place]]
            if self.ticket is not None and self.ahead <= place:
                before.insert(self.ahead, self.ticket)
            left = capacity.rooms_of_view(self._view(), inventory, self.world.policy)
            left = {device: room for device, room in left.items() if device in inventory.usable()}
            who = visit.collector
            chosen = choice.choose(who.count, sorted(who.devices), left, before, choice.Terms(who.mib))
            if chosen is not None:
                until = now + visit.stays_s * SECOND
                if who.mib:
                    self.shares += [(DeviceId(device), until, who.user, who.mib) for device in chosen]
                else:
                    self.held |= {DeviceId(device): (until, who.user) for device in chosen}
                self.line.remove(visit)
                self.ahead -= place < self.ahead

    def _view(self) -> View:
        sharers: dict[DeviceId, list[Occupant]] = {}
        for device, _, user, mib in self.shares:
            sharers.setdefault(device, []).append(Occupant(user, mib=mib))
        return View(
            [self._waiting(job) for job in self.queue.values()],
            list(self.active.values()),
            {device: Occupant(user) for device, (_, user) in self.held.items()},
            [visit.collector for visit in self.line],
            self.ahead,
            sharers=sharers,
        )

    def _place(self, now: int, inventory: Inventory) -> Step:
        view = self._view()
        plan = self.decide(view, inventory, self.world.policy, now)
        for start in plan.starts:
            job = self.queue.pop(start.id)
            self.active[job.id] = _active(self._waiting(job), start.devices, now)
            self.ends[job.id] = now + job.takes_s * SECOND
        if plan.first is None or any(start.devices for start in plan.starts):
            self.ahead = len(self.line)
        self.ticket = plan.first and choice.Want(
            plan.first.request.gpus, planner.collected(plan, inventory), plan.first.request.mib
        )
        return Step(now, view, inventory, self.world.policy, plan)

    def _waiting(self, job: SimulatedJob) -> WaitingJob:
        most = self.world.at_once.get(job.batch)
        under_way = sum(self.jobs[other].batch == job.batch for other in self.active) if most is not None else 0
        return WaitingJob(job.id, job.request, job.priority, job.batch, None if most is None else most - under_way)


def _want(collector: Collector) -> choice.Want:
    return choice.Want(collector.count, tuple(collector.devices), collector.mib, collector.is_emptying)


def _with_faults(inventory: Inventory, unwell: set[DeviceId]) -> Inventory:
    if not unwell:
        return inventory
    devices = (dataclasses.replace(d, fault="lost" if d.id in unwell else None) for d in inventory.devices)
    return Inventory(tuple(devices))


def _with_strangers(inventory: Inventory, strangers: Sequence[Strangers], now: int) -> Inventory:
    """Return the devices with their current foreign use."""
    used = {each.device: each.memory for each in strangers if each.from_at <= now < each.until_at}
    if not used:
        return inventory
    devices = (
        dataclasses.replace(d, foreign="used by bob", foreign_memory=used[d.id]) if d.id in used else d
        for d in inventory.devices
    )
    return dataclasses.replace(inventory, devices=tuple(devices))


# -- random worlds ------------------------------------------------------------------------------------------------


def world(
    seed: int,
    *,
    estimates_hold: bool = True,
    has_limits: bool = True,
    has_others: bool = False,
    is_plain: bool = False,
    has_sharing: bool = False,
    most_jobs: int = 90,
) -> World:
    """Make a world of one to three days.

    Plain: jobs request any devices and nothing else. Where estimates hold, no job outlives its limit, or the time that
    is assumed for a job without one; otherwise some take up to four times as long.
    """
    dice = Random(seed)
    count = dice.choice((0, 1, 2, 3, 4, 4, 8)) if not is_plain else dice.choice((2, 3, 4, 8))
    inventory = build.inventory(count, names={n: dice.choice(TYPES) for n in range(count)})
    policy = _policy(dice, count, is_plain)
    at_once = {} if is_plain else {batch: dice.randint(1, 3) for batch in range(1, dice.randint(1, 4))}
    jobs = _jobs(dice, inventory, policy, dice.randint(most_jobs // 3, most_jobs), at_once, is_plain)
    if has_sharing:
        jobs = [_sharing(dice, job) for job in jobs]
    jobs = [_timed(dice, job, policy, estimates_hold, has_limits) for job in jobs]
    end_at = max(job.joins_at for job in jobs)
    visits, faults = _others(dice, inventory, end_at, has_sharing) if has_others and count else ((), ())
    strangers = _strangers(dice, inventory, end_at) if has_others and has_sharing and count else ()
    return World(inventory, policy, tuple(jobs), at_once, visits, faults, strangers)


def _policy(dice: Random, count: int, is_plain: bool) -> Policy:
    assumed_s = dice.choice((2, 6, 24)) * HOUR_S
    if is_plain:
        return Policy(assumed_s=assumed_s)
    max_gpus = dice.choice((None, None, max(1, count - 1), max(1, count // 2)))
    keep_free = dice.choice((0, 0, 0, 1)) if count > 1 else 0
    return Policy(dice.randint(1, 8), dice.choice((None, 64)), assumed_s, max_gpus, keep_free)


def _jobs(
    dice: Random, inventory: Inventory, policy: Policy, count: int, at_once: dict[int, int], is_plain: bool
) -> list[SimulatedJob]:
    """Make jobs that are all possible here; some are submitted together, some begin later than by number."""
    joins_at, jobs = 0, []
    for number in range(1, count + 1):
        joins_at += dice.choice((0, 0, dice.randint(0, 2 * HOUR_S * SECOND)))
        later = dice.choice((0, 0, 0, 0, dice.randint(0, 12 * HOUR_S * SECOND)))
        request = _plain(dice, inventory, policy) if is_plain else _request(dice, inventory, policy)
        priority = dice.choice((0, 0, 0, 0, -10, 10))
        batch = dice.choice((0, 0, *at_once))
        jobs.append(SimulatedJob(JobId(number), request, joins_at + later, 0, priority, batch))
    return jobs


def _most(policy: Policy, count: int) -> int:
    return min(count - policy.keep_free, count if policy.max_gpus is None else policy.max_gpus)


def _plain(dice: Random, inventory: Inventory, policy: Policy) -> Request:
    most = _most(policy, len(inventory.devices))
    return Request(min(most, dice.choice((1, 1, 1, 2, 2, most))))


def _request(dice: Random, inventory: Inventory, policy: Policy) -> Request:
    cpus = dice.choice((0, 0, 1, 2, policy.cpu_slots))
    mem = dice.choice((0, 0, 8, 32, 64))
    count = len(inventory.devices)
    most = _most(policy, count)
    if most < 1 or dice.random() < 0.25:
        return Request(0, cpus=min(cpus, policy.cpu_slots), mem=mem)
    cpus = dice.choice((0, 0, min(cpus, policy.cpu_slots)))
    gpus = min(most, dice.choice((1, 1, 1, 2, 2, 3, most)))
    match dice.choice(("any", "any", "prefer", "type", "ids")):
        case "prefer":
            return Request(gpus, prefer=tuple(dice.sample(inventory.ids, min(2, count))), cpus=cpus, mem=mem)
        case "ids":
            return Request(gpus, gpu_ids=tuple(sorted(dice.sample(inventory.ids, gpus))), cpus=cpus, mem=mem)
        case "type":
            kind = dice.choice(inventory.devices).name
            same = sum(device.name == kind for device in inventory.devices)
            return Request(min(gpus, same), gpu_type=kind.split()[-1].lower(), cpus=cpus, mem=mem)
        case _:
            return Request(gpus, cpus=cpus, mem=mem)


def _timed(dice: Random, job: SimulatedJob, policy: Policy, estimates_hold: bool, has_limits: bool) -> SimulatedJob:
    """Choose the duration of a job, mostly minutes, sometimes hours, and its limit."""
    takes_s = max(1, min(int(dice.lognormvariate(math.log(1800), 1.5)), 20 * HOUR_S))
    limit_s = None
    if has_limits and dice.random() < 0.8:
        limit_s = takes_s * dice.choice((1, 1, 2, 3)) + dice.choice((0, 0, 60))
    expected_s = limit_s or int(policy.assumed_s)
    if estimates_hold:
        takes_s = min(takes_s, expected_s)
    elif dice.random() < 0.3:
        takes_s = int(expected_s * dice.uniform(1, 4))
    return dataclasses.replace(job, takes_s=takes_s, request=dataclasses.replace(job.request, limit_s=limit_s))


def _sharing(dice: Random, job: SimulatedJob) -> SimulatedJob:
    """Let a job share its devices, of which each has 24 GiB, mostly with a small amount."""
    if not job.request.gpus or dice.random() < 0.4:
        return job
    gib = dice.choice((1, 2, 4, 6, 6, 8, 11, 12, 18, 24))
    return dataclasses.replace(job, request=dataclasses.replace(job.request, vram=gib * 2**30))


def _others(
    dice: Random, inventory: Inventory, end_at: int, has_sharing: bool
) -> tuple[tuple[Visit, ...], tuple[Fault, ...]]:
    visits = []
    for number in range(dice.randint(1, 30)):
        devices = dice.sample(inventory.ids, dice.randint(1, len(inventory.ids)))
        mib = dice.choice((0, 2048, 6144, 12288, 18432)) if has_sharing else 0
        collector = Collector(f"user{number}", dice.randint(1, len(devices)), tuple(devices), mib)
        visits.append(Visit(dice.randint(0, end_at), dice.randint(60, 6 * HOUR_S), collector))
    faults = []
    for _ in range(dice.randint(0, 6)):
        from_at = dice.randint(0, end_at)
        faults.append(Fault(dice.choice(inventory.ids), from_at, from_at + dice.randint(1, 6 * HOUR_S * SECOND)))
    return tuple(visits), tuple(faults)


def _strangers(dice: Random, inventory: Inventory, end_at: int) -> tuple[Strangers, ...]:
    found = []
    for _ in range(dice.randint(0, 8)):
        from_at = dice.randint(0, end_at)
        until_at = from_at + dice.randint(1, 6 * HOUR_S * SECOND)
        found.append(Strangers(dice.choice(inventory.ids), from_at, until_at, dice.randint(1, 24) * 2**30))
    return tuple(found)
