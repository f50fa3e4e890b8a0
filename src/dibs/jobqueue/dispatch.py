"""Place waiting jobs, and record the results of started ones.

Event driven: `settle` runs when a runner ends or at recovery, `place` after every batch of changes. Both run in the
queue thread's transaction; starts and orders are carried out after the commit.
"""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass, replace

from dibs.jobqueue import evictions
from dibs.jobqueue.start_pauses import StartPauses
from dibs.jobqueue.turns import (
    BOOT,
    EndDisobedient,
    EndLeftovers,
    Order,
    StartRunner,
    Turn,
    Watch,
    WatchOrphan,
    limit_word,
)
from dibs.model import dependencies, lifecycle, units
from dibs.model.jobs import BAD, Job, JobId, State
from dibs.runner import attempts, oom
from dibs.runner.records import Final, RunningCommand
from dibs.scheduling import planner, uniform_queue
from dibs.scheduling.planner import Plan
from dibs.scheduling.views import Policy, View
from dibs.system import refusals
from dibs.system.crash_points import crash_point
from dibs.system.refusals import Refusal

log = logging.getLogger("dibs.jobqueue.dispatch")

#: Seconds until a start that no runner has claimed is given up: of a job's first start, of its second, and so on.
#: Usually it takes milliseconds; a runner that is late because the machine is busy gets more time with each start.
CLAIM_WITHIN_S = (10.0, 20.0, 40.0, 60.0)
#: The states in which a job may have no claim.
UNDECIDED = (State.STARTING, State.STOPPING)


def place(turn: Turn, view: View, policy: Policy, pauses: StartPauses) -> Plan:
    """Decide what starts now and record it; the runners are started after the commit."""
    plan = uniform_queue.plan(view, turn.inventory, policy) or planner.plan(view, turn.inventory, policy, turn.now)
    starts = pauses.let_through(plan.starts)
    if starts is not plan.starts:
        plan = replace(plan, starts=starts)
    for start in plan.starts:
        job = evictions.settle_overdue(turn, turn.store.job(start.id), policy)
        where = ", ".join(start.devices) + (" (lent: its lease is idle)" if start.is_loan else "")
        placed = turn.record(job, lifecycle.Placed(turn.now, start.devices), where)
        turn.effects.append(StartRunner(placed, start.is_loan))
    return plan


def follow_up(turn: Turn) -> None:
    """Handle what follows from the jobs that finished in this turn: retries, held batches, dependent jobs."""
    for job_id in [*turn.store.due(turn.since, turn.now), *turn.needs_check]:
        refresh(turn, turn.store.job(job_id))
    # The list grows meanwhile: a job that depended on a failed one finishes too.
    for finished in turn.finished:
        # Read again: a user may have asked for a retry in the same turn.
        job = turn.store.job(finished.id)
        if not job.is_finished:
            continue
        if lifecycle.wants_retry(job):
            why = f"retry {job.retried + 1} of {job.spec.retries} after {job.cause.value if job.cause else job.word}"
            refresh(turn, turn.record(job, lifecycle.RetryAsked(turn.now, is_automatic=True), why))
            if lifecycle.ran_out_sharing(job):
                turn.retry_alone.append(job.id)
            continue
        turn.finished_for_good.append(job)
        if job.spec.batch and job.outcome in BAD and (halt := turn.store.count_bad(job.spec.batch)):
            turn.store.hold_batch(job.spec.batch, turn.now, halt)
            if turn.store.end_halted_search(job.spec.batch, halt.why):
                turn.store.close_batch(job.spec.batch)
        for dependant in turn.store.dependants(job.id):
            refresh(turn, turn.store.job(dependant))
    for job_id in turn.retry_alone:
        give_alone(turn, turn.store.job(job_id))


def give_alone(turn: Turn, job: Job) -> None:
    """Give a job exclusive devices if its last attempt ran out of GPU memory (not of main memory)."""
    last = replace(job, attempt=job.attempt - 1)
    path = turn.files.stderr(last) or turn.files.log(last)
    if job.is_waiting and job.spec.request.vram and oom.said_of_device(os.fsencode(path)):
        size = units.format_size(job.spec.request.vram)
        why = f"vram: out of GPU memory with {size}; it gets exclusive use now"
        turn.store.edit(job, replace(job.spec, request=replace(job.spec.request, vram=0)), turn.now, why)


def refresh(turn: Turn, job: Job) -> None:
    """Make a waiting job ready, not ready, or finished, according to its dependencies."""
    if not job.is_waiting:
        return
    verdict = dependencies.judge(turn.store.outcomes(job.id))
    if isinstance(verdict, dependencies.Hopeless):
        turn.record(job, lifecycle.NeedFailed(turn.now, verdict.because))
        return
    is_due = job.spec.begin_at is None or job.spec.begin_at <= turn.now
    is_ready = is_due and isinstance(verdict, dependencies.Met)
    if is_ready != job.is_ready:
        turn.changed.append(job.id)
        turn.store.set_ready(job.id, is_ready)
        turn.store.note(job.id, turn.now, "Ready" if is_ready else "NotReady", "")


def recover(turn: Turn, boot: str) -> None:
    """Settle every job of this machine that was active when the last daemon ended; `boot` identifies its boot."""
    machine_was_down = turn.store.fact(BOOT) not in (None, boot)
    turn.store.set_fact(BOOT, boot)
    # A new or restored database beside older folders must not reuse their ids.
    turn.store.skip_to(turn.files.highest_id())
    turn.engine.prepare()
    for job in turn.store.active():
        crash_point("recover:job")
        if not job.is_local:
            continue
        mark = turn.mark()
        try:
            with turn.store.step():
                if machine_was_down and job.state in UNDECIDED and turn.engine.is_undecided(job):
                    # Its claim may not have reached the disk: it must not begin a second time, nor count as cancelled.
                    why = f"the machine went down while the job was {job.state.value}; unknown whether it ran"
                    turn.record(job, lifecycle.LostTrack(turn.now, why))
                else:
                    settle(turn, job)
        except OSError as error:
            # One unreadable folder must not block the recovery of the others.
            turn.undo(mark)
            log.error("job %s: %s", job.id, error)
            turn.effects.append(Watch(job, None))


def recheck(turn: Turn) -> None:
    """Examine jobs for which no event may arrive: their runner is gone, but one of their processes is alive."""
    for job in turn.store.active():
        if job.remark is not None and job.is_local:
            settle(turn, job)


def check_starting(turn: Turn) -> bool:
    """Examine starts without a message, because the datagram may be lost; tell whether any are still open."""
    starting = [job for job in turn.store.active() if job.pid is None and job.is_local]
    for job in starting:
        running = turn.engine.running(job)
        if running is not None:
            started(turn, job, running.pid, running.started_at_ns // 1_000_000)
    return bool(starting)


def give_up_unclaimed(turn: Turn, job: Job) -> bool:
    """Give up a start that no runner claims: its runner may have been stopped. Tell whether no runner was faster."""
    if not turn.engine.give_up(job):
        return False
    why = f"no runner started it within {units.format_duration(claim_within_s(job))}"
    _give_up(turn, job, lifecycle.GivenUp(turn.now, why))
    return True


def claim_within_s(job: Job) -> float:
    """Return the seconds in which a runner must claim the current start of a job."""
    return CLAIM_WITHIN_S[min(job.start, len(CLAIM_WITHIN_S)) - 1]


def unclaimed(turn: Turn) -> list[Job]:
    """Return the jobs that were placed and whose start no runner has claimed."""
    starting = [job for job in turn.store.active() if job.state is State.STARTING and job.is_local]
    return [job for job in starting if turn.engine.is_undecided(job)]


def hear(turn: Turn, kind: str, job_id: JobId, attempt: int, start: int, rest: str) -> None:
    """Record the message of a runner: its command runs, or a process of it cannot be killed."""
    job = turn.store.job(job_id)
    if not job.is_active or (job.attempt, job.start) != (attempt, start):
        return
    if kind == "running":
        pid, at_ns = (int(word) for word in rest.split())
        started(turn, job, pid, at_ns // 1_000_000)
    elif kind == "stuck":
        turn.store.note(job.id, turn.now, "Stuck", f"survived SIGKILL: {rest}")


@dataclass(frozen=True, slots=True)
class News:
    """What we know about a start that is examined, beside its files."""

    #: We saw its runner end, so a missing record is its fault.
    runner_died: bool = False
    #: We killed its runner because it did not obey, and end the job's processes ourselves.
    was_killed: bool = False
    #: Its runner said that the command did not run and never will, or no runner got the start. That needs no file,
    #: which may be impossible to make now.
    refusal: Refusal | None = None
    #: The final record as its runner sent it, which saves reading the file.
    final: Final | None = None


NO_NEWS = News()


def look(turn: Turn, job_id: JobId, attempt: int, start: int, news: News = NO_NEWS) -> Refusal | None:
    """Settle one start unless it is already settled; return why it was refused."""
    job = turn.store.job(job_id)
    if not job.is_active or (job.attempt, job.start) != (attempt, start):
        return None
    if news.refusal is None:
        return settle(turn, job, news)
    _give_up(turn, job, lifecycle.GivenUp(turn.now, news.refusal.why))
    return news.refusal


def insist(turn: Turn, job: Job) -> None:
    """End a job without its runner if it is still being stopped: the runner may have been stopped itself."""
    now = turn.store.job(job.id)
    if now.state is State.STOPPING and (now.attempt, now.start) == (job.attempt, job.start):
        turn.effects.append(EndDisobedient(now))


def settle(turn: Turn, job: Job, news: News = NO_NEWS) -> Refusal | None:
    """Record what the files of an attempt say, or what its runner told us of them."""
    verdict = turn.engine.examine(job) if news.final is None else attempts.judge(news.final)
    crash_point("settle:examined")
    match verdict:
        case attempts.Alive(shim, running):
            _settle_living(turn, job, shim, running)
        case attempts.Ended(final):
            settle_ended(turn, job, final)
        case attempts.NoLease(final):
            _give_up(turn, job, lifecycle.GivenUp(turn.now, f"{final.device}: {final.why}"))
            return Refusal(refusals.LEASE, final.why, final.device)
        case attempts.Refused(final):
            _give_up(turn, job, lifecycle.GivenUp(turn.now, final.why))
            return Refusal(final.scope, final.why, final.device)
        case attempts.NeverStarted():
            _settle_never_started(turn, job, news.runner_died)
        case attempts.Missing():
            return _settle_missing(turn, job, news)
        case attempts.Orphaned(running) if news.was_killed:
            turn.effects.append(WatchOrphan(job, running))
        case attempts.Orphaned(running):
            _settle_orphaned(turn, job, running)
        case attempts.Lost() if news.was_killed and job.state is State.STOPPING:
            event = lifecycle.Ended(turn.now, signal=signal.SIGKILL, was_stopped=True, stopped_for=job.remark)
            turn.record(job, event)
        case attempts.Lost():
            is_seen = news.runner_died
            why = "its runner ended without writing a result" if is_seen else "its runner is gone and left no result"
            lost = turn.record(job, lifecycle.LostTrack(turn.now, why))
            # A process that closed its descriptors no longer holds tree.lock, but may still run on the device.
            turn.effects.append(EndLeftovers(lost))
    return None


def _settle_living(turn: Turn, job: Job, shim: attempts.Shim | None, running: RunningCommand | None) -> None:
    if running is not None:
        job = started(turn, job, running.pid, running.started_at_ns // 1_000_000)
    turn.effects.append(Watch(job, shim))
    if job.state is State.STOPPING:
        # The order may have been recorded but not sent; sending it twice is harmless.
        is_evicted = job.leaves_at is not None
        turn.effects.append(Order(job, evictions.stop_order(turn) if is_evicted else f"stop {turn.settings.grace}"))
    else:
        turn.effects += [Order(job, line) for line in _untold(turn, job)]


def _untold(turn: Turn, job: Job) -> list[str]:
    """Return the orders that were recorded but not sent because the daemon ended in between."""
    is_paused, told_limit = turn.engine.standing_orders(job)
    lines = []
    if is_paused != (job.state is State.PAUSED):
        lines.append("resume" if is_paused else "pause")
    is_edited = any(event.kind == "Edited" for event in turn.store.events(job.id))
    if is_edited and told_limit != limit_word(job.spec.time_limit_s):
        lines.append(f"limit {limit_word(job.spec.time_limit_s)}")
    return lines


def settle_ended(turn: Turn, job: Job, final: Final) -> None:
    """Record the end of a command, or that it could not be started."""
    event = lifecycle.Ended(
        at=final.ended_at_ns // 1_000_000,
        exit_code=final.code if final.kind in ("exited", "failed") else None,
        signal=final.signal if final.kind == "signalled" else None,
        started_at=final.started_at_ns // 1_000_000 if final.started_at_ns else None,
        timed_out=final.timed_out,
        was_stopped=final.stopped,
        not_started=final.why if final.kind == "failed" else None,
        out_of_memory=final.out_of_memory,
        # While a job is being stopped, its remark is the reason.
        stopped_for=job.remark if job.state is State.STOPPING else None,
    )
    if lifecycle.is_evicted(job, event):
        refresh(turn, evictions.settle(turn, job, event))
    else:
        turn.record(job, event)
    if job.pid is None:
        # Nothing told us before that it had begun.
        turn.begun.append(job)
    if final.leftovers:
        turn.store.note(job.id, turn.now, "Leftovers", f"stopped leftover processes: {final.leftovers}")


def _settle_never_started(turn: Turn, job: Job, runner_died: bool) -> None:
    if job.state is not State.STARTING and job.state is not State.STOPPING:
        turn.record(job, lifecycle.LostTrack(turn.now, "its records say it never started, but it was seen running"))
        return
    if runner_died and job.state is State.STARTING and job.dead_starts + 1 >= lifecycle.MOST_DEAD_STARTS:
        times = f"{lifecycle.MOST_DEAD_STARTS} times before the command started"
        why = f"its runner died {times}; see {turn.engine.folder(job)}"
        turn.record(job, lifecycle.CannotStart(turn.now, why))
        return
    why = "its runner died before the command started" if runner_died else "the daemon ended before the command started"
    _give_up(turn, job, lifecycle.GivenUp(turn.now, why, runner_died))


def _give_up(turn: Turn, job: Job, event: lifecycle.GivenUp) -> None:
    """Record that a start was given up; cancel a `no_wait` job instead of queueing it again."""
    job = turn.record(job, event)
    if job.is_waiting and job.spec.no_wait and job.attempt == 1:
        turn.record(job, lifecycle.CancelAsked(turn.now), f"it could not start at once ({event.why})")


def _settle_missing(turn: Turn, job: Job, news: News) -> Refusal | None:
    # The folder of the attempt does not exist: it was never made, or was deleted.
    if job.state is not State.STARTING:
        turn.record(job, lifecycle.LostTrack(turn.now, "its folder is gone; result unknown"))
    elif turn.engine.give_up(job):
        _settle_never_started(turn, job, news.runner_died)
    else:
        # A late runner made the folder after we looked, and claimed the start.
        return settle(turn, job, news)
    return None


def _settle_orphaned(turn: Turn, job: Job, running: RunningCommand | None) -> None:
    if job.remark is None or job.state is State.STARTING:
        job = turn.record(job, lifecycle.Orphaned(turn.now))
    turn.effects.append(WatchOrphan(job, running))


def started(turn: Turn, job: Job, pid: int, at: int) -> Job:
    """Record once that a job's command runs."""
    if job.pid is None and lifecycle.allows(job, lifecycle.Started):
        job = turn.record(job, lifecycle.Started(at, pid))
        turn.begun.append(job)
    return job
