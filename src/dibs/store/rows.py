"""Rows of the store and the values they stand for: nothing but translation, and the order of columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dibs.model import ranks
from dibs.model.devices import DeviceId
from dibs.model.jobs import After, Cause, Job, JobId, JobSpec, Member, Outcome, Request, State, Trouble, Warn, When
from dibs.sweeps.records import Run, Sweep, SweepSubmission


def job_of(row: Sequence[Any]) -> Job:
    """Return the job in a row of {columns}."""
    (job_id, command, argv, cwd, gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign,
     name, project, priority, env, umask, output, stderr, tags, visible, environ, begin_at, retries, retry_on, batch,
     script, number, place, is_slurm, warn, wait_tree, metrics, no_wait, strict_gpus, vram_enforce, notify,
     sweep_id, sweep, point, params, folder, after,
     submitted_at, state, outcome, cause, attempt, start, dead_starts,
     retried, is_ready, allocation, *rest) = row  # fmt: skip
    spec = JobSpec(
        command=command,
        argv=None if argv is None else tuple(json.loads(argv)),
        cwd=cwd,
        request=_request(gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign),
        name=name,
        project=project,
        priority=priority,
        env=() if env == "[]" else tuple((key, value) for key, value in json.loads(env)),
        umask=umask,
        output=output,
        stderr=stderr,
        tags=() if tags == "[]" else tuple(json.loads(tags)),
        visible=visible,
        environ_id=environ,
        after=() if after is None else tuple(_after(part) for part in after.split(",")),
        begin_at=begin_at,
        retries=retries,
        retry_on=_troubles(retry_on),
        batch=batch,
        script_id=script,
        index=number,
        place=place,
        is_slurm=bool(is_slurm),
        warn=None if warn is None else _warn(warn),
        wait_tree=bool(wait_tree),
        metrics=() if metrics == "[]" else tuple((key, value) for key, value in json.loads(metrics)),
        no_wait=bool(no_wait),
        strict_gpus=bool(strict_gpus),
        vram_enforce=bool(vram_enforce),
        notify=notify,
        sweep_id=sweep_id,
        sweep=sweep,
        point=point,
        params=params,
        folder=folder,
    )
    return Job(
        JobId(job_id), spec, submitted_at, State(state), Outcome(outcome) if outcome else None,
        Cause(cause) if cause else None, attempt, start, dead_starts, retried, bool(is_ready), devices_of(allocation),
        *rest,
    )  # fmt: skip


#: Lists have the same rows again and again. What is equal in all columns is the same job, so nothing can be stale.
listed_job_of = lru_cache(maxsize=2048)(job_of)


@lru_cache(maxsize=64)
def _troubles(text: str) -> tuple[Trouble, ...]:
    return tuple(Trouble(word) for word in text.split(",") if word)


def _warn(text: str) -> Warn:
    name, before_s = json.loads(text)
    return Warn(name, before_s)


def _after(text: str) -> After:
    job_id, _, when = text.partition(":")
    return After(JobId(int(job_id)), When(when))


def request_of(row: Sequence[Any]) -> Request:
    """Return the request in a row."""
    return _request(*row)


# A queue has few different requests and many jobs: the same text is read again and again.
@lru_cache(maxsize=1024)
def _request(
    gpus: int, gpu_ids: str, prefer: str, gpu_type: str, cpus: int, mem: int, limit_s: float, vram: int, ignores: int
) -> Request:
    ids, preferred = devices_of(gpu_ids), devices_of(prefer)
    return Request(gpus, ids, preferred, gpu_type or None, cpus, mem, limit_s or None, vram, bool(ignores))


def request_row(request: Request) -> dict[str, Any]:
    """Return a request as the store keeps it."""
    return {
        "gpus": request.gpus,
        "gpu_ids": json.dumps(request.gpu_ids),
        "prefer": json.dumps(request.prefer),
        "gpu_type": request.gpu_type or "",
        "cpus": request.cpus,
        "mem": request.mem,
        "limit_s": request.limit_s or 0.0,
        "vram": request.vram,
        "ignore_foreign": request.ignore_foreign,
    }


def submitted_row(job_id: int, spec: JobSpec, request_id: int, now: int, is_ready: bool) -> dict[str, Any]:
    """Return a new job as the store keeps it."""
    return {
        "id": job_id,
        "command": spec.command,
        "argv": None if spec.argv is None else json.dumps(spec.argv),
        "cwd": spec.cwd,
        "request": request_id,
        "name": spec.name,
        "project": spec.project,
        "priority": spec.priority,
        "env": json.dumps(spec.env) if spec.env else "[]",
        "umask": spec.umask,
        "output": spec.output,
        "stderr": spec.stderr,
        "tags": json.dumps(spec.tags) if spec.tags else "[]",
        "visible": spec.visible,
        "environ": spec.environ_id,
        "begin_at": spec.begin_at,
        "retries": spec.retries,
        "retry_on": ",".join(trouble.value for trouble in spec.retry_on),
        "batch": spec.batch,
        "script": spec.script_id,
        "number": spec.index,
        "place": spec.place,
        "is_slurm": spec.is_slurm,
        "warn": None if spec.warn is None else json.dumps([spec.warn.signal, spec.warn.before_s]),
        "wait_tree": spec.wait_tree,
        "metrics": json.dumps(spec.metrics) if spec.metrics else "[]",
        "no_wait": spec.no_wait,
        "strict_gpus": spec.strict_gpus,
        "vram_enforce": spec.vram_enforce,
        "notify": spec.notify,
        "sweep": spec.sweep_id,
        "point": spec.point,
        "params": spec.params,
        "folder": spec.folder,
        "submitted_at": now,
        "is_ready": is_ready,
        "rank": ranks.of(job_id),
    }


def arriving_row(place: int, one: Member) -> tuple[object, ...]:
    """Return what sets one of many alike jobs apart as the store takes it in."""
    argv = None if one.argv is None else json.dumps(one.argv)
    return place, one.command, one.name, one.number, one.place, argv, one.point, one.params, one.folder


def moved_row(before: Job, job: Job) -> dict[str, Any]:
    """Return what became of a job as the store keeps it."""
    return {
        "id": job.id,
        "state_before": before.state.value,
        "state": job.state.value,
        "outcome": job.outcome.value if job.outcome else None,
        "cause": job.cause.value if job.cause else None,
        "attempt": job.attempt,
        "start": job.start,
        "dead_starts": job.dead_starts,
        "retried": job.retried,
        "allocation": json.dumps(job.allocation) if job.allocation else "[]",
        "pid": job.pid,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "remark": job.remark,
    }


def sweep_row(wanted: SweepSubmission) -> dict[str, Any]:
    """Return what is said about a sweep as the store keeps it."""
    return {
        "project": wanted.project,
        "name": wanted.name,
        "command": wanted.command,
        "argv": None if wanted.argv is None else json.dumps(wanted.argv),
        "folder": wanted.folder,
        "metric": wanted.metric,
        "goal": wanted.goal,
        "definition": wanted.definition,
    }


def sweep_of(row: Sequence[Any]) -> Sweep:
    """Return the sweep in a row."""
    sweep_id, project, name, command, argv, *rest = row
    return Sweep(sweep_id, project, name, command, None if argv is None else tuple(json.loads(argv)), *rest)


def run_of(row: Sequence[Any]) -> Run:
    """Return the run in a row."""
    job_id, attempt, index, params, word, numbers, summaries, *times = row
    told = None if numbers is None else json.loads(numbers)
    summed = {name: tuple(one) for name, one in json.loads(summaries or "{}").items()}
    run_id = None if job_id is None else JobId(job_id)
    return Run(run_id, attempt, index, json.loads(params), word, told, summed, *times)


@lru_cache(maxsize=1024)
def devices_of(text: str) -> tuple[DeviceId, ...]:
    """Return the devices in a column."""
    return () if text == "[]" else tuple(DeviceId(word) for word in json.loads(text))
