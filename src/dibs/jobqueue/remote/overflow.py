"""Jobs that wait too long on this machine and may go elsewhere: which of them do, and the change itself.

A job goes once, before its first start, when it has waited for as long as its submitter allowed, or when it is certain
to wait longer. Its checkpoints and logs then have one home from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dibs.jobqueue.turns import Turn
from dibs.model import units
from dibs.model.jobs import Job, JobId, State
from dibs.scheduling.forecasts import Forecast

#: Seconds that a job waits here if its submitter did not say.
USUAL_AFTER_S = 1800.0


@dataclass(frozen=True, slots=True)
class Overflow:
    """Jobs that go elsewhere now, each with the reason, and when to look again, in wall-clock milliseconds."""

    why: Mapping[JobId, str]
    look_at: int | None


def deadline(job: Job) -> int:
    """Return until when a job waits here, in wall-clock milliseconds."""
    after_s = USUAL_AFTER_S if job.spec.overflow_after_s is None else job.spec.overflow_after_s
    began = max(job.submitted_at, job.spec.begin_at or 0)
    return began + round(after_s * 1000)


def decide(jobs: Sequence[Job], forecasts: Mapping[JobId, Forecast], now: int) -> Overflow:
    """Decide which jobs go elsewhere. Pure."""
    why: dict[JobId, str] = {}
    later: list[int] = []
    for job in jobs:
        until = deadline(job)
        expected = forecasts.get(job.id)
        if now >= until:
            after_s = (until - max(job.submitted_at, job.spec.begin_at or 0)) / 1000
            why[job.id] = f"it has waited here for {units.format_duration(after_s)}"
        elif expected is not None and expected.range is not None and expected.range[0] > until:
            wait_s = (expected.range[0] - now) / 1000
            why[job.id] = f"it would not start here for {units.format_duration(wait_s)}"
        else:
            later.append(until)
    return Overflow(why, min(later, default=None))


def apply(turn: Turn, why: Mapping[JobId, str]) -> None:
    """Move jobs to the engines that their submitters named, if they still wait and the engine can be reached."""
    for job_id, reason in why.items():
        job = turn.store.job(job_id)
        target = job.spec.overflow
        remote = None if target is None else turn.remotes.get(target)
        if job.state is not State.QUEUED or not job.is_ready or job.attempt != 1 or not job.is_local:
            continue
        if remote is None or remote.condition.trouble:
            continue
        request = replace(job.spec.request, engine=remote.name)
        spec = replace(job.spec, request=request, overflow=None, overflow_after_s=None)
        turn.store.edit(job, spec, turn.now, f"overflow to {remote.name}: {reason}")
        turn.changed.append(job.id)
