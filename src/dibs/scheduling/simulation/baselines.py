"""Policies to compare with: strict FIFO, FIFO with EASY backfill, greedy first-fit, shortest first, and a lower bound.

They see one queue for all boxes. A job takes the fullest box that fits, a job larger than a box takes empty ones.
"""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dibs.scheduling import durations
from dibs.scheduling.durations import History
from dibs.scheduling.simulation.clusters import Decision, Placement
from dibs.scheduling.simulation.estimates import Histories
from dibs.scheduling.simulation.lines import Boxes, Lines, parts
from dibs.scheduling.simulation.traces import TraceJob

#: Assumed run time in seconds of a job without a limit and without a history.
ASSUMED_S = 86_400.0


class Rule(enum.Enum):
    """Which later jobs may start before the first one that does not fit."""

    NOBODY = "nobody"
    #: Those that do not delay it, by the estimates (EASY backfill).
    HARMLESS = "harmless"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class _Kept:
    """The boxes for which a job waits, when it could start, and what is spare on each then."""

    boxes: frozenset[int]
    at: float
    spare: int


NOTHING_KEPT = _Kept(frozenset(), math.inf, 0)


@dataclass(frozen=True, slots=True)
class _Run:
    job: TraceJob
    placement: Placement
    began_s: float
    history: History


class ListScheduler:
    """Goes through one queue in a fixed order at every event."""

    def __init__(self, boxes: int, size: int, rule: Rule, rank: Callable[[TraceJob], float] | None = None) -> None:
        self.boxes = Boxes(boxes, size)
        self.rule = rule
        self.lines = Lines(rank)
        self.rank = rank
        self.running: dict[int, _Run] = {}
        self.histories = Histories()

    def submit(self, job: TraceJob, now: float) -> None:
        """Queue a job."""
        self.lines.add(job)

    def end(self, job: TraceJob, now: float, ran_s: float) -> None:
        """Release the GPUs of a job."""
        for box, gpus in self.running.pop(job.id).placement.gpus_of_box:
            self.boxes.change(box, gpus)
        self.histories.add(job, ran_s)

    def vacate(self, job: TraceJob, now: float) -> None:
        """Nothing is evicted here."""
        raise AssertionError(f"job {job.id} cannot be evicted")

    def decide(self, now: float) -> Decision:
        """Start jobs in order; which ones pass a job that does not fit depends on the rule."""
        starts: list[Placement] = []
        kept: _Kept | None = None
        most = self.boxes.largest
        if not most:
            return Decision()
        heap = [(self._key(job), job) for job in self.lines.in_order(most if self.rule is Rule.ALL else 10**9)]
        while heap and self.boxes.largest:
            _, job = heapq.heappop(heap)
            placement = self._place(job, kept or NOTHING_KEPT, now)
            if placement is not None:
                starts.append(placement)
                self._start(job, placement, now)
                if (after := self.lines.next_after(job)) is not None:
                    heapq.heappush(heap, (self._key(after), after))
            elif self.rule is Rule.NOBODY:
                break
            elif self.rule is Rule.HARMLESS and kept is None:
                kept = self._keep(job, now)
        return Decision(tuple(starts))

    def _key(self, job: TraceJob) -> tuple[float, int]:
        return (0.0 if self.rank is None else self.rank(job)), job.id

    def _start(self, job: TraceJob, placement: Placement, now: float) -> None:
        for box, gpus in placement.gpus_of_box:
            self.boxes.change(box, -gpus)
        self.lines.remove(job)
        self.running[job.id] = _Run(job, placement, now, self.histories.of(job))

    def _place(self, job: TraceJob, kept: _Kept, now: float) -> Placement | None:
        placement = self.boxes.place(job, kept.boxes)
        if placement is None or kept.boxes.isdisjoint(box for box, _ in placement.gpus_of_box):
            return placement
        is_harmless = now + self._expected_s(job) <= kept.at or job.gpus <= kept.spare
        return placement if is_harmless else None

    def _expected_s(self, job: TraceJob) -> float:
        known_s = job.limit_s or durations.expected_s(self.histories.of(job))
        return ASSUMED_S if known_s is None else known_s

    def _end(self, run: _Run, now: float) -> float:
        """Return when a running job is expected to end."""
        if run.job.limit_s is not None:
            return run.began_s + run.job.limit_s
        ran_s = now - run.began_s
        left_s = durations.expected_left_s(run.history, ran_s)
        return now + (max(ran_s, ASSUMED_S - ran_s) if left_s is None else left_s)

    def _keep(self, job: TraceJob, now: float) -> _Kept:
        """Return the boxes on which a job that does not fit could start first."""
        ends: dict[int, list[tuple[float, int]]] = {}
        for run in self.running.values():
            end = self._end(run, now)
            for box, gpus in run.placement.gpus_of_box:
                ends.setdefault(box, []).append((end, gpus))
        need = min(job.gpus, self.boxes.size)
        soonest = sorted(
            (*_soonest(need, free, ends.get(box, ()), now), box) for box, free in enumerate(self.boxes.free)
        )[: len(parts(job.gpus, self.boxes.size))]
        return _Kept(frozenset(box for *_, box in soonest), soonest[-1][0], min(-left for _, left, _ in soonest))


def _soonest(gpus: int, free: int, ends: Sequence[tuple[float, int]], now: float) -> tuple[float, int]:
    """Return when this many GPUs of a box are free, and how many more are then, as a negative number."""
    at = now
    for end, count in sorted(ends):
        if free >= gpus and end > at:
            break
        at, free = max(at, end), free + count
    return at, gpus - free


def fifo(boxes: int, size: int) -> ListScheduler:
    """Return strict order of submission."""
    return ListScheduler(boxes, size, Rule.NOBODY)


def fifo_easy(boxes: int, size: int) -> ListScheduler:
    """Return order of submission with EASY backfill, by limits or, without them, by history."""
    return ListScheduler(boxes, size, Rule.HARMLESS)


def greedy(boxes: int, size: int) -> ListScheduler:
    """Return first-fit: whatever fits starts, in order of submission."""
    return ListScheduler(boxes, size, Rule.ALL)


def sjf(boxes: int, size: int) -> ListScheduler:
    """Return shortest first by the true run times, which nobody knows, and first-fit."""
    return ListScheduler(boxes, size, Rule.ALL, rank=lambda job: job.duration_s)


def lower_bound_s(jobs: Sequence[TraceJob], gpus: int) -> float:
    """Return a mean completion time that no policy can beat.

    That is without any wait, or with the shortest remaining work first on all GPUs together, if that is more.
    """
    left: list[tuple[float, float]] = []
    total, now = 0.0, 0.0
    coming = iter(jobs)
    job = next(coming, None)
    while job is not None or left:
        if not left and job is not None:
            now = max(now, job.submit_s)
        until = job.submit_s if job is not None else math.inf
        while left and now + left[0][0] <= until:
            work_s, submit_s = heapq.heappop(left)
            now += work_s
            total += now - submit_s
        if job is None:
            continue
        if left:
            heapq.heapreplace(left, (left[0][0] - (until - now), left[0][1]))
        now = max(now, until)
        heapq.heappush(left, (job.duration_s * job.gpus / gpus, job.submit_s))
        job = next(coming, None)
    mean_s = sum(each.duration_s for each in jobs) / max(1, len(jobs))
    return max(mean_s, total / max(1, len(jobs)))
