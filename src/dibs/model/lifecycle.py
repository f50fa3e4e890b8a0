"""The life of a job: every state, every event, and the one table of transitions.

All rules about which event may follow which are here. This module knows nothing about processes, databases or the
clock; events carry their time. `docs/lifecycle.md` is generated from the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dibs.errors import Bug
from dibs.model.devices import DeviceId
from dibs.model.jobs import Cause, Job, JobId, Outcome, State, Trouble


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a job, and when, in wall-clock milliseconds."""

    at: int


@dataclass(frozen=True, slots=True)
class Placed(Event):
    """The plan assigned devices; a runner is about to start."""

    devices: tuple[DeviceId, ...]


@dataclass(frozen=True, slots=True)
class GivenUp(Event):
    """The start was abandoned before the command ran; the job is queued again."""

    why: str
    #: The runner itself died while the daemon watched. A crash of the daemon does not count against the job.
    runner_died: bool = False


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The command is running."""

    pid: int


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """The command ended or could not be started; the details come from the runner's record."""

    exit_code: int | None = None
    signal: int | None = None
    started_at: int | None = None
    timed_out: bool = False
    #: It ended because it was asked to.
    was_stopped: bool = False
    #: Why the command could not be started at all.
    not_started: str | None = None
    #: Its last output, or the kernel, reports that memory ran out.
    out_of_memory: bool = False
    #: Why a rule stopped it: how it used a device, or how other runs do; None: a user did, or nobody.
    stopped_for: str | None = None


@dataclass(frozen=True, slots=True)
class LostTrack(Event):
    """The outcome is unknown: the runner left no record."""

    why: str


class Orphaned(Event):
    """The runner is gone but the command is still running."""


@dataclass(frozen=True, slots=True)
class CannotStart(Event):
    """Its runners repeatedly died before they could start the command."""

    why: str


@dataclass(frozen=True, slots=True)
class EvictAsked(Event):
    """It must release its devices for an ordinary job, and is stopped."""

    #: The user who waits, and when the devices are free at the latest.
    user: str
    leaves_at: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Evicted(Event):
    """It was stopped because of `EvictAsked` and did not complete; it waits for its next attempt."""

    exit_code: int | None = None
    signal: int | None = None
    started_at: int | None = None


class CancelAsked(Event):
    """A user cancelled it."""


@dataclass(frozen=True, slots=True)
class Misused(Event):
    """It uses a device that it was not assigned, or too much of its memory, and is stopped."""

    why: str


@dataclass(frozen=True, slots=True)
class StoppedEarly(Event):
    """A rule of its sweep stops it: other runs do better."""

    why: str


@dataclass(frozen=True, slots=True)
class NeedFailed(Event):
    """A dependency failed, so it can never run."""

    need: JobId


@dataclass(frozen=True, slots=True)
class NeedRetried(Event):
    """A failed dependency is being retried, so the job waits again."""

    need: JobId


@dataclass(frozen=True, slots=True)
class HoldAsked(Event):
    """A user, or a rule of its batch, held it."""

    #: What the rule saw; empty: a user asked.
    why: str = ""


class UnholdAsked(Event):
    """A user released it from hold."""


class Paused(Event):
    """Its processes were stopped; it keeps its devices."""


class Resumed(Event):
    """Its processes were continued."""


@dataclass(frozen=True, slots=True)
class RetryAsked(Event):
    """A new attempt was requested."""

    #: An automatic retry that the submitter allowed.
    is_automatic: bool = False


S = State
TRANSITIONS: dict[tuple[State, type[Event]], State] = {
    (S.QUEUED, Placed): S.STARTING,
    (S.QUEUED, HoldAsked): S.HELD,
    (S.QUEUED, CancelAsked): S.FINISHED,
    (S.QUEUED, NeedFailed): S.FINISHED,
    (S.HELD, UnholdAsked): S.QUEUED,
    (S.HELD, CancelAsked): S.FINISHED,
    (S.HELD, NeedFailed): S.FINISHED,
    (S.STARTING, Started): S.RUNNING,
    (S.STARTING, GivenUp): S.QUEUED,
    (S.STARTING, CannotStart): S.FINISHED,
    (S.STARTING, Ended): S.FINISHED,
    (S.STARTING, LostTrack): S.FINISHED,
    (S.STARTING, Orphaned): S.RUNNING,
    (S.STARTING, CancelAsked): S.STOPPING,
    (S.RUNNING, Ended): S.FINISHED,
    (S.RUNNING, LostTrack): S.FINISHED,
    (S.RUNNING, Orphaned): S.RUNNING,
    (S.RUNNING, Paused): S.PAUSED,
    (S.RUNNING, CancelAsked): S.STOPPING,
    (S.RUNNING, Misused): S.STOPPING,
    (S.RUNNING, EvictAsked): S.STOPPING,
    (S.PAUSED, EvictAsked): S.STOPPING,
    (S.PAUSED, Misused): S.STOPPING,
    (S.RUNNING, StoppedEarly): S.STOPPING,
    (S.PAUSED, Resumed): S.RUNNING,
    (S.PAUSED, Ended): S.FINISHED,
    (S.PAUSED, LostTrack): S.FINISHED,
    (S.PAUSED, Orphaned): S.PAUSED,
    (S.PAUSED, CancelAsked): S.STOPPING,
    (S.STOPPING, Started): S.STOPPING,
    (S.STOPPING, Ended): S.FINISHED,
    (S.STOPPING, LostTrack): S.FINISHED,
    (S.STOPPING, Orphaned): S.STOPPING,
    # A job that is being evicted can still be cancelled.
    (S.STOPPING, CancelAsked): S.STOPPING,
    (S.STOPPING, Evicted): S.QUEUED,
    # An abandoned start must not requeue a job that is being stopped.
    (S.STOPPING, GivenUp): S.FINISHED,
    (S.FINISHED, RetryAsked): S.QUEUED,
    (S.FINISHED, NeedRetried): S.QUEUED,
}

#: The remark on a job that can never run because of `{need}`.
NEED_FAILED = "job {need}, a dependency, did not succeed"
#: Runners that may die before committing until the job counts as unable to start.
MOST_DEAD_STARTS = 3


def allows(job: Job, event: type[Event]) -> bool:
    """Tell whether an event of this type is allowed in the current state of `job`."""
    return (job.state, event) in TRANSITIONS


def advance(job: Job, event: Event) -> Job:
    """Return `job` after `event`; the table above is the complete rule."""
    state = TRANSITIONS.get((job.state, type(event)))
    if state is None:
        raise Bug(f"job {job.id} is {job.word}: {type(event).__name__} cannot happen to it.")
    # These two happen to every job, and each copy of one costs more than all the rest.
    if isinstance(event, Placed):
        start = job.start + 1
        return replace(job, state=state, remark=None, start=start, allocation=event.devices, engine_ref=None, node=None)
    if isinstance(event, Ended):
        return _end(job, event)
    moved = replace(job, state=state, remark=None)
    match event:
        case GivenUp(at, why, runner_died) if state is S.QUEUED:
            dead = job.dead_starts + runner_died
            return replace(moved, allocation=(), dead_starts=dead, remark=why, engine_ref=None, node=None)
        case GivenUp(at):
            return _finish(moved, at, Outcome.CANCELLED)
        case Started(at, pid):
            return replace(moved, started_at=at, pid=pid)
        case LostTrack(at, why):
            return _finish(moved, at, Outcome.LOST, Cause.LOST, remark=why)
        case CannotStart(at, why):
            return _finish(moved, at, Outcome.FAILED, Cause.START, remark=why)
        case Misused(why=why):
            return replace(moved, remark=why)
        case StoppedEarly(why=why):
            # The cause is kept until the end, which may come in another daemon.
            return replace(moved, cause=Cause.EARLY, remark=f"stopped early: {why}")
        case EvictAsked(_, user, leaves_at):
            return replace(moved, evicted_by=user, leaves_at=leaves_at)
        case Evicted():
            evicted = _fresh(moved, attempt=job.attempt + 1, retried=job.retried)
            return replace(evicted, evictions=job.evictions + 1)
        case HoldAsked(why=why):
            return replace(moved, remark=why or None)
        case Orphaned():
            return replace(
                moved, remark="its runner is gone; the command is still running, but its result will be unknown"
            )
        case CancelAsked(at) if state is S.FINISHED:
            return _finish(moved, at, Outcome.CANCELLED)
        case CancelAsked():
            return replace(moved, remark=job.remark, leaves_at=None)
        case NeedFailed(at, need):
            why = NEED_FAILED.replace("{need}", str(need))
            return _finish(moved, at, Outcome.CANCELLED, Cause.DEPENDENCY, remark=why)
        case NeedRetried():
            # Usually it never ran, so there is no previous attempt.
            return _fresh(moved, attempt=job.attempt + (job.start > 0))
        case RetryAsked(is_automatic=is_automatic):
            return _fresh(moved, attempt=job.attempt + 1, retried=job.retried + 1 if is_automatic else 0)
        case _:
            return moved


def _end(job: Job, event: Ended) -> Job:
    outcome, cause, remark = _verdict(job, event)
    started = event.started_at if event.started_at is not None else job.started_at
    return replace(
        job, state=S.FINISHED, finished_at=event.at, outcome=outcome, cause=cause, leaves_at=None, remark=remark,
        exit_code=event.exit_code, signal=event.signal, started_at=started,
    )  # fmt: skip


def _verdict(job: Job, event: Ended) -> tuple[Outcome, Cause | None, str | None]:
    """Return how a job ended: the outcome, its cause, and a remark."""
    if event.not_started is not None:
        # A command that could not start has failed, even if somebody cancelled the job in the meantime.
        return Outcome.FAILED, Cause.START, event.not_started
    if event.timed_out:
        return Outcome.TIMEOUT, Cause.TIMEOUT, None
    if event.was_stopped and job.cause is Cause.EARLY:
        return Outcome.CANCELLED, Cause.EARLY, event.stopped_for or "stopped early"
    if event.was_stopped and event.stopped_for is not None:
        return Outcome.FAILED, Cause.GPU, event.stopped_for
    if event.was_stopped and job.leaves_at is None:
        return Outcome.CANCELLED, None, None
    if event.out_of_memory and (event.signal is not None or event.exit_code):
        return Outcome.FAILED, Cause.OOM, None
    if event.signal is not None:
        return Outcome.FAILED, Cause.SIGNAL, None
    if event.exit_code:
        return Outcome.FAILED, Cause.EXIT, None
    if event.exit_code is None:
        raise Bug(f"job {job.id} ended without an exit code, a signal or a reason.")
    return Outcome.DONE, None, None


def _finish(job: Job, at: int, outcome: Outcome, cause: Cause | None = None, remark: str | None = None) -> Job:
    return replace(job, state=S.FINISHED, finished_at=at, outcome=outcome, cause=cause, leaves_at=None, remark=remark)


def _fresh(job: Job, *, attempt: int, retried: int = 0) -> Job:
    return replace(
        job, attempt=attempt, retried=retried, start=0, dead_starts=0, allocation=(), pid=None,
        outcome=None, cause=None, exit_code=None, signal=None, started_at=None, finished_at=None, leaves_at=None,
        engine_ref=None, node=None,
    )  # fmt: skip


def is_evicted(job: Job, event: Ended) -> bool:
    """Tell whether a job that ended did so because it was evicted; one that completed meanwhile is done."""
    is_complete = event.exit_code == 0 and event.signal is None
    return job.leaves_at is not None and event.was_stopped and not event.timed_out and not is_complete


def trouble(job: Job) -> Trouble | None:
    """Return the kind of failure that a retry might fix; None if there is none."""
    match job.outcome, job.cause:
        case Outcome.FAILED, Cause.OOM:
            return Trouble.OOM
        case Outcome.FAILED, _:
            return Trouble.FAIL
        case Outcome.LOST, _:
            return Trouble.LOST
        case Outcome.TIMEOUT, _:
            return Trouble.TIMEOUT
        case _:
            return None


def ran_out_sharing(job: Job) -> bool:
    """Tell whether a finished job ran out of memory while it shared its devices."""
    return job.cause is Cause.OOM and job.spec.request.vram > 0


def wants_retry(job: Job) -> bool:
    """Tell whether a finished job should be retried automatically."""
    return job.retried < job.spec.retries and (
        trouble(job) in job.spec.retry_on or (job.outcome is Outcome.FAILED and _shell_code(job) in job.spec.retry_on)
    )


def _shell_code(job: Job) -> int | None:
    """Return the exit code that a shell would see: a signal counts as 128 and its number."""
    return job.exit_code if job.signal is None else 128 + job.signal
