"""Conversion of environments to and from bytes, and of jobs to JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, overload

from dibs.model import fields, jobs
from dibs.model.devices import Inventory, indices
from dibs.model.fields import JobSpec
from dibs.model.jobs import Job

#: Names whose values are masked in every output.
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH")
MASK = "***"
#: Wall-clock milliseconds of 9999-01-01: not every later time is a valid date in every time zone.
LATEST = 253_370_764_800_000
#: The guaranteed keys of a job, in order; others follow.
JOB_KEYS = (
    "id", "name", "project", "user", "state", "reason", "cause", "command", "argv", "cwd", "gpus", "gpu_ids",
    "gpu_indices", "vram", "cpus", "mem", "priority", "time_limit_s", "after", "begin_at", "attempt", "retries", "pid",
    "exit_code", "signal", "submitted_at", "started_at", "finished_at", "log", "sweep", "index", "params", "tags",
    "engine", "engine_ref",
)  # fmt: skip


def unpack_environ(blob: bytes) -> dict[bytes, bytes]:
    """Return the environment in `blob`; an entry without "=" is dropped, as the shell does."""
    pairs = (entry.partition(b"=") for entry in blob.split(b"\0") if entry)
    return {name: value for name, equals, value in pairs if name and equals}


def is_secret(name: str) -> bool:
    """Tell whether the value of a variable with this name must not be shown."""
    upper = name.upper()
    return any(word in upper for word in SECRET_WORDS)


def mask_environ(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return variables with secret values masked."""
    return {name: MASK if is_secret(name) else value for name, value in pairs}


@overload
def moment(at: int) -> str: ...
@overload
def moment(at: int | None) -> str | None: ...
def moment(at: int | None) -> str | None:
    """Return wall-clock milliseconds as ISO 8601 in UTC."""
    if at is None:
        return None
    # An out-of-range value stored by an older version must not break the output of all other jobs.
    at = min(max(at, 0), LATEST)
    # Lists contain many timestamps: this costs a quarter of formatting.
    stamp = datetime.fromtimestamp(at // 1000, UTC).isoformat()
    return f"{stamp[:19]}.{at % 1000:03d}Z"


def parse_moment(text: str) -> int:
    """Parse an ISO 8601 timestamp to wall-clock milliseconds; raise ValueError if `moment` could not write it."""
    at = round(datetime.fromisoformat(text).timestamp() * 1000)
    if not 0 <= at < LATEST:
        raise ValueError(f"expected a time from 1970 to 9998, got {text!r}")
    return at


def job_to_json(
    job: Job, inventory: Inventory, *, user: str, log: str, stderr: str | None, reason: str | None
) -> dict[str, Any]:
    """Return the JSON of a job as every interface shows it; the keys are a stable contract."""
    spec = job.spec
    return dict.fromkeys(JOB_KEYS) | {
        "id": job.id,
        "user": user,
        "state": job.word,
        "reason": reason,
        "cause": job.cause.value if job.cause else None,
        **_spec_to_json(spec),
        "gpu_ids": list(job.allocation),
        "gpu_indices": list(indices(inventory, job.allocation)),
        "attempt": job.attempt,
        "evictions": job.evictions,
        "saved_s": job.saved_ms / 1000,
        "lost_s": job.lost_ms / 1000,
        "pid": job.pid,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "submitted_at": moment(job.submitted_at),
        "started_at": moment(job.started_at),
        "finished_at": moment(job.finished_at),
        "log": log,
        "stderr": stderr,
        "sweep": spec.sweep,
        "params": None if spec.params is None else json.loads(spec.params),
        "engine_ref": job.engine_ref,
        "node": job.node,
        "remark": job.remark,
        "dir": spec.folder,
        "batch": spec.batch or None,
        "script": spec.script,
        # Only whether it is set: the command may contain a chat token.
        "notifies": spec.notify is not None,
    }


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """Return the JSON of a job that a dry run would submit; the keys are those of a job."""
    beside = {"env": mask_environ(spec.env), "output": spec.output, "stderr": spec.stderr}
    return _spec_to_json(spec) | beside | {"environment": spec.environ_from or None}


def _spec_to_json(spec: JobSpec) -> dict[str, Any]:
    request, warn = spec.request, spec.warn
    return fields.shown(spec) | {
        "argv": list(spec.argv) if spec.argv is not None else None,
        "gpus": request.gpus,
        "cpus": request.cpus or None,
        "mem": request.mem or None,
        "vram": request.vram or None,
        "evictable": request.evictable if request.evictable == jobs.AUTO else request.is_evictable,
        "time_limit_s": request.limit_s,
        "engine": request.engine,
        "after": [{"id": need.id, "when": need.when.value} for need in spec.after],
        "begin_at": moment(spec.begin_at),
        "retry_on": [jobs.write_retry_on(what) for what in spec.retry_on],
        "index": spec.index,
        "tags": list(spec.tags),
        "warn": None if warn is None else {"signal": warn.signal, "before_s": warn.before_s},
        "metric": dict(spec.metrics),
        "request": {
            "gpu_ids": list(request.gpu_ids),
            "prefer": list(request.prefer),
            "gpu_type": request.gpu_type,
            "ignore_foreign": request.ignore_foreign,
        },
    }
