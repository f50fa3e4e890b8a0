"""Make the work of one simulation from a trace: the offered load, the time limits and the evictable jobs.

Pure: the same trace and the same seed give the same work.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from dibs.scheduling.simulation.traces import TraceJob

#: Limits that people type, in seconds: 15 min to 90 days.
USUAL_LIMITS_S = tuple(
    60 * minutes
    for minutes in (15, 30, 60, 120, 240, 480, 720, 1440, 2880, 4320, 7200, 10080, 20160, 43200, 86400, 129600)
)
#: Limits are this many times the run time on average (median and spread of the logarithm), before rounding up.
LIMIT_FACTOR, LIMIT_SPREAD = 1.5, 0.5
#: People make long jobs evictable, those that save checkpoints: only jobs that run at least this long are drawn.
EVICTABLE_FROM_S = 4 * 3600.0


@dataclass(frozen=True)
class Workload:
    """The jobs to simulate, in order of submission, and the boxes they run on."""

    jobs: tuple[TraceJob, ...]
    boxes: int
    gpus_per_box: int
    #: Jobs of the trace that no box count given here could ever run.
    too_large: int = 0
    #: Whether the time limits are not those of the trace.
    has_made_up_limits: bool = False

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of all boxes."""
        return self.boxes * self.gpus_per_box

    @property
    def load(self) -> float:
        """Return the GPU time that the jobs need per GPU time that there is while they are submitted."""
        return offered_gpus(self.jobs) / self.gpus


def offered_gpus(jobs: Sequence[TraceJob]) -> float:
    """Return how many GPUs the jobs would keep busy on average between the first and the last submission."""
    if not jobs:
        return 0.0
    span_s = jobs[-1].submit_s - jobs[0].submit_s
    return sum(job.duration_s * job.gpus for job in jobs) / max(span_s, 1.0)


def make(
    jobs: Sequence[TraceJob],
    boxes: int,
    gpus_per_box: int,
    *,
    seed: int = 0,
    load: float | None = None,
    has_limits: bool = True,
    evictable: float = 0.0,
) -> Workload:
    """Return the work of one simulation.

    A load is reached by leaving out jobs at random, or, if the trace offers too little, by submitting faster. Where the
    trace has no limits, they are made up; `has_limits=False` ignores those of the trace too.
    """
    dice = Random(seed)
    fitting = [job for job in jobs if job.gpus <= boxes * gpus_per_box]
    chosen = fitting if load is None else _loaded(fitting, load * boxes * gpus_per_box, dice)
    if not has_limits:
        chosen = [replace(job, limit_s=None) for job in chosen]
    is_made_up = has_limits and all(job.limit_s is None for job in chosen)
    if is_made_up:
        chosen = [replace(job, limit_s=_made_up_limit(job, dice)) for job in chosen]
    if evictable:
        chosen = [replace(job, is_evictable=_draws_evictable(job, evictable, dice)) for job in chosen]
    return Workload(tuple(chosen), boxes, gpus_per_box, len(jobs) - len(fitting), is_made_up)


def _loaded(jobs: list[TraceJob], wanted_gpus: float, dice: Random) -> list[TraceJob]:
    """Return jobs that offer the wanted load."""
    share = wanted_gpus / max(offered_gpus(jobs), 1e-9)
    if share < 1:
        jobs = [job for job in jobs if dice.random() < share]
    # A few very long jobs may be in the sample or not: the rest is adjusted by time.
    stretch = offered_gpus(jobs) / wanted_gpus
    start_s = jobs[0].submit_s if jobs else 0.0
    return [replace(job, submit_s=start_s + (job.submit_s - start_s) * stretch) for job in jobs]


def _made_up_limit(job: TraceJob, dice: Random) -> float:
    """Return a limit that the job keeps: a usual value, often much too long.

    It is made from the true run time, which tells a scheduler more than most people do: results are optimistic.
    """
    wanted_s = job.duration_s * max(1.0, dice.lognormvariate(math.log(LIMIT_FACTOR), LIMIT_SPREAD))
    place = bisect.bisect_left(USUAL_LIMITS_S, wanted_s)
    return float(USUAL_LIMITS_S[place]) if place < len(USUAL_LIMITS_S) else math.ceil(wanted_s)


def _draws_evictable(job: TraceJob, share: float, dice: Random) -> bool:
    return job.duration_s >= EVICTABLE_FROM_S and dice.random() < share
