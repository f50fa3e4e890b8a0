"""Who may pass whom: how long jobs are expected to run, in which order others pass a waiting job, and until when.

A time limit counts as a promise. Without one, a job is expected to run as long as those like it did (`durations`): the
longer it has run already, the longer it will. A job about which nothing is known passes nobody.

Jobs are served in order of submission, except that one with a time limit may move ahead when it has waited long for
that limit (`serving_order`). Its limit bounds what this costs the others, which an estimate would not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from dibs.model import ranks
from dibs.model.jobs import NO, JobId, Request
from dibs.scheduling import durations, views
from dibs.scheduling.views import Active, Policy, View, WaitingJob

#: Bounds of the expected run time in the order of those that pass: below, a start costs more than it saves; above, a
#: very long job would wait very long.
SHORTEST_S, LONGEST_S = 60.0, 72 * 3600.0
#: A job with a time limit keeps its place in the order of submission until its slowdown is this large.
LARGE_SLOWDOWN = 4.0


class Kept(Protocol):
    """When a waiting job could start, and by when those that pass it must have ended."""

    @property
    def at(self) -> float: ...

    @property
    def until(self) -> float: ...

    @property
    def is_evictable(self) -> bool: ...

    @property
    def id(self) -> JobId: ...

    @property
    def gpus(self) -> int: ...


def yields_to(job: WaitingJob | Active, waiter: Kept | WaitingJob) -> bool:
    """Tell whether an evictable job gives up its devices for a waiting one, once it has run for the minimum time.

    It yields to all ordinary jobs, and to evictable ones that are older and need more GPUs: these could not collect
    their GPUs otherwise.
    """
    if not job.is_evictable or not waiter.is_evictable:
        return job.is_evictable
    return job.id > waiter.id and job.gpus < waiter.gpus


def expected_s(job: WaitingJob, policy: Policy) -> float:
    """Return how long a waiting job is expected to run."""
    if job.request.limit_s is not None:
        return job.request.limit_s
    known_s = durations.expected_s(job.history)
    return policy.assumed_s if known_s is None else known_s


def expected_end(job: Active, policy: Policy, now: int) -> float:
    """Return when an active job is expected to end.

    One that overran its limit is expected to need it again, and so is one of which nothing is known. Adding the time
    that such a job has run would be wrong: one that starts now would be expected to end before it, and could pass all.
    """
    if job.leaves_at is not None:
        return float(max(now, job.leaves_at))
    began = now if job.started_at is None else min(now, job.started_at)
    left_s = None if job.limit_s else durations.expected_left_s(job.history, (now - began) / 1000)
    if left_s is not None:
        return now + left_s * 1000
    span = (job.limit_s or policy.assumed_s) * 1000
    return began + span * (1 + (now - began) // span)


def evictable_at(started_at: int | None, policy: Policy, now: int) -> int:
    """Return when an evictable job has run for the minimum time and may be evicted."""
    return (now if started_at is None else started_at) + int(policy.evict_min_run_s * 1000)


def is_overdue(request: Request, since: int | None, policy: Policy, now: int) -> bool:
    """Tell whether an evictable job, submitted at `since`, is served as an ordinary one because it is that old.

    Ordinary jobs come before evictable ones, so without this some would wait forever. One that is larger than the
    share of its user stays evictable: as an ordinary job it could never start.
    """
    if not request.is_evictable or since is None or now - since < policy.evictable_wait_s * 1000:
        return False
    return policy.max_gpus is None or request.gpus <= policy.max_gpus


def with_overdue(view: View, policy: Policy, now: int) -> View:
    """Return the view with evictable jobs that are overdue as ordinary ones."""
    if not any(is_overdue(job.request, job.since, policy, now) for job in view.waiting):
        return view
    waiting = [
        replace(job, request=replace(job.request, evictable=NO))
        if is_overdue(job.request, job.since, policy, now)
        else job
        for job in view.waiting
    ]
    return replace(view, waiting=waiting)


def expected_release(job: Active, waiter: WaitingJob, policy: Policy, now: int) -> float:
    """Return when a waiting job is expected to get the devices of an active one, which it may evict."""
    end = expected_end(job, policy, now)
    if not yields_to(job, waiter):
        return end
    return min(end, max(now, evictable_at(job.started_at, policy, now)) + policy.evict_grace_s * 1000)


def outlasts(job: WaitingJob, kept: Kept, policy: Policy, now: int) -> bool:
    """Tell whether a job that starts now might still run when a waiting one could start."""
    if yields_to(job, kept) and now + (policy.evict_min_run_s + policy.evict_grace_s) * 1000 <= kept.at:
        # It can be evicted by then.
        return False
    end = now + expected_s(job, policy) * 1000
    # An assumed run time is the same for all jobs: too weak a reason to pass anyone.
    return end > kept.until if is_known(job) else end >= kept.until


def is_known(job: WaitingJob) -> bool:
    """Tell whether a limit or earlier jobs say how long a job runs."""
    return job.request.limit_s is not None or durations.expected_s(job.history) is not None


def kind(job: WaitingJob) -> Hashable:
    """Return a key that is equal for jobs which the planner need not tell apart."""
    return (job.request, job.history) if job.history else job.request


def order(waiting: Iterable[WaitingJob], policy: Policy, now: int) -> list[WaitingJob]:
    """Return jobs, given in serving order, in the order in which they may pass a waiting job.

    After priority, the one that has waited longest for its expected run time comes first; a GPU's wait counts for each.
    Jobs that ask for the same and are alike keep their order.
    """
    jobs = list(waiting)
    urgency = _urgencies(jobs, lambda job: _urgency(job, policy, now), kind)
    return sorted(jobs, key=lambda job: (job.is_evictable, -job.priority, -urgency[job.id]))


def serving_order(waiting: Sequence[WaitingJob], policy: Policy, now: int) -> list[WaitingJob]:
    """Return jobs in the order in which they are served.

    That is the order of submission. But a job with a time limit whose slowdown is large goes before those whose
    slowdown is smaller, until these have waited for `pass_for` per GPU. While a job waits that a user moved, the order
    is the user's.
    """
    jobs = views.order(waiting)
    limited = [job for job in jobs if job.request.limit_s is not None]
    if not any(_urgency(job, policy, now) >= LARGE_SLOWDOWN for job in limited) or any(map(_was_moved, jobs)):
        return jobs
    urgency = _urgencies(jobs, lambda job: _claim(job, policy, now), lambda job: job.request.limit_s and kind(job))
    least: dict[Hashable, float] = {}
    for job in jobs:
        lane = _lane(job)
        if job.request.limit_s is None and urgency[job.id] < math.inf:
            # An estimate alone moves no job ahead.
            urgency[job.id] = min(urgency[job.id], least.get(lane, math.inf))
        least[lane] = min(urgency[job.id], least.get(lane, math.inf))
    return sorted(jobs, key=lambda job: (*_lane(job), -urgency[job.id]))


def _lane(job: WaitingJob) -> tuple[bool, int, float]:
    """Return what comes before slowdown in the order of service."""
    return job.is_evictable, -job.priority, job.turn_s


def _was_moved(job: WaitingJob) -> bool:
    return job.rank not in {"", ranks.rank_of_id(job.id)}


def _claim(job: WaitingJob, policy: Policy, now: int) -> float:
    """Return how early a job is served: jobs that have waited for so long that nobody passes them come first."""
    if job.since is not None and now - job.since >= policy.pass_for_s * 1000 * max(1, job.gpus):
        return math.inf
    urgency = _urgency(job, policy, now)
    return urgency if urgency >= LARGE_SLOWDOWN else 1.0


def _urgencies(
    jobs: Sequence[WaitingJob], value: Callable[[WaitingJob], float], likeness: Callable[[WaitingJob], Hashable]
) -> dict[JobId, float]:
    """Return a value for each job: that of its own, or of an equal job behind it, so that these keep their order."""
    found: dict[JobId, float] = {}
    behind: dict[Hashable, float] = {}
    for job in reversed(jobs):
        alike = job.is_evictable, job.priority, likeness(job)
        found[job.id] = behind[alike] = max(value(job), behind.get(alike, 0.0))
    return found


def _urgency(job: WaitingJob, policy: Policy, now: int) -> float:
    """Return the slowdown of a job so far, in which the wait counts for each of its GPUs."""
    waited_s = 0.0 if job.since is None else max(0, now - job.since) / 1000
    span_s = min(max(expected_s(job, policy), SHORTEST_S), LONGEST_S)
    return 1 + waited_s * max(1, job.request.gpus) / span_s


def closes_at(job: WaitingJob, active: Iterable[Active], policy: Policy) -> float:
    """Return when others may no longer pass a waiting job for good, in wall-clock milliseconds.

    The time counts from when it became the first to wait, as far as the active jobs tell, and grows with its size.
    """
    if job.since is None:
        return math.inf
    before = (each.started_at for each in active if each.started_at is not None and each.id < job.id)
    return max((job.since, *before)) + policy.pass_for_s * 1000 * max(1, job.request.gpus)


def passers(job: WaitingJob, active: Iterable[Active], since: float) -> Sequence[JobId]:
    """Return the later jobs that started before a waiting job, at `since` or after it."""
    return [each.id for each in active if each.id > job.id and each.started_at is not None and each.started_at >= since]
