"""Change submitted jobs: their position in the queue and their options.

All or nothing: if one job cannot be changed, none is.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dibs.errors import Conflict, UserError
from dibs.jobqueue import turns, validation
from dibs.jobqueue.turns import Acted, Left, Order, Turn
from dibs.jobqueue.validation import Submission
from dibs.model import fields, selectors, units
from dibs.model.fields import JobSpec
from dibs.model.jobs import Job, JobId, Request, State, default_name
from dibs.store.query_results import Halt

REQUEST_KEYS = frozenset(own.key for own in fields.REQUEST)
#: Fields of an active job that can still be changed.
WHILE_ACTIVE = frozenset({"time_limit_s"})
WHERE = ("first", "last", "before", "after")


@dataclass(frozen=True, slots=True)
class Change:
    """A change: the given field names, and their values in `submission` and `rules`."""

    keys: frozenset[str]
    submission: Submission
    #: Fields that are reset to their default.
    cleared: frozenset[str] = frozenset()
    #: `at_once` and `halt_after` of the batch.
    rules: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """Return the changed fields, for the event; without values, because some are secret."""
        return ", ".join(sorted({*self.keys, *self.rules}))


def move(turn: Turn, job_id: JobId, where: str, other_id: JobId | None = None) -> str:
    """Move a waiting job among the jobs of its priority; return a note for the user, or nothing."""
    if where not in WHERE:
        raise UserError(f'move expected first, last, before ID or after ID, got "{where}".')
    if (other_id is None) == (where in ("before", "after")):
        raise UserError(f"move {where} expected {'another job' if other_id is None else 'no other job'}.")
    job = _waiting(turn, job_id)
    other = None if other_id is None else _waiting(turn, other_id)
    if other is not None and other.id == job.id:
        raise UserError(f"job {job.id} cannot be moved {where} itself.")
    if other is not None and other.spec.priority != job.spec.priority:
        raise Conflict(
            f"job {job.id} has priority {job.spec.priority} and job {other.id} has {other.spec.priority}: "
            "jobs are ordered inside a priority.",
            f"Change its priority first: dibs edit {job.id} --priority {other.spec.priority}",
        )
    turn.store.move(job, where, other)
    turn.changed.append(job.id)
    turn.store.note(job.id, turn.now, "Moved", where if other is None else f"{where} job {other.id}")
    if where == "first" and turn.store.is_outranked(job.spec.priority):
        return f"first of priority {job.spec.priority}; jobs with a higher priority stay ahead of it"
    return ""


def _waiting(turn: Turn, job_id: JobId) -> Job:
    job = turn.store.job(job_id)
    if not job.is_waiting:
        raise Conflict(f"job {job.id} is {job.word}: only waiting jobs can be moved.")
    return job


def edit(turn: Turn, chosen: selectors.Selection, change: Change) -> Acted:
    """Change options of waiting jobs, the time limit of running jobs, or the rules of a batch."""
    if not change.keys and not change.rules:
        raise UserError("edit expected at least one change, got none.")
    jobs = turns.pick(turn, chosen)
    if len(jobs) > validation.MOST_AT_ONCE:
        raise UserError(
            f"expected at most {validation.MOST_AT_ONCE:,} jobs at once, got {len(jobs):,}.",
            "Edit them in several calls.",
        )
    for job in jobs:
        _check_editable(job, change)
    new = {job.id: job.spec for job in jobs}
    if change.keys:
        new = _edited_specs(turn, jobs, change)
        for job in jobs:
            _check_limit(turn, job, new[job.id].time_limit_s)
    # All checks passed: from here on, things are stored.
    if change.rules and jobs:
        new = _rule(turn, jobs, new, change.rules)
    unchanged = [Left(job.id, job.word, "no change") for job in jobs if new[job.id] == job.spec]
    edited = jobs if change.rules else [job for job in jobs if new[job.id] != job.spec]
    for job in edited:
        _keep(turn, job, new[job.id], change)
    return Acted([turns.changed(job) for job in edited], [] if change.rules else unchanged)


def _check_editable(job: Job, change: Change) -> None:
    if job.is_waiting or not change.keys:
        return
    if job.state in (State.STARTING, State.RUNNING, State.PAUSED) and change.keys <= WHILE_ACTIVE:
        if job.remark is not None:
            raise Conflict(f"job {job.id}: its runner is gone, so its time limit cannot be changed.")
        return
    also = "" if job.is_finished else ", and the time limit of a running job"
    hint = "Select waiting jobs with SELECTOR+queued."
    if job.state is State.STARTING and not job.is_local:
        hint = f"To take it back from {job.engine}, type: dibs hold {job.id}"
    raise Conflict(f"job {job.id} is {job.word}: only waiting jobs can be changed{also}. Nothing was changed.", hint)


def _check_limit(turn: Turn, job: Job, limit_s: float | None) -> None:
    """Refuse a longer time limit where the engine keeps the one that it was given."""
    old_s, remote = job.spec.time_limit_s, turn.remotes.get(job.engine)
    if not job.is_active or remote is None or not remote.engine.caps.holds_queue or old_s is None:
        return
    if limit_s is None or limit_s > old_s:
        raise Conflict(
            f"job {job.id} is on {job.engine}, which ends it at its time limit of {units.format_duration(old_s)}: "
            "it can only be shortened. Nothing was changed.",
        )


def _edited_specs(turn: Turn, jobs: list[Job], change: Change) -> dict[JobId, JobSpec]:
    after = validation.needs_of(turn, change.submission.after) if "after" in change.keys else ()
    ancestors = turn.store.needs_in_turn(need.id for need in after)
    requests: dict[Request, Request] = {}
    new = {}
    for job in jobs:
        if job.id in ancestors:
            raise Conflict(f"job {job.id} would depend on itself.", "`dibs show` lists dependencies.")
        spec = _with_values(job.spec, change)
        if "after" in change.keys:
            spec = replace(spec, after=after)
        if change.keys & REQUEST_KEYS:
            if spec.request not in requests:
                requests[spec.request] = _request(turn, job, change)
            spec = replace(spec, request=requests[spec.request])
        validation.check_warn(Submission(spec, time_limit_s=spec.time_limit_s, evictable=spec.request.evictable))
        new[job.id] = spec
    return new


def _with_values(spec: JobSpec, change: Change) -> JobSpec:
    given = change.submission.spec
    keys = change.keys
    own = [fields.EDITABLE[key] for key in keys - REQUEST_KEYS - {"after", "env"} if key in fields.EDITABLE]
    values = {each.name: getattr(given, each.name) for each in own}
    if keys & {"command", "argv"}:
        values |= {"command": given.command, "argv": given.argv, "script_id": None}
    if spec.script_id is not None and spec.argv and given.argv and given.argv[0] == spec.argv[0]:
        # The same script with other arguments keeps its text.
        values |= {"command": shlex.join([spec.script or "", *given.argv[1:]]), "script_id": spec.script_id}
    if "env" in change.keys:
        values["env"] = () if "env" in change.cleared else tuple((dict(spec.env) | dict(given.env)).items())
    spec = replace(spec, **values)
    return spec if spec.name else replace(spec, name=default_name(spec.command, spec.argv))


def _request(turn: Turn, job: Job, change: Change) -> Request:
    """Return the changed request; a device count and a device list replace each other."""
    keys, request = change.keys, job.spec.request
    if job.is_active:
        # It already has its devices, so placement is not checked again.
        return replace(request, limit_s=change.submission.time_limit_s)
    values: dict[str, Any] = {own.key or "": getattr(request, own.name) for own in fields.REQUEST}
    values |= {key: getattr(change.submission, key) for key in keys & REQUEST_KEYS}
    if "gpus" in keys and "gpu_ids" not in keys:
        values["gpu_ids"] = ()
    if "gpu_ids" in keys and "gpus" not in keys and values["gpu_ids"]:
        values["gpus"] = None
    return validation.request_of(Submission(job.spec, **values), turn, [], f"job {job.id}")


def _rule(
    turn: Turn, jobs: list[Job], new: dict[JobId, JobSpec], rules: Mapping[str, int | None]
) -> dict[JobId, JobSpec]:
    """Change the rules of the jobs' common batch, or make a batch of waiting jobs that have none."""
    batches = {job.spec.batch for job in jobs}
    if len(batches) > 1:
        raise Conflict(
            "these jobs were not submitted together, so they have no common -j or --halt.", "Name one batch."
        )
    (batch,) = batches
    if batch:
        is_over = [turn.store.set_rule(batch, name, value) for name, value in rules.items()]
        if any(is_over):
            turn.store.hold_batch(batch, turn.now, Halt(turn.store.batch_tally(batch).bad))
        return new
    if not any(job.is_waiting for job in jobs):
        raise Conflict("none of these jobs is waiting.")
    waiting = sum(job.is_waiting for job in jobs)
    batch = turn.store.add_batch(rules.get("at_once"), rules.get("halt_after"), waiting)
    return {job.id: replace(new[job.id], batch=batch if job.is_waiting else 0) for job in jobs}


def _keep(turn: Turn, job: Job, spec: JobSpec, change: Change) -> None:
    turn.store.edit(job, spec, turn.now, change.told)
    turn.changed.append(job.id)
    if job.is_active and spec.time_limit_s != job.spec.time_limit_s:
        turn.effects.append(Order(job, f"limit {turns.limit_word(spec.time_limit_s)}"))
    if job.is_waiting and change.keys & {"after", "begin_at"}:
        turn.needs_check.append(job.id)
