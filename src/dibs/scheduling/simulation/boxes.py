"""The policy of dibs in a simulation: one planner for each box, as on real machines, and one queue before them.

On each box `planner.plan` and `evictions.decide` decide. What they do not decide is which box of a cluster a job is
offered to: the first job that fits nowhere waits for the box on which it is expected to start first, and chooses anew
if it has not started by then; a job for which evictable ones can make room waits for the box where the fewest GPUs are
evicted for nothing; all others are offered to the fullest box that fits. A job larger than a box waits for whole
boxes, on which only jobs start that are expected to end before all of them are free, and takes any others that are
empty before.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.model import devices
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import NO, YES, JobId, Request
from dibs.scheduling import evictions, planner, precedence
from dibs.scheduling.simulation.clusters import SAVE_S, Decision, Placement
from dibs.scheduling.simulation.estimates import Histories
from dibs.scheduling.simulation.lines import Boxes, Lines, parts
from dibs.scheduling.simulation.traces import TraceJob
from dibs.scheduling.views import Active, Policy, View, WaitingJob

#: The settings of the simulated queue.
POLICY = Policy(cpu_slots=0, evict_grace_s=SAVE_S)
USER = "tenant"
#: After this many evictions a job runs to its end: the default of `max_evictions`.
MOST_EVICTIONS = 100
#: The first job that waits does not choose its boxes more often than this.
CHOOSE_EVERY_S = 600.0


@dataclass
class _Box:
    """A box: what runs on it, and which jobs wait for it and no other."""

    active: dict[int, Active] = field(default_factory=dict)
    claims: dict[int, TraceJob] = field(default_factory=dict)
    #: When evictions are worth a decision, in seconds.
    evict_at: float = math.inf


class BoxScheduler:
    """Drives one planner for each box."""

    def __init__(self, boxes: int, size: int, policy: Policy = POLICY) -> None:
        self.inventory = Inventory(devices.pretend(size, 0))
        self.policy = policy
        self.size = size
        self.boxes = [_Box() for _ in range(boxes)]
        self.room = Boxes(boxes, size)
        self.lines = Lines()
        self.histories = Histories()
        self.new: list[TraceJob] = []
        #: Boxes on which something may start now.
        self.dirty: set[int] = set()
        #: The boxes for which a job waits.
        self.homes: dict[int, tuple[int, ...]] = {}
        #: The boxes of each running job.
        self.used: dict[int, tuple[int, ...]] = {}
        #: The first job that fits nowhere, of the ordinary and of the evictable ones.
        self.firsts: dict[bool, TraceJob] = {}
        #: When they choose their boxes anew if they have not started by then, in seconds.
        self.choose_at: dict[bool, float] = {}
        #: Whether nothing has come that is before them.
        self.are_firsts_known = True
        self.evicted: dict[int, int] = {}
        #: Evictable jobs that are ordinary ones now, and when others become overdue.
        self.settled: set[int] = set()
        self.overdue: list[tuple[float, int]] = []
        #: How many evictable jobs are running.
        self.evictable = 0
        self._requests: dict[tuple[int, float | None, bool], Request] = {}
        self._heads: dict[int, WaitingJob] = {}
        self._starts: list[Placement] = []

    # -- events

    def submit(self, job: TraceJob, now: float) -> None:
        """Queue a job."""
        self.lines.add(job)
        self.new.append(job)
        if self._is_evictable(job):
            heapq.heappush(self.overdue, (max(now, job.submit_s + self.policy.evictable_wait_s), job.id))
        first = self.firsts.get(self._is_evictable(job))
        self.are_firsts_known &= first is not None and first.id < job.id

    def end(self, job: TraceJob, now: float, ran_s: float) -> None:
        """Release the GPUs of a job and learn from it."""
        self._release(job)
        self.histories.add(job, ran_s)

    def vacate(self, job: TraceJob, now: float) -> None:
        """Release the GPUs of an evicted job."""
        self.evicted[job.id] = self.evicted.get(job.id, 0) + 1
        if not evictions.after(self._request(job), self.evicted[job.id], MOST_EVICTIONS).is_evictable:
            self.settled.add(job.id)
        self._heads.pop(job.id, None)
        self._release(job)

    def _release(self, job: TraceJob) -> None:
        for box in self.used.pop(job.id):
            gone = self.boxes[box].active.pop(job.id)
            self.room.change(box, len(gone.devices))
            self.dirty.add(box)
            if self.boxes[box].claims:
                self.boxes[box].evict_at = -math.inf
        # An evicted job was counted when it was asked to leave.
        self.evictable -= gone.is_evictable and gone.leaves_at is None

    # -- decisions

    def decide(self, now: float) -> Decision:
        """Offer boxes with free GPUs to the jobs that wait, then evict for those that have a right to more."""
        self._starts = []
        self._settle_overdue(now)
        self._settle_firsts(now)
        # As time passes, others may be allowed to pass the first ones.
        self.dirty.update(self._kept())
        self._offer_dirty(now)
        for job in self.new:
            self._find_box(job, now)
            self._offer_dirty(now)
        self.new.clear()
        stopped = self._evict(now) if self.evictable else ()
        ask_at = min((box.evict_at for box in self.boxes), default=math.inf) if self.evictable else math.inf
        ask_at = min(ask_at, self.overdue[0][0]) if self.overdue else ask_at
        return Decision(tuple(self._starts), tuple(stopped), None if math.isinf(ask_at) else ask_at)

    def _settle_overdue(self, now: float) -> None:
        """Serve evictable jobs that are overdue as ordinary ones."""
        while self.overdue and self.overdue[0][0] <= now:
            job_id = heapq.heappop(self.overdue)[1]
            if job_id not in self.lines or job_id in self.settled:
                continue
            job = self.lines.job(job_id)
            self._forget_claims(job)
            self.settled.add(job_id)
            self._heads.pop(job_id, None)
            self.new.append(job)
            self.are_firsts_known = False

    def _offer_dirty(self, now: float) -> None:
        while self.dirty:
            # Jobs that may pass the first ones do so on other boxes if they can.
            kept = self._kept()
            box = min(self.dirty, key=lambda box: (box in kept, box))
            self.dirty.discard(box)
            self._offer(box, now)
            self._settle_firsts(now)

    def _find_box(self, job: TraceJob, now: float) -> None:
        """Offer boxes to a new job, the fullest that fits first."""
        tried: set[int] = set()
        while job.id in self.lines:
            placement = self.room.place(job, self._kept())
            boxes = {box for box, _ in placement.gpus_of_box} if placement else set()
            if not boxes - tried:
                return
            tried |= boxes
            for box in boxes:
                self._offer(box, now)

    def _kept(self) -> frozenset[int]:
        """Return the boxes for which the first jobs wait."""
        return frozenset(box for first in self.firsts.values() for box in self.homes[first.id])

    def _offer(self, box: int, now: float) -> None:
        """Let the planner of a box start jobs there."""
        if self.room.free[box] == self.size and self.room.largest > self.size:
            self._start_large(now)
        free = self.room.free[box]
        waiting = self._offered(box, free, now) if free else ()
        if not waiting:
            return
        jobs = {job.id: job for job in waiting}
        for start in planner.plan(self._view(box, waiting), self.inventory, self.policy, _ms(now)).starts:
            self._start(jobs[start.id], {box: start.devices}, now)

    def _start_large(self, now: float) -> None:
        """Start jobs larger than a box if enough boxes are empty that are not kept for others."""
        for job in self.lines.in_order(self.room.largest):
            # What an evictable job waits for is not kept from ordinary ones.
            firsts = [
                first for kind, first in self.firsts.items() if first is not job and kind <= self._is_evictable(job)
            ]
            kept = frozenset(box for first in firsts for box in self.homes[first.id])
            placement = self.room.place(job, kept) if job.gpus > self.size else None
            if placement is not None and kept.isdisjoint(box for box, _ in placement.gpus_of_box):
                boxes = [box for box, _ in placement.gpus_of_box]
                self._start(self._waiting(job), dict.fromkeys(boxes, self.inventory.ids), now)

    def _view(self, box: int, waiting: Sequence[WaitingJob]) -> View:
        return View(waiting, list(self.boxes[box].active.values()), user=USER)

    def _offered(self, box: int, free: int, now: float) -> Sequence[WaitingJob]:
        """Return the jobs that a box is offered: those that wait for it, and those that fit.

        Without a job that waits for it, only what fits together: the planner would keep the box for the next one.
        """
        claims = {job.id: job for job in self.boxes[box].claims.values()}
        fitting = {job.id: job for job in self.lines.heads(free, free)}
        for large in [job for job in claims.values() if job.gpus > self.size] if free == self.size else ():
            # It waits for its other boxes: until then those may use this one that are expected to have ended.
            del claims[large.id]
            at = max(self._free_at(each, self.size, now, large) for each in self.homes[large.id])
            fitting = {i: job for i, job in fitting.items() if self._leaves_by(job, at, now)}
        waiting = [self._waiting(job) for job in (claims | fitting).values()]
        if claims:
            return waiting
        waiting = precedence.serving_order(waiting, self.policy, _ms(now))
        chosen = []
        for job in precedence.order(waiting, self.policy, _ms(now)) if self.firsts else waiting:
            if job.request.gpus <= free:
                chosen.append(job)
                free -= job.request.gpus
        return chosen

    def _leaves_by(self, job: TraceJob, at: float, now: float) -> bool:
        """Tell whether a job that starts now is expected to have ended by then, or can be evicted."""
        if self._is_evictable(job) and self._evictable_from(now) <= at:
            return True
        return _ms(now) + precedence.expected_s(self._waiting(job), self.policy) * 1000 <= at

    def _evictable_from(self, now: float) -> int:
        """Return when a job that starts now could have been evicted."""
        return _ms(now + self.policy.evict_min_run_s + self.policy.evict_grace_s)

    def _waiting(self, job: TraceJob) -> WaitingJob:
        history = self.histories.of(job)
        known = self._heads.get(job.id)
        if known is None or known.history is not history:
            known = WaitingJob(JobId(job.id), self._request(job), since=_ms(job.submit_s), history=history)
            self._heads[job.id] = known
        return known

    def _request(self, job: TraceJob) -> Request:
        key = min(job.gpus, self.size), job.limit_s, self._is_evictable(job)
        if key not in self._requests:
            self._requests[key] = Request(key[0], limit_s=job.limit_s, evictable=YES if key[2] else NO)
        return self._requests[key]

    def _is_evictable(self, job: TraceJob) -> bool:
        return job.is_evictable and job.id not in self.settled

    def _start(self, waiting: WaitingJob, on: Mapping[int, tuple[DeviceId, ...]], now: float) -> None:
        """Start a job on devices of one box, or of several if it is larger than one."""
        job = self.lines.job(waiting.id)
        placed = tuple(zip(sorted(on), parts(job.gpus, self.size), strict=True))
        for box, count in placed:
            self.boxes[box].active[job.id] = waiting.on(on[box][:count], _ms(now))
            self.room.change(box, -count)
        self._forget_claims(job)
        self.lines.remove(job)
        self._heads.pop(job.id, None)
        self.used[job.id] = tuple(sorted(on))
        self.evictable += waiting.is_evictable
        self._starts.append(Placement(job.id, placed))

    # -- the boxes for which jobs wait

    def _claim_boxes(self, job: TraceJob, boxes: Sequence[int]) -> None:
        """Let a job wait for boxes and no others."""
        self._forget_claims(job)
        self.homes[job.id] = tuple(boxes)
        for box in boxes:
            self.boxes[box].claims[job.id] = job
            self.boxes[box].evict_at = -math.inf

    def _forget_claims(self, job: TraceJob) -> None:
        for box in self.homes.pop(job.id, ()):
            del self.boxes[box].claims[job.id]
            # Others may use what was kept for it there.
            self.dirty.add(box)
        self.firsts = {kind: first for kind, first in self.firsts.items() if first is not job}

    def _settle_firsts(self, now: float) -> None:
        """Give the first jobs that wait the boxes on which they are expected to start first."""
        is_late = any(now >= self.choose_at[kind] for kind in self.firsts)
        if self.are_firsts_known and len(self.firsts) == 2 and not is_late:
            return
        self.are_firsts_known = True
        waiting = self._in_serving_order(now)
        for is_evictable in (False, True):
            first = next((job for job in waiting if self._is_evictable(job) is is_evictable), None)
            old = self.firsts.get(is_evictable)
            if first is None or (first is old and now < self.choose_at[is_evictable]):
                continue
            if old is not None:
                self._forget_claims(old)
            gpus, count = min(first.gpus, self.size), len(parts(first.gpus, self.size))
            at = [self._free_at(box, gpus, now, first) for box in range(len(self.boxes))]
            soonest = sorted(range(len(at)), key=at.__getitem__)[:count]
            self._claim_boxes(first, sorted(soonest))
            self.firsts[is_evictable] = first
            self.choose_at[is_evictable] = max(at[soonest[-1]] / 1000, now + CHOOSE_EVERY_S)

    def _in_serving_order(self, now: float) -> list[TraceJob]:
        heads = self.lines.in_order(self.size * len(self.boxes))
        if all(job.limit_s is None for job in heads):
            return heads
        served = precedence.serving_order([self._waiting(job) for job in heads], self.policy, _ms(now))
        return [self.lines.job(job.id) for job in served]

    def _free_at(self, box: int, gpus: int, now: float, waiter: TraceJob) -> float:
        """Return when a box is expected to have this many GPUs free for a job."""
        free, at = self.room.free[box], _ms(now)
        if free >= gpus:
            return at
        own = self._waiting(waiter)
        active = self.boxes[box].active.values()
        for end, count in sorted(
            (precedence.expected_release(job, own, self.policy, at), len(job.devices)) for job in active
        ):
            free += count
            if free >= gpus:
                return end
        return math.inf

    # -- evictions

    def _evict(self, now: float) -> list[int]:
        """Find boxes on which evictable jobs can make room for those that wait, and decide there."""
        self._claim(now)
        stopped: list[int] = []
        for number, box in enumerate(self.boxes):
            if box.evict_at > now or not box.claims:
                continue
            claims = [job for job in box.claims.values() if job.gpus <= self.size or self._yields_soon(job, now)]
            view = self._view(number, [self._waiting(job) for job in claims])
            decision = evictions.decide(view, self.inventory, self.policy, _ms(now))
            stopped += [int(each.id) for each in decision.ours if each.id is not None]
            box.evict_at = math.inf if decision.again_at is None else decision.again_at / 1000
        # A job on several boxes may be asked to leave by more than one.
        stopped = list(dict.fromkeys(stopped))
        for job_id in stopped:
            for number in self.used[job_id]:
                active = self.boxes[number].active
                active[job_id] = replace(active[job_id], leaves_at=_ms(now + SAVE_S))
            self.evictable -= 1
        return stopped

    def _yields_soon(self, large: TraceJob, now: float) -> bool:
        """Tell whether all boxes of a job larger than one can be emptied: before that, evictions are no use."""
        return all(
            self._free_at(box, self.size, now, large) <= self._evictable_from(now) for box in self.homes[large.id]
        )

    def _claim(self, now: float) -> None:
        """Let ordinary jobs wait for a box on which evictable ones can make room for them soon."""
        soon = self._evictable_from(now)
        least = self.size + 1
        for job in sorted(self.lines.heads(self.size, self.size), key=lambda job: job.id):
            if job.gpus >= least or job.id in self.homes or self._is_evictable(job):
                continue
            needs = {box: job.gpus + self._claimed(box) for box in range(len(self.boxes))}
            able = [box for box, gpus in needs.items() if self._free_at(box, gpus, now, job) <= soon]
            if not able:
                least = job.gpus
                continue
            self._claim_boxes(job, [min(able, key=lambda box: (self._needless(box, needs[box]), box))])

    def _claimed(self, box: int) -> int:
        """Return how many GPUs of a box others wait for, beside the first jobs."""
        firsts = self.firsts.values()
        return sum(min(job.gpus, self.size) for job in self.boxes[box].claims.values() if job not in firsts)

    def _needless(self, box: int, gpus: int) -> int:
        """Return how many GPUs beyond these evictable jobs would give up on a box to free them."""
        need = gpus - self.room.free[box]
        active = self.boxes[box].active.values()
        sizes = sorted(len(job.devices) for job in active if job.is_evictable and job.leaves_at is None)
        for size in [size for size in sizes if size >= need][:1] or reversed(sizes):
            if need > 0:
                need -= size
        return max(0, -need) if gpus > self.room.free[box] else 0


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
