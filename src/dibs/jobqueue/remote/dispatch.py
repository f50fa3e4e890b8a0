"""Jobs on engines that others operate: which of them are sent there, and what the news about them mean.

`dispatch` does the same for this machine. An engine that cannot be reached gets nothing, and changes nothing.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Sequence

from dibs.engines.protocol import Caps, Node, Seen
from dibs.engines.remote_starts import Accepted, Declined, Judged, News, StartId
from dibs.errors import NotFound
from dibs.jobqueue import dispatch
from dibs.jobqueue.turns import Adopt, Order, Send, Turn, limit_word
from dibs.model import lifecycle
from dibs.model.jobs import Job, JobId, State
from dibs.runner import attempts
from dibs.runner.records import Final, RunningCommand
from dibs.scheduling import views
from dibs.scheduling.views import WaitingJob
from dibs.system import refusals
from dibs.system.crash_points import crash_point
from dibs.system.refusals import Refusal

log = logging.getLogger("dibs.jobqueue.remote.dispatch")

#: Nanoseconds of a millisecond.
MS = 1_000_000


def place(turn: Turn, resting: Collection[JobId]) -> None:
    """Send the jobs that their engines can take now, in the order of the queue; without those that rest."""
    for name in turn.store.waiting_engines():
        remote = turn.remotes.get(name)
        if remote is None or remote.condition.trouble:
            continue
        active = turn.store.active_on(name)
        most = remote.max_sent - len(active)
        if most <= 0:
            continue
        waiting = [job for job in turn.store.head(most + len(resting), engine=name) if job.id not in resting]
        now = remote.condition
        for chosen in choose(waiting, active, now.nodes, remote.engine.caps, most, now.foreign_gpus):
            placed = turn.record(turn.store.job(chosen.id), lifecycle.Placed(turn.now, ()), name)
            turn.effects.append(Send(placed))


def choose(
    waiting: Sequence[WaitingJob],
    active: Sequence[tuple[JobId, int, int]],
    nodes: Sequence[Node],
    caps: Caps,
    most: int,
    foreign_gpus: int = 0,
) -> list[WaitingJob]:
    """Return the jobs to send, at most `most`: all, or those that fit and a few more if the engine keeps no queue.

    `active` are id, GPUs and cores of those that are already there; `foreign_gpus` are in use by others. Pure.
    """
    up = [node for node in nodes if node.is_up]
    gpus, cores = sum(node.gpus for node in up) - foreign_gpus, sum(node.cpus for node in up)
    ahead = caps.look_ahead
    for _, has_gpus, has_cores in active:
        gpus, cores, fits = _subtract(gpus, cores, has_gpus, has_cores)
        ahead -= not fits
    left: dict[tuple[str, int | str], int] = {}
    chosen: list[WaitingJob] = []
    for job in views.order(waiting):
        if len(chosen) >= most:
            break
        if any(limit.is_paused or left.setdefault(limit.key, limit.room) < limit.cost for limit in job.limits):
            continue
        if not caps.holds_queue:
            gpus, cores, fits = _subtract(gpus, cores, job.request.gpus, job.request.cpus)
            if not fits and ahead <= 0:
                # No later job passes it: on a cluster of others we cannot know what it would delay.
                break
            ahead -= not fits
        for limit in job.limits:
            left[limit.key] -= limit.cost
        chosen.append(job)
    return chosen


def _subtract(gpus: int, cores: int, needs_gpus: int, needs_cores: int) -> tuple[int, int, bool]:
    """Return the GPUs and cores that a job leaves, and whether it fits; one with GPUs takes no core."""
    needs_cores = 0 if needs_gpus else max(1, needs_cores)
    return gpus - needs_gpus, cores - needs_cores, needs_gpus <= gpus and needs_cores <= cores


def recover(turn: Turn) -> None:
    """Follow the jobs that were active on engines when the last daemon ended."""
    for job in turn.store.active():
        if not job.is_local:
            _recover(turn, job)


def _recover(turn: Turn, job: Job) -> None:
    if job.engine not in turn.remotes:
        log.error("job %s: its engine %s is not in the settings, so nothing is known about it", job.id, job.engine)
        return
    turn.effects.append(Adopt(job))
    # Orders may have been recorded but not sent; each may come twice.
    kinds = {event.kind for event in turn.store.events(job.id)}
    if job.state is State.STOPPING:
        turn.effects.append(Order(job, f"stop {turn.settings.grace}"))
    elif job.state is State.PAUSED or "Resumed" in kinds:
        turn.effects.append(Order(job, "pause" if job.state is State.PAUSED else "resume"))
    if "Edited" in kinds and job.pid is not None:
        turn.effects.append(Order(job, f"limit {limit_word(job.spec.time_limit_s)}"))


def hear(turn: Turn, news: Sequence[News]) -> None:
    """Record what became of starts; news about a start that is over changes nothing."""
    crash_point("remote:recorded")
    for one in news:
        job = _started_job(turn, one.start_id)
        if job is None:
            continue
        match one:
            case Accepted(ref=ref):
                turn.store.locate(job, ref, job.node)
                turn.store.note(job.id, turn.now, "Sent", f"{job.engine} {ref}")
                turn.changed.append(job.id)
            case Declined(why=why):
                _decline(turn, job, why)
            case Judged():
                _settle(turn, job, one)


def _started_job(turn: Turn, start_id: StartId) -> Job | None:
    try:
        job = turn.store.job(start_id.job)
    except NotFound:
        return None
    return job if job.is_active and (job.attempt, job.start) == (start_id.attempt, start_id.start) else None


def _decline(turn: Turn, job: Job, why: str) -> None:
    told = f"{job.engine} refused it: {why}"
    if job.state is State.STARTING:
        turn.record(job, lifecycle.CannotStart(turn.now, told))
    else:
        turn.record(job, lifecycle.GivenUp(turn.now, told))


def _settle(turn: Turn, job: Job, judged: Judged) -> None:
    if judged.seen.node and judged.seen.node != job.node:
        job = turn.store.locate(job, job.engine_ref, judged.seen.node)
        turn.changed.append(job.id)
    match judged.verdict:
        case attempts.Alive(_, RunningCommand() as running):
            at = running.started_at_ns // MS
            dispatch.started(turn, job, running.pid, at + clock_shift_ms(job, turn.now, at, at))
        case attempts.Ended(final):
            dispatch.settle_ended(turn, job, _by_our_clock(job, turn.now, final))
        case attempts.NoLease(final) | attempts.Refused(final):
            _refuse(turn, job, f"{final.device}: {final.why}" if final.device else final.why)
        case attempts.NeverStarted():
            _settle_unbegun(turn, job, judged.seen, judged.output)
        case attempts.Lost(_, why):
            where = f" on {job.node}" if job.node else ""
            told = f"{job.engine}: {why or 'its runner is gone'}; no result was written{where}"
            turn.record(job, lifecycle.LostTrack(turn.now, told))


def _by_our_clock(job: Job, now: int, final: Final) -> Final:
    if not final.started_at_ns:
        return final
    shift_ns = MS * clock_shift_ms(job, now, final.started_at_ns // MS, final.ended_at_ns // MS)
    moved = copy.copy(final)
    moved.started_at_ns += shift_ns
    moved.ended_at_ns += shift_ns
    return moved


def clock_shift_ms(job: Job, now: int, started_at: int, last_at: int) -> int:
    """Return what to add to the times of a node: by our clock a job starts after its submission and has ended by now.

    0 unless the clock of the node is wrong beyond doubt. Pure.
    """
    if job.started_at is not None:
        # As when it was seen to run.
        return job.started_at - started_at
    return max(job.submitted_at - started_at, min(0, now - last_at))


def _settle_unbegun(turn: Turn, job: Job, seen: Seen, output: str) -> None:
    """Record that a start is over before its command ran."""
    why = f"{job.engine} ended it before its runner began"
    why += f" ({seen.why})" if seen.why else ""
    why += f"; it printed: {output}" if output else _unseen(turn, job)
    if job.state is State.STOPPING:
        turn.record(job, lifecycle.GivenUp(turn.now, "cancelled before the command ran"))
    elif job.state is not State.STARTING:
        turn.record(job, lifecycle.LostTrack(turn.now, "its records say it never started, but it was seen running"))
    elif job.dead_starts + 1 >= lifecycle.MOST_DEAD_STARTS:
        turn.record(job, lifecycle.CannotStart(turn.now, f"{lifecycle.MOST_DEAD_STARTS} times {why}"))
    else:
        turn.record(job, lifecycle.GivenUp(turn.now, why, runner_died=True))
        turn.refused.append((job, Refusal(refusals.JOB, why)))


def _unseen(turn: Turn, job: Job) -> str:
    """Return the usual cause if not even the output of a runner came up."""
    remote = turn.remotes.get(job.engine)
    if remote is None:
        return ""
    where = f"node {job.node}" if job.node else "every node"
    return f"; it printed nothing: does {where} see {remote.packer.shared}, and can you write there?"


def _refuse(turn: Turn, job: Job, why: str) -> None:
    """Queue a job again whose node refused the start; only this job waits until the next try."""
    turn.record(job, lifecycle.GivenUp(turn.now, f"{job.engine}: {why}"))
    turn.refused.append((job, Refusal(refusals.JOB, why)))
