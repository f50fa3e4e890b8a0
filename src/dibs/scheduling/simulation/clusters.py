"""Simulated time on a cluster of equal boxes: jobs come, start where a scheduler says, and end.

The scheduler sees submissions and ends and decides; it never sees how long a job will run. A job of at most one box
runs on one box; a larger one takes whole boxes. Every start is checked against the free GPUs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from dibs.scheduling.simulation.traces import TraceJob
from dibs.scheduling.simulation.workloads import Workload

#: An evicted job keeps its GPUs this long to save, and needs this long to load again after its next start.
SAVE_S = 60.0
LOAD_S = 60.0


@dataclass(frozen=True, slots=True)
class Placement:
    """Start a job with this many GPUs of each of these boxes."""

    id: int
    gpus_of_box: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens now: starts, evictions, and when to ask again even if nothing happens."""

    starts: tuple[Placement, ...] = ()
    evictions: tuple[int, ...] = ()
    ask_at: float | None = None


class Scheduler(Protocol):
    """A policy in simulated time. Seconds are those of the trace."""

    def submit(self, job: TraceJob, now: float) -> None:
        """Note a new job, or one that was evicted."""

    def end(self, job: TraceJob, now: float, ran_s: float) -> None:
        """Note that a job has finished."""

    def vacate(self, job: TraceJob, now: float) -> None:
        """Note that an evicted job has left its GPUs; it is submitted again right after this."""

    def decide(self, now: float) -> Decision:
        """Decide what starts now."""


#: Makes a scheduler for a number of boxes with a number of GPUs each.
Factory = Callable[[int, int], Scheduler]


@dataclass(slots=True)
class Course:
    """What happened to one job."""

    job: TraceJob
    first_start_s: float = -1.0
    end_s: float = -1.0
    evictions: int = 0

    @property
    def completion_s(self) -> float:
        """Return the time from submission to end."""
        return self.end_s - self.job.submit_s

    @property
    def wait_s(self) -> float:
        """Return the part of it in which the job did not advance: in the queue, or saving and loading."""
        return self.completion_s - self.job.duration_s


@dataclass(slots=True)
class _Run:
    placement: Placement
    began_s: float
    left_s: float
    is_evicted: bool = False


@dataclass
class _Clock:
    """A simulation under way."""

    workload: Workload
    scheduler: Scheduler
    free: list[int] = field(init=False)
    courses: dict[int, Course] = field(init=False)
    runs: dict[int, _Run] = field(default_factory=dict)
    #: Seconds of work that evicted jobs still have to do.
    left_s: dict[int, float] = field(default_factory=dict)
    #: Time, number of the event, job; the job 0 only asks again.
    events: list[tuple[float, int, int, _Run | None]] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.free = [self.workload.gpus_per_box] * self.workload.boxes
        self.courses = {job.id: Course(job) for job in self.workload.jobs}

    def run(self) -> Iterator[float]:
        """Jump from event to event; yield the time after each decision."""
        coming = iter(self.workload.jobs)
        job = next(coming, None)
        while job is not None or self.events:
            now = min(job.submit_s if job else float("inf"), self.events[0][0] if self.events else float("inf"))
            while self.events and self.events[0][0] <= now:
                _, _, job_id, run = heapq.heappop(self.events)
                if run is not None and self.runs.get(job_id) is run:
                    self._leave(job_id, run, now)
            while job is not None and job.submit_s <= now:
                self.scheduler.submit(job, now)
                job = next(coming, None)
            self._carry_out(self.scheduler.decide(now), now)
            yield now

    def _leave(self, job_id: int, run: _Run, now: float) -> None:
        del self.runs[job_id]
        for box, gpus in run.placement.gpus_of_box:
            self.free[box] += gpus
        course = self.courses[job_id]
        if run.is_evicted:
            self.scheduler.vacate(course.job, now)
            self.scheduler.submit(course.job, now)
        else:
            course.end_s = now
            self.scheduler.end(course.job, now, course.job.duration_s)

    def _carry_out(self, decision: Decision, now: float) -> None:
        for placement in decision.starts:
            self._start(placement, now)
        for job_id in decision.evictions:
            self._evict(job_id, now)
        if decision.ask_at is not None and decision.ask_at > now:
            self._add(decision.ask_at, 0, None)

    def _start(self, placement: Placement, now: float) -> None:
        course = self.courses[placement.id]
        if placement.id in self.runs or course.end_s >= 0:
            raise AssertionError(f"job {placement.id} was started twice")
        if sum(gpus for _, gpus in placement.gpus_of_box) != course.job.gpus:
            raise AssertionError(f"job {placement.id} did not get {course.job.gpus} GPUs")
        for box, gpus in placement.gpus_of_box:
            self.free[box] -= gpus
            if self.free[box] < 0:
                raise AssertionError(f"box {box} was over-filled by job {placement.id}")
        if course.first_start_s < 0:
            course.first_start_s = now
        load_s = LOAD_S if placement.id in self.left_s else 0.0
        run = _Run(placement, now, load_s + self.left_s.get(placement.id, course.job.duration_s))
        self.runs[placement.id] = run
        self._add(now + run.left_s, placement.id, run)

    def _evict(self, job_id: int, now: float) -> None:
        old = self.runs[job_id]
        loaded_s = LOAD_S if job_id in self.left_s else 0.0
        done_s = max(0.0, now - old.began_s - loaded_s)
        left_s = self.left_s.get(job_id, self.courses[job_id].job.duration_s) - done_s
        self.left_s[job_id] = max(0.0, left_s)
        self.courses[job_id].evictions += 1
        self.runs[job_id] = run = _Run(old.placement, old.began_s, SAVE_S, is_evicted=True)
        self._add(now + SAVE_S, job_id, run)

    def _add(self, at: float, job_id: int, run: _Run | None) -> None:
        self.count += 1
        heapq.heappush(self.events, (at, self.count, job_id, run))


def simulate(workload: Workload, make: Factory) -> list[Course]:
    """Return what happened to each job; one that never started is an error of the policy."""
    clock = _Clock(workload, make(workload.boxes, workload.gpus_per_box))
    for _ in clock.run():
        pass
    stuck = [course.job.id for course in clock.courses.values() if course.end_s < 0]
    if stuck:
        raise AssertionError(f"{len(stuck)} jobs never ran, job {stuck[0]} first")
    return list(clock.courses.values())
