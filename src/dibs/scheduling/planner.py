"""Decide which waiting jobs start now, on which devices, and why the others wait.

Pure: everything is an argument, including the time, and the same input gives the same plan. The queue order is
priority, then submission, unless a user moved a job. The first job that does not fit gets a reservation: the time at
which, by the limits of the running jobs, it could start, and its devices at that time. Later jobs pass it only if they
do not delay it (EASY backfill). Tickets of other users that are ahead of ours are served first.

Evictable jobs come after all ordinary ones and behind all their tickets, until they are overdue. `evictions` decides
which of them give up their devices; here these count as coming free.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import JobId, Request
from dibs.scheduling import capacity, choice, pools, precedence, views
from dibs.scheduling.choice import Room, Terms, Want
from dibs.scheduling.pools import Amounts
from dibs.scheduling.views import Active, Collector, Policy, View, WaitingJob


@dataclass(frozen=True, slots=True)
class Start:
    """Start this job on these devices."""

    id: JobId
    devices: tuple[DeviceId, ...]
    #: Whether others have leased the devices, do not use them, and lend them.
    is_loan: bool = False


@dataclass(frozen=True)
class Plan:
    """What to start, which jobs wait, and the ticket to hold meanwhile."""

    starts: tuple[Start, ...]
    #: WaitingJob jobs in order; each could start if its devices were free.
    waits: tuple[WaitingJob, ...]
    #: The first job that waits for devices: it determines our ticket.
    first: WaitingJob | None
    #: Reservations for the first waiting jobs, at most one of each kind, in serving order.
    reserved: tuple[Reservation, ...] = ()


def collected(plan: Plan, inventory: Inventory) -> tuple[DeviceId, ...]:
    """Return the devices that the first waiting job queues for, its reserved ones first.

    Others keep off the first ones until they are empty, so all interfaces must agree on the order.
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


def used_by(job: Active) -> Amounts:
    """Return what an active job uses."""
    counted = 0 if job.is_evictable else len(job.devices)
    return Amounts(job.cpus or (0 if job.devices or job.is_borrower else 1), job.mem, counted, counted)


@dataclass(frozen=True, slots=True)
class Reservation:
    """When the first job that does not fit could start, what it would use, and what would be left."""

    id: JobId
    at: float
    devices: frozenset[DeviceId]
    spare: Amounts
    #: Jobs that pass it must be expected to end by then: at its start, or before it if it was passed for too long.
    until: float
    #: Free memory of its devices beside it, where they are shared.
    rooms: Mapping[DeviceId, Room] = field(default_factory=dict)

    #: The devices that our jobs would use at that time, if any are shared.
    ours: frozenset[DeviceId] | None = None
    #: When others no longer pass it on the devices that those ahead of it have left.
    closes_at: float = math.inf
    #: Whether the job is evictable: ordinary jobs do not respect its reservation.
    is_evictable: bool = False

    @property
    def gpus(self) -> int:
        """Return how many devices are kept."""
        return len(self.devices)

    def leaves(self, device: DeviceId, mib: int) -> bool:
        """Tell whether `mib` would fit on one of its devices beside it."""
        return device in self.rooms and self.rooms[device].fits(mib)

    def less(
        self, demand: Amounts, chosen: Collection[DeviceId], mib: int, usable: Collection[DeviceId]
    ) -> Reservation:
        """Return the reservation with less left, after a job that starts now and still runs at that time."""
        if self.ours is None:
            return replace(self, spare=self.spare.less(demand))
        spare = self.spare.less(_beside(demand, chosen, self.ours, usable))
        return replace(self, spare=spare, rooms=capacity.less(self.rooms, chosen, mib), ours=self.ours.union(chosen))


def _used(active: Iterable[Active]) -> frozenset[DeviceId]:
    return frozenset(device for job in active for device in job.devices)


def _beside(
    demand: Amounts, chosen: Iterable[DeviceId], ours: Collection[DeviceId], free: Collection[DeviceId]
) -> Amounts:
    """Return what a job takes from the etiquette limits.

    Devices that our jobs already use are not counted again; devices that others share or use without a lease were not
    free before. Those of an evictable job are not counted.
    """
    if not demand.gpus:
        return demand
    more = [device for device in chosen if device not in ours]
    return replace(demand, gpus=len(more), free=sum(device in free for device in more))


def pool_of(view: View, inventory: Inventory, policy: Policy) -> Amounts:
    """Return the resources that are left now."""
    used = [used_by(job) for job in view.active]
    mine = len(_used(job for job in view.active if not job.is_evictable))
    most = math.inf if policy.max_gpus is None else policy.max_gpus - mine
    return Amounts(
        policy.cpu_slots - sum(demand.cpus for demand in used),
        math.inf if policy.mem_total is None else policy.mem_total - sum(demand.mem for demand in used),
        most,
        len(free_devices(_without_evictable(view), inventory)) - policy.keep_free if policy.keep_free else math.inf,
    )


def _without_evictable(view: View) -> View:
    """Return the view without evictable jobs: who wants their devices gets them."""
    active = [job for job in view.active if not job.is_evictable]
    held = {device: who for device, who in view.held.items() if not who.is_evictable}
    return replace(view, active=active, held=held)


def plan(view: View, inventory: Inventory, policy: Policy, now: int) -> Plan:
    """Decide what starts now. Nothing starts while the queue is paused."""
    if view.is_paused:
        return Plan((), tuple(views.order(view.waiting)), None)
    return _PlanBuilder(precedence.with_overdue(view, policy, now), inventory, policy, now).run()


#: The expected end of an active job.
_End = tuple[float, JobId, Active]


class _PlanBuilder:
    """One plan under construction: resources shrink as jobs are started."""

    def __init__(self, view: View, inventory: Inventory, policy: Policy, now: int) -> None:
        self.view, self.inventory, self.policy, self.now = view, inventory, policy, now
        #: Includes devices in foreign use: each request decides whether it tolerates that.
        self.free = free_devices(view, inventory, ignores_foreign=True)
        #: Devices nobody uses, which etiquette counts; and all that would be usable without other users.
        self.unused = free_devices(view, inventory)
        self.lendable = set(view.lendable)
        self.usable = frozenset(inventory.usable())
        #: Free memory of each device; None if no device is shared.
        self.rooms = capacity.rooms_of_view(view, inventory, policy) if capacity.is_shared(view) else None
        self.pool = pool_of(view, inventory, policy)
        self.whole = pool_of(View(), inventory, policy)
        self.active = list(view.active)
        self.line = _wants(view.line)
        self.ahead = _wants(view.line[: view.ahead])
        #: Those ahead of our evictable jobs.
        self.ahead_of_evictable = self.line + _wants(view.line[: view.ahead], is_evictable=True)
        self.room = {limit.key: limit.room for job in view.waiting for limit in job.limits}
        #: One for jobs with devices and one for jobs without, and as many for evictable jobs, which are served later:
        #: no kind may starve behind another.
        self.reserved: dict[tuple[bool, bool], Reservation] = {}
        #: What is kept of these for the reserved jobs.
        self.kept: Counter[tuple[str, int | str]] = Counter()
        #: Whether a job that was refused might fit because of what has started since.
        self.is_worth_another_try = False

    def run(self) -> Plan:
        """Go through the waiting jobs in order; with shared devices, repeat until nothing more starts."""
        plan = self._try(precedence.serving_order(self.view.waiting, self.policy, self.now))
        while self.is_worth_another_try:
            self.is_worth_another_try = False
            self.reserved.clear()
            self.kept.clear()
            more = self._try(plan.waits)
            plan = replace(more, starts=plan.starts + more.starts)
        return plan

    def _is_at_own_limit(self, request: Request) -> bool:
        """Return whether only our own jobs must end first: a ticket would keep idle devices from other users."""
        return not request.vram and pools.demand_of(request).gpus > self.pool.gpus

    def _is_at_limit(self, job: WaitingJob) -> bool:
        """Return whether its batch, group or project has no room for it."""
        return any(self.room[limit.key] - self.kept[limit.key] < limit.cost for limit in job.limits)

    def _try(self, waiting: Iterable[WaitingJob]) -> Plan:
        starts: list[Start] = []
        waits: list[WaitingJob] = []
        first: WaitingJob | None = None
        #: Resources only shrink here: a request that did not fit once need not be tried again.
        refused: set[Hashable] = set()
        left = deque(waiting)
        while left:
            job = left.popleft()
            if self._is_at_limit(job) or precedence.kind(job) in refused:
                waits.append(job)
                continue
            chosen = self._choose(job)
            if chosen is not None:
                starts.append(self._start(job, chosen))
                # It may share a device that was kept for another request until now, which can be served here instead:
                # requests ahead then wait for another device, and the reservation may move.
                self.is_worth_another_try |= bool(refused and chosen and self.rooms is not None)
                continue
            waits.append(job)
            refused.add(precedence.kind(job))
            if not self._is_possible(job):
                # A device it needs is faulty, or a setting forbids it: the end is unknown, so nothing is reserved.
                continue
            if job.request.gpus and first is None and not self._is_at_own_limit(job.request):
                first = job
            kind = job.request.gpus > 0, job.is_evictable
            if kind not in self.reserved:
                self.reserved[kind] = self._reserve(job)
                # Reserve its place in the batch too, or later jobs would use up the limit of `-j`.
                self.kept.update({limit.key: limit.cost for limit in job.limits})
                left = deque(precedence.order(left, self.policy, self.now))
        waits = precedence.serving_order(waits, self.policy, self.now)
        return Plan(tuple(starts), tuple(waits), first, tuple(self.reserved.values()))

    def _is_possible(self, job: WaitingJob) -> bool:
        """Tell whether a job could start if nothing else ran."""
        able = views.eligible(self.inventory, job.request)
        if job.request.vram:
            able = tuple(device for device in able if self._could_hold(device, job.request.mib))
        return len(able) >= job.request.gpus and self.whole.fits(pools.demand_of(job.request))

    def _could_hold(self, device: DeviceId, mib: int) -> bool:
        """Tell whether `mib` would fit on a device without other jobs; foreign use stays."""
        return mib <= (capacity.capacity_mib(self.inventory.by_id[device]) or 0)

    def _choose(self, job: WaitingJob) -> tuple[DeviceId, ...] | None:
        """Return the devices on which a job can start now without delaying a reservation; None if it cannot."""
        demand = pools.demand_of(job.request)
        in_the_way = [reserved for reserved in self.reserved.values() if self._outlasts(job, reserved)]
        if not self.pool.fits(demand) or not all(reserved.spare.fits(demand) for reserved in in_the_way):
            return self._choose_beside_ours(job, demand, in_the_way) if job.request.vram else None
        if job.request.gpus == 0:
            return ()
        if self.rooms is None and len(self.free) < job.request.gpus:
            return self._borrow(job, in_the_way)
        return self._take(job, self._left(job, in_the_way)) or self._borrow(job, in_the_way)

    def _borrow(self, job: WaitingJob, in_the_way: Sequence[Reservation]) -> tuple[DeviceId, ...] | None:
        """Return devices with idle leases for an evictable job; only evictable jobs ahead of it may want them too."""
        if not self.lendable or not job.is_evictable or job.request.vram:
            return None
        left = dict.fromkeys(self.lendable, capacity.WHOLE)
        ahead = _wants(self.view.line[: self.view.ahead], is_evictable=True)
        terms = Terms(closeness=self.inventory.closeness, first=job.request.prefer)
        chosen = choice.choose(job.request.gpus, self._left(job, in_the_way), left, ahead, terms)
        return None if chosen is None else tuple(DeviceId(device) for device in chosen)

    def _choose_beside_ours(
        self, job: WaitingJob, demand: Amounts, in_the_way: Sequence[Reservation]
    ) -> tuple[DeviceId, ...] | None:
        """Return devices, some of which may be shared already: etiquette does not count those again."""
        now = (self.pool, _used(self.active), self.unused)
        limits = [now, *((kept.spare, kept.ours or (), self.usable) for kept in in_the_way)]

        def allows(own: Sequence[DeviceId]) -> bool:
            return all(pool.fits(_beside(demand, own, ours, free)) for pool, ours, free in limits)

        return self._take(job, self._left(job, in_the_way), allows) if allows(()) else None

    def _left(self, job: WaitingJob, in_the_way: Sequence[Reservation]) -> list[DeviceId]:
        """Return suitable devices that are not reserved; a shared reserved one may have enough left."""
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
        self, job: WaitingJob, wanted: Sequence[DeviceId], allows: Callable[[Sequence[DeviceId]], bool] | None = None
    ) -> tuple[DeviceId, ...] | None:
        request = job.request
        left = self.rooms if self.rooms is not None else dict.fromkeys(self.free, capacity.WHOLE)
        terms = Terms(request.mib, closeness=self.inventory.closeness, first=request.prefer, used_at=self.view.used_at)
        ahead = self.ahead_of_evictable if job.is_evictable else self.ahead
        chosen = choice.choose(request.gpus, wanted, left, ahead, terms, allows)
        return None if chosen is None else tuple(DeviceId(device) for device in chosen)

    def _start(self, job: WaitingJob, chosen: tuple[DeviceId, ...]) -> Start:
        is_loan = not self.lendable.isdisjoint(chosen)
        self.lendable.difference_update(chosen)
        demand, mib = pools.demand_of(job.request), job.request.mib
        self.pool = self.pool.less(_beside(demand, chosen, _used(self.active), self.unused) if chosen else demand)
        self.free.difference_update(chosen)
        self.unused.difference_update(chosen)
        if self.rooms is not None:
            self.rooms = capacity.less(self.rooms, chosen, mib)
        self.active.append(job.on(chosen).apart() if is_loan else job.on(chosen))
        for limit in job.limits:
            self.room[limit.key] -= limit.cost
        if chosen:
            # After a grant our next ticket goes to the back of the line.
            self.ahead = self.line
            self.ahead_of_evictable = self.line + _wants(self.view.line, is_evictable=True)
        for kind, reserved in self.reserved.items():
            if self._outlasts(job, reserved):
                self.reserved[kind] = reserved.less(demand, chosen, mib, self.usable)
        return Start(job.id, chosen, is_loan)

    def _outlasts(self, job: WaitingJob, reserved: Reservation) -> bool:
        return precedence.outlasts(job, reserved, self.policy, self.now)

    def _reserve(self, job: WaitingJob) -> Reservation:
        """Find the earliest time at which a job that does not fit now could start, and its devices.

        A device that another user holds may be released at any time: it counts as released right after the free ones.
        The free ones are then kept for this job, as its ticket does towards other users.
        """
        ends = sorted(
            (precedence.expected_release(active, job, self.policy, self.now), active.id, active)
            for active in self.active
        )
        found = self._reserve_by(job, ends)
        closes_at = precedence.closes_at(job, self.active, self.policy)
        late = precedence.passers(job, self.active, closes_at) if closes_at <= self.now else ()
        if late:
            # Those that passed it too late give no reason to pass it further.
            ends = sorted((float(self.now) if i in late else end, i, active) for end, i, active in ends)
            found = replace(found, until=min(found.at, self._reserve_by(job, ends).at))
        return replace(found, closes_at=closes_at, is_evictable=job.is_evictable)

    def _reserve_by(self, job: WaitingJob, ends: Sequence[_End]) -> Reservation:
        demand, wanted = pools.demand_of(job.request), views.eligible(self.inventory, job.request)
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
        return Reservation(job.id, at, frozenset(best), pool.less(demand), at)

    def _reserve_shared(
        self, job: WaitingJob, soonest: float, back: Mapping[DeviceId, float], ends: Sequence[_End]
    ) -> Reservation:
        """Find the earliest time from `soonest` on at which all counted resources suffice for a job.

        A device that several of our jobs share is free when the last of them ends.
        """
        demand, mib = pools.demand_of(job.request), job.request.mib
        for at in [soonest, *(end for end, _, _ in ends if end > soonest)]:
            staying = [active for end, _, active in ends if end > at]
            ours, pool = _used(staying), pool_of(View(active=staying), self.inventory, self.policy)
            # For a sharing job, a device that our jobs use at that time costs nothing under etiquette.
            last = [device for device in back if device not in ours] if mib else self.view.held
            best = _by_then(job.request.gpus, back, at, last)
            cost = _beside(demand, best, ours, self.usable)
            if pool.fits(cost):
                break
        left = capacity.less({device: self._room_after(device, at, ends) for device in best}, best, mib)
        return Reservation(job.id, at, frozenset(best), pool.less(cost), at, left, ours.union(best))

    def _fits_at(self, device: DeviceId, mib: int, ends: Sequence[_End]) -> float:
        """Return when `mib` fit on a device, after enough of our jobs that share it have ended."""
        moments = [float(self.now), *(end for end, _, active in ends if device in active.devices)]
        return next((at for at in moments if self._room_after(device, at, ends).fits(mib)), moments[-1])

    def _room_after(self, device: DeviceId, at: float, ends: Sequence[_End]) -> Room:
        staying = [active for end, _, active in ends if end > at and device in active.devices]
        return capacity.beside(self.inventory.by_id[device], staying, self.policy.most_sharers)


def _wants(line: Iterable[Collector], *, is_evictable: bool = False) -> list[Want]:
    """Return what the tickets of ordinary jobs want, or those of evictable ones."""
    return [
        Want(other.count, tuple(other.devices), other.mib, other.is_emptying)
        for other in line
        if other.is_evictable == is_evictable
    ]


def _by_then(count: int, back: Mapping[DeviceId, float], at: float, last: Collection[DeviceId]) -> Sequence[DeviceId]:
    """Return the devices to reserve for a time, of those that are `back` by then; those in `last` come last.

    The order in which they come back must not matter. Otherwise a job that passes would change the choice, and the next
    plan would give away what this one reserved.
    """
    places = {device: place for place, device in enumerate(back)}
    return sorted(back, key=lambda device: (max(back[device], at), device in last, places[device]))[:count]
