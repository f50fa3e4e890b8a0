"""Which waiting jobs start now, on which devices, and why the others wait.

Pure: everything comes in as a value, time included, and the same input gives the same plan. Inside the queue the order
is priority, then submission, unless somebody moved a job. The first job that does not fit gets a reservation: the
moment at which, by the limits of those that run, it could start, and the devices it would get then. Later jobs pass it
only if they do not push it back (EASY backfill). Other people's tickets are served first wherever they stand before
ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import JobId, Request
from dibs.scheduling import capacity, choice, matching, pools, views
from dibs.scheduling.choice import Room, Terms, Want
from dibs.scheduling.pools import Demand, Pool
from dibs.scheduling.views import Active, Policy, View, Waiting


@dataclass(frozen=True, slots=True)
class Start:
    """Start this job on these devices."""

    id: JobId
    devices: tuple[DeviceId, ...]


@dataclass(frozen=True)
class Plan:
    """What to start, who waits for what, and the ticket to hold meanwhile."""

    starts: tuple[Start, ...]
    #: Waiting jobs in order; each could be started if its devices were free.
    waits: tuple[Waiting, ...]
    #: The first job that waits for devices: what our ticket should say.
    first: Waiting | None
    #: What is kept for the first that wait, at most one of each kind, the one that is served first in front.
    reserved: tuple[Reservation, ...] = ()


def collected(plan: Plan, inventory: Inventory) -> tuple[DeviceId, ...]:
    """Return the devices for which the first that waits stands in the line, those that are kept for it first.

    Others let them become empty for it, the first ones first: all doors must mean the same ones.
    """
    if plan.first is None:
        return ()
    wanted = views.eligible(inventory, plan.first.request)
    kept = {device for r in plan.reserved if r.id == plan.first.id and r.rooms for device in r.devices}
    return tuple(sorted(wanted, key=lambda device: device not in kept))


def free_devices(view: View, inventory: Inventory, *, ignores_foreign: bool = False) -> set[DeviceId]:
    """Return the usable devices that nobody holds."""
    taken = {device for job in view.active for device in job.devices}.union(view.sharers)
    usable = inventory.usable(ignores_foreign=ignores_foreign)
    return {device for device in usable if device not in taken and device not in view.held}


def used_by(job: Active) -> Demand:
    """Return what an active job uses."""
    return Demand(job.cpus or (0 if job.devices else 1), job.mem, len(job.devices), len(job.devices))


@dataclass(frozen=True, slots=True)
class Reservation:
    """When the first job that does not fit could start, what it would use, and what would be left beside it."""

    id: JobId
    at: float
    devices: frozenset[DeviceId]
    spare: Pool
    #: What would be left of its devices beside it, where they are shared.
    rooms: Mapping[DeviceId, Room] = field(default_factory=dict)

    #: The devices that our jobs would use then, where any are shared.
    ours: frozenset[DeviceId] | None = None

    def leaves(self, device: DeviceId, mib: int) -> bool:
        """Tell whether there is room for so much on one of its devices beside it."""
        return device in self.rooms and self.rooms[device].fits(mib)

    def less(self, demand: Demand, chosen: Collection[DeviceId], mib: int, usable: Collection[DeviceId]) -> Reservation:
        """Return what would be left beside a job that starts now and still runs then."""
        if self.ours is None:
            return replace(self, spare=self.spare.less(demand))
        spare = self.spare.less(_beside(demand, chosen, self.ours, usable))
        return replace(self, spare=spare, rooms=capacity.less(self.rooms, chosen, mib), ours=self.ours.union(chosen))


def _used(active: Iterable[Active]) -> frozenset[DeviceId]:
    return frozenset(device for job in active for device in job.devices)


def _beside(
    demand: Demand, chosen: Iterable[DeviceId], ours: Collection[DeviceId], free: Collection[DeviceId]
) -> Demand:
    """Return what a job takes of what etiquette counts.

    Devices that jobs of ours use already are not counted again, and those that others share or strangers use were not
    among the free ones before.
    """
    more = [device for device in chosen if device not in ours]
    return replace(demand, gpus=len(more), free=sum(device in free for device in more))


def pool_of(view: View, inventory: Inventory, policy: Policy) -> Pool:
    """Return what is left now."""
    used = [used_by(job) for job in view.active]
    mine = len(_used(view.active))
    most = math.inf if policy.max_gpus is None else policy.max_gpus - mine
    return Pool(
        policy.cpu_slots - sum(demand.cpus for demand in used),
        math.inf if policy.mem_total is None else policy.mem_total - sum(demand.mem for demand in used),
        most,
        len(free_devices(view, inventory)) - policy.keep_free if policy.keep_free else math.inf,
    )


def expected_end(job: Active, policy: Policy, now: int) -> float:
    """Return when an active job is expected to end. One that overran is expected to take as long again.

    As long as it was first expected to, that is, and not as long as it has run: otherwise a job that overran twice
    would be outlived by one without a limit that starts now, which may then pass all who wait.
    """
    span = (job.limit_s or policy.assumed_s) * 1000
    began = now if job.started_at is None else job.started_at
    return began + span * (1 + max(0, now - began) // span)


def outlasts(request: Request, reserved: Reservation, policy: Policy, now: int) -> bool:
    """Tell whether a job that started now might still run at a reserved time."""
    if request.limit_s is None:
        # Expected to take as long as all others without a limit: nobody is passed on the strength of that.
        return now + policy.assumed_s * 1000 >= reserved.at
    return now + request.limit_s * 1000 > reserved.at


def plan(view: View, inventory: Inventory, policy: Policy, now: int) -> Plan:
    """Decide what starts now. Nothing starts while the queue is paused."""
    if view.is_paused:
        return Plan((), tuple(views.order(view.waiting)), None)
    return _PlanBuilder(view, inventory, policy, now).run()


#: When an active job is expected to end.
_End = tuple[float, JobId, Active]


class _PlanBuilder:
    """One plan in the making: what is left shrinks as jobs are started."""

    def __init__(self, view: View, inventory: Inventory, policy: Policy, now: int) -> None:
        self.view, self.inventory, self.policy, self.now = view, inventory, policy, now
        #: Also those that somebody uses without a lease: each request says whether it minds.
        self.free = free_devices(view, inventory, ignores_foreign=True)
        #: Those that nobody uses at all, which is what etiquette leaves to others; and if nobody else were there.
        self.unused = free_devices(view, inventory)
        self.usable = frozenset(inventory.usable())
        #: What is left of each device; None where nobody shares any.
        self.rooms = capacity.rooms_of_view(view, inventory, policy) if capacity.is_shared(view) else None
        self.pool = pool_of(view, inventory, policy)
        self.whole = pool_of(View(), inventory, policy)
        self.active = list(view.active)
        self.line = [Want(other.count, tuple(other.devices), other.mib, other.is_emptying) for other in view.line]
        self.ahead = self.line[: view.ahead]
        self.room = {job.batch: job.room for job in view.waiting if job.room is not None}
        #: One for jobs with devices and one for jobs without: neither kind may starve behind the other.
        self.reserved: dict[bool, Reservation] = {}
        #: Places of batches that are kept for those.
        self.kept: Counter[int] = Counter()
        #: Whether one who was refused might be let in by what has started since.
        self.is_worth_another_try = False

    def run(self) -> Plan:
        """Go through the waiting jobs in order, again and again where devices are shared, until nothing more starts."""
        plan = self._try(views.order(self.view.waiting))
        while self.is_worth_another_try:
            self.is_worth_another_try = False
            self.reserved.clear()
            self.kept.clear()
            more = self._try(plan.waits)
            plan = replace(more, starts=plan.starts + more.starts)
        return plan

    def _try(self, waiting: Iterable[Waiting]) -> Plan:
        """Go through waiting jobs in order, once."""
        starts: list[Start] = []
        waits: list[Waiting] = []
        first: Waiting | None = None
        #: What is left only shrinks here: what did not fit once need not be tried again for the next who asks the same.
        refused: set[Request] = set()
        for job in waiting:
            if self.room.get(job.batch, 1) <= self.kept.get(job.batch, 0) or job.request in refused:
                waits.append(job)
                continue
            chosen = self._choose(job)
            if chosen is not None:
                self._start(job, chosen)
                starts.append(Start(job.id, chosen))
                # It may share a device that was kept for another until now, who can be served on this one instead:
                # those ahead empty another device for themselves, and what is reserved may be reserved elsewhere.
                self.is_worth_another_try |= bool(refused and chosen and self.rooms is not None)
                continue
            waits.append(job)
            refused.add(job.request)
            if not self._is_possible(job):
                # A device it needs is unwell, or a setting forbids it: nobody knows until when, so nothing is kept.
                continue
            if job.request.gpus and first is None:
                first = job
            kind = job.request.gpus > 0
            if kind not in self.reserved:
                self.reserved[kind] = self._reserve(job)
                # Its place in the batch is kept too, or those behind it would use up what `-j` allows.
                self.kept[job.batch] += job.batch in self.room
        return Plan(tuple(starts), tuple(waits), first, tuple(self.reserved.values()))

    def _is_possible(self, job: Waiting) -> bool:
        """Tell whether a job could start if nothing else ran."""
        able = views.eligible(self.inventory, job.request)
        if job.request.vram:
            able = tuple(device for device in able if self._could_hold(device, job.request.mib))
        return len(able) >= job.request.gpus and self.whole.fits(pools.demand_of(job.request))

    def _could_hold(self, device: DeviceId, mib: int) -> bool:
        """Tell whether a device would have room for so much if nobody else had it; strangers stay."""
        return mib <= (capacity.capacity_mib(self.inventory.by_id[device]) or 0)

    def _choose(self, job: Waiting) -> tuple[DeviceId, ...] | None:
        """Return the devices on which a job can start now without pushing a reservation back; None if it cannot."""
        demand = pools.demand_of(job.request)
        in_the_way = [reserved for reserved in self.reserved.values() if self._outlasts(job, reserved)]
        if not self.pool.fits(demand) or not all(reserved.spare.fits(demand) for reserved in in_the_way):
            return self._choose_beside_ours(job, demand, in_the_way) if job.request.vram else None
        if job.request.gpus == 0:
            return ()
        if self.rooms is None and len(self.free) < job.request.gpus:
            return None
        return self._take(job, self._left(job, in_the_way))

    def _choose_beside_ours(
        self, job: Waiting, demand: Demand, in_the_way: Sequence[Reservation]
    ) -> tuple[DeviceId, ...] | None:
        """Return devices some of which are shared already: etiquette counts devices, and not those again."""
        now = (self.pool, _used(self.active), self.unused)
        limits = [now, *((kept.spare, kept.ours or (), self.usable) for kept in in_the_way)]

        def allows(own: Sequence[DeviceId]) -> bool:
            return all(pool.fits(_beside(demand, own, ours, free)) for pool, ours, free in limits)

        return self._take(job, self._left(job, in_the_way), allows) if allows(()) else None

    def _left(self, job: Waiting, in_the_way: Sequence[Reservation]) -> list[DeviceId]:
        """Return the devices that would do and are not kept for others; of a shared one there may be enough left."""
        wanted = views.eligible(self.inventory, job.request)
        if not in_the_way:
            return list(wanted)
        mib = job.request.mib
        return [
            device
            for device in wanted
            if all(device not in kept.devices or (mib and kept.leaves(device, mib)) for kept in in_the_way)
        ]

    def _take(
        self, job: Waiting, wanted: Sequence[DeviceId], allows: Callable[[Sequence[DeviceId]], bool] | None = None
    ) -> tuple[DeviceId, ...] | None:
        request = job.request
        if self.rooms is None and (request.gpus == 1 or not (self.inventory.closeness or self.view.used_at)):
            ahead = [(want.count, want.devices) for want in self.ahead]
            chosen = matching.choose(request.gpus, wanted, self.free, ahead)
        else:
            left = self.rooms if self.rooms is not None else dict.fromkeys(self.free, capacity.WHOLE)
            terms = Terms(
                request.mib, closeness=self.inventory.closeness, first=request.prefer, used_at=self.view.used_at
            )
            chosen = choice.choose(request.gpus, wanted, left, self.ahead, terms, allows)
        return None if chosen is None else tuple(DeviceId(device) for device in chosen)

    def _start(self, job: Waiting, chosen: tuple[DeviceId, ...]) -> None:
        demand, mib = pools.demand_of(job.request), job.request.mib
        self.pool = self.pool.less(_beside(demand, chosen, _used(self.active), self.unused) if chosen else demand)
        self.free.difference_update(chosen)
        self.unused.difference_update(chosen)
        if self.rooms is not None:
            self.rooms = capacity.less(self.rooms, chosen, mib)
        self.active.append(Active(job.id, chosen, demand.cpus, demand.mem, job.request.limit_s, mib=mib))
        room = self.room.get(job.batch)
        if room is not None:
            self.room[job.batch] = room - 1
        if chosen:
            # After a grant our next ticket goes to the back of the line.
            self.ahead = self.line
        for kind, reserved in self.reserved.items():
            if self._outlasts(job, reserved):
                self.reserved[kind] = reserved.less(demand, chosen, mib, self.usable)

    def _outlasts(self, job: Waiting, reserved: Reservation) -> bool:
        return outlasts(job.request, reserved, self.policy, self.now)

    def _reserve(self, job: Waiting) -> Reservation:
        """Find the earliest moment at which a job that does not fit now could start, and with which devices.

        A device that somebody else holds may come back at any moment: it counts as coming back right after the free
        ones, which are then kept for this job, as its ticket does towards other people.
        """
        demand, wanted = pools.demand_of(job.request), views.eligible(self.inventory, job.request)
        ends = sorted((expected_end(active, self.policy, self.now), active.id, active) for active in self.active)
        if job.request.vram:
            wanted = tuple(device for device in wanted if self._could_hold(device, job.request.mib))
            back = {device: self._fits_at(device, job.request.mib, ends) for device in wanted}
        else:
            back = dict.fromkeys(wanted, float(self.now))
            back |= {device: end for end, _, active in ends for device in active.devices if device in back}
        best = sorted(wanted, key=lambda device: (back[device], device not in self.free, wanted.index(device)))
        best = best[: job.request.gpus]
        at = float(max((back[device] for device in best), default=self.now))
        if self.rooms is not None:
            return self._reserve_shared(job, at, back, ends)
        pool = pool_of(View(active=self.active), self.inventory, self.policy)
        for end, _, active in ends:
            if end > at and pool.fits(demand):
                break
            at = max(at, end)
            pool = pool.more(used_by(active))
        return Reservation(job.id, at, frozenset(best), pool.less(demand))

    def _reserve_shared(
        self, job: Waiting, soonest: float, back: Mapping[DeviceId, float], ends: Sequence[_End]
    ) -> Reservation:
        """Find the earliest moment from `soonest` on at which all that is counted is there for a job.

        A device that several of our jobs share comes back with the last of them.
        """
        demand, mib = pools.demand_of(job.request), job.request.mib
        for at in [soonest, *(end for end, _, _ in ends if end > soonest)]:
            staying = [active for end, _, active in ends if end > at]
            ours, pool = _used(staying), pool_of(View(active=staying), self.inventory, self.policy)
            # To one who shares, a device that our jobs use then costs nothing of what etiquette allows.
            last = [device for device in back if device not in ours] if mib else self.view.held
            best = _by_then(job.request.gpus, back, at, last)
            cost = _beside(demand, best, ours, self.usable)
            if pool.fits(cost):
                break
        left = capacity.less({device: self._room_after(device, at, ends) for device in best}, best, mib)
        return Reservation(job.id, at, frozenset(best), pool.less(cost), left, ours.union(best))

    def _fits_at(self, device: DeviceId, mib: int, ends: Sequence[_End]) -> float:
        """Return when there is room for so much on a device, once enough of our jobs that share it have ended."""
        moments = [float(self.now), *(end for end, _, active in ends if device in active.devices)]
        return next((at for at in moments if self._room_after(device, at, ends).fits(mib)), moments[-1])

    def _room_after(self, device: DeviceId, at: float, ends: Sequence[_End]) -> Room:
        staying = [active for end, _, active in ends if end > at and device in active.devices]
        return capacity.beside(self.inventory.by_id[device], staying, self.policy.most_sharers)


def _by_then(count: int, back: Mapping[DeviceId, float], at: float, last: Collection[DeviceId]) -> Sequence[DeviceId]:
    """Return the devices to reserve for a moment, of those that are `back` by then; those in `last` come last.

    Which one is back first does not matter then. If it did, a job that passes would change the choice: what one plan
    keeps for somebody, the next one would give away.
    """
    places = {device: place for place, device in enumerate(back)}
    return sorted(back, key=lambda device: (max(back[device], at), device in last, places[device]))[:count]
