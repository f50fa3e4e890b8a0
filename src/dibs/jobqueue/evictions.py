"""Evict running jobs: record the decision, stop the job, and queue it again for its next attempt.

`scheduling.evictions` decides. The decision is committed before the runner is ordered to stop, and stays in the job
until its attempt has ended: a daemon that starts in between gives the order again.
"""

from __future__ import annotations

from dataclasses import replace

from dibs.jobqueue.turns import Order, Turn
from dibs.model import lifecycle, units
from dibs.model.jobs import NO, Job, JobId, State
from dibs.scheduling import evictions, precedence
from dibs.scheduling.evictions import Decision, Eviction
from dibs.scheduling.planner import Plan
from dibs.scheduling.views import Policy, View


def evict(turn: Turn, view: View, policy: Policy, plan: Plan) -> Decision:
    """Decide which jobs are evicted after a plan, and record it; their runners are ordered to stop after the commit."""
    decision = evictions.decide(view, turn.inventory, policy, turn.now, plan)
    for eviction in decision.ours:
        assert eviction.id is not None
        ask(turn, turn.store.job(eviction.id), eviction.user, _reason(eviction))
    return decision


def ask(turn: Turn, job: Job, user: str, why: str) -> None:
    """Record that a job has to give up its devices for a user (uid); its runner is ordered to stop after the commit."""
    # A message of this turn may have changed it since the decision, and it may be leaving already.
    if lifecycle.allows(job, lifecycle.EvictAsked):
        leaves_at = turn.now + int(turn.settings.evict_grace * 1000)
        evicted = turn.record(job, lifecycle.EvictAsked(turn.now, user, leaves_at), why)
        turn.effects.append(Order(evicted, stop_order(turn)))


def _reason(eviction: Eviction) -> str:
    if eviction.waiter is not None:
        return f"job {eviction.waiter} waits for its GPUs"
    # Not the name: the lookup may take time.
    return f"another user (uid {eviction.user}) waits for its GPUs"


def stop_order(turn: Turn) -> str:
    """Return the order that stops a job with its warning signal and the grace of an eviction."""
    return f"stop {turn.settings.evict_grace} warn"


def make_evictable(turn: Turn, job_id: JobId, attempt: int) -> None:
    """Let others see that a running job writes checkpoints and is evictable now. Harmless if it is repeated."""
    job = turn.store.job(job_id)
    if job.state is not State.RUNNING or job.attempt != attempt:
        return
    if turn.store.set_checkpoints(job_id, attempt):
        turn.changed.append(job_id)
        turn.store.note(job_id, turn.now, "Evictable", "it writes checkpoints (--evictable auto)")
    turn.effects.append(Order(job, "evictable"))


def settle_overdue(turn: Turn, job: Job, policy: Policy) -> Job:
    """Return a job that is about to start; one that was served as an ordinary job because of its age stays one."""
    request = job.spec.request
    if not precedence.is_overdue(request, job.submitted_at, policy, turn.now):
        return job
    age = units.format_duration((turn.now - job.submitted_at) / 1000)
    why = f"evictable: submitted {age} ago, so it runs to its end"
    turn.store.edit(job, replace(job.spec, request=replace(request, evictable=NO)), turn.now, why)
    return turn.store.job(job.id)


def settle(turn: Turn, job: Job, event: lifecycle.Ended) -> Job:
    """Record that a job was evicted; after too many evictions it becomes an ordinary one."""
    ended = lifecycle.Evicted(event.at, event.exit_code, event.signal, event.started_at)
    ran_ms = max(0, event.at - (event.started_at or job.started_at or event.at))
    ran = units.format_duration(ran_ms / 1000)
    waiting = turn.record(job, ended, f"after {ran}; attempt {job.attempt + 1} follows")
    turn.evicted.append(waiting)
    request = evictions.after(job.spec.request, waiting.evictions, turn.settings.max_evictions)
    if request == job.spec.request:
        return waiting
    if request.is_evictable:
        turn.store.edit(waiting, replace(job.spec, request=request), turn.now, "evictable: it writes checkpoints")
        return waiting
    why = f"evictable: evicted {waiting.evictions} times, so it runs to its end"
    turn.store.edit(waiting, replace(job.spec, request=request), turn.now, why)
    # Behind the ordinary jobs that wait now: it was just evicted for one of them.
    turn.store.move(waiting, "last")
    return waiting
