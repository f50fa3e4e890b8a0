"""Values to and from bytes and JSON: environments, and a job as the outside sees it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from dibs.model.devices import Device, Inventory, indices
from dibs.model.jobs import Asked, Job, Request, Warn

#: Names whose values are masked in every output.
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH")
MASK = "***"
#: Wall-clock milliseconds of the year 9999: from then on a moment is no date in one time zone or another.
LATEST = 253_370_764_800_000


def unpack_environ(blob: bytes) -> dict[bytes, bytes]:
    """Return the environment in `blob`; an entry without "=" is dropped, as the shell does."""
    pairs = (entry.partition(b"=") for entry in blob.split(b"\0") if entry)
    return {name: value for name, equals, value in pairs if name and equals}


def is_secret(name: str) -> bool:
    """Tell whether the value of a variable of this name should never be shown."""
    upper = name.upper()
    return any(word in upper for word in SECRET_WORDS)


def mask_environ(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return variables fit to be shown."""
    return {name: MASK if is_secret(name) else value for name, value in pairs}


def moment(at: int | None) -> str | None:
    """Return wall-clock milliseconds as ISO 8601 in UTC."""
    if at is None:
        return None
    # One that an older version let in must not keep all the other jobs from being told.
    at = min(max(at, 0), LATEST)
    # Lists are full of moments: this is a quarter of what a format costs.
    stamp = datetime.fromtimestamp(at // 1000, UTC).isoformat()
    return f"{stamp[:19]}.{at % 1000:03d}Z"


def parse_moment(text: str) -> int:
    """Return an ISO 8601 moment as wall-clock milliseconds; raise ValueError for what could not be written again."""
    at = round(datetime.fromisoformat(text).timestamp() * 1000)
    if not 0 <= at < LATEST:
        raise ValueError(f"expected a moment from 1970 to 9998, got {text!r}")
    return at


def job_to_json(
    job: Job, inventory: Inventory, *, user: str, log: str, stderr: str | None, reason: str | None
) -> dict[str, Any]:
    """Return a job as every door shows it; the keys are a contract."""
    asked = job.asked
    return {
        "id": job.id,
        "name": asked.name,
        "project": asked.project,
        "user": user,
        "state": job.word,
        "reason": reason,
        "cause": job.cause.value if job.cause else None,
        "command": asked.command,
        "argv": list(asked.argv) if asked.argv is not None else None,
        "cwd": asked.cwd,
        "gpus": asked.request.gpus,
        "gpu_ids": list(job.allocation),
        "gpu_indices": list(indices(inventory, job.allocation)),
        "vram": asked.request.vram or None,
        "cpus": asked.request.cpus or None,
        "mem": asked.request.mem or None,
        "priority": asked.priority,
        "time_limit_s": asked.time_limit_s,
        "after": [{"id": need.id, "when": need.when.value} for need in asked.after],
        "begin_at": moment(asked.begin_at),
        "attempt": job.attempt,
        "retries": asked.retries,
        "pid": job.pid,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "submitted_at": moment(job.submitted_at),
        "started_at": moment(job.started_at),
        "finished_at": moment(job.finished_at),
        "log": log,
        "stderr": stderr,
        "sweep": asked.sweep,
        "index": asked.index,
        "params": None if asked.params is None else json.loads(asked.params),
        "tags": list(asked.tags),
        "engine": "local",
        "engine_ref": None,
        "remark": job.remark,
        "dir": asked.folder,
        "batch": asked.batch or None,
        "retry_on": [trouble.value for trouble in asked.retry_on],
        "script": asked.script,
        "warn": warn_to_json(asked.warn),
        "wait_tree": asked.wait_tree,
        "strict_gpus": asked.strict_gpus,
        "vram_enforce": asked.vram_enforce,
        "metric": dict(asked.metrics),
        # Whether, and not what: people put the tokens of their chat into that command.
        "notifies": asked.notify is not None,
        "request": request_to_json(asked.request),
    }


def asked_to_json(asked: Asked) -> dict[str, Any]:
    """Return what would be queued, as a rehearsal shows it; the keys are those of a job."""
    request = asked.request
    return {
        "command": asked.command,
        "argv": list(asked.argv) if asked.argv is not None else None,
        "cwd": asked.cwd,
        "env": mask_environ(asked.env),
        "name": asked.name,
        "project": asked.project,
        "priority": asked.priority,
        "gpus": request.gpus,
        "cpus": request.cpus or None,
        "mem": request.mem or None,
        "vram": request.vram or None,
        "time_limit_s": request.limit_s,
        "after": [{"id": need.id, "when": need.when.value} for need in asked.after],
        "begin_at": moment(asked.begin_at),
        "retries": asked.retries,
        "retry_on": [trouble.value for trouble in asked.retry_on],
        "output": asked.output,
        "stderr": asked.stderr,
        "index": asked.index,
        "tags": list(asked.tags),
        "warn": warn_to_json(asked.warn),
        "wait_tree": asked.wait_tree,
        "strict_gpus": asked.strict_gpus,
        "vram_enforce": asked.vram_enforce,
        "metric": dict(asked.metrics),
        "request": request_to_json(request),
    }


def request_to_json(request: Request) -> dict[str, Any]:
    """Return which devices would do."""
    return {
        "gpu_ids": list(request.gpu_ids),
        "prefer": list(request.prefer),
        "gpu_type": request.gpu_type,
        "ignore_foreign": request.ignore_foreign,
    }


def warn_to_json(warn: Warn | None) -> dict[str, Any] | None:
    """Return a warning as the outside sees it."""
    return None if warn is None else {"signal": warn.signal, "before_s": warn.before_s}


def device_to_json(device: Device) -> dict[str, Any]:
    """Return what the driver told about a device; who holds it is added by the door."""
    return {
        "index": device.index,
        "id": device.id,
        "name": device.name,
        "memory_total": device.memory_total,
        "memory_used": device.memory_used,
        "utilization": device.utilization,
        "temperature": device.temperature,
        "fault": device.fault,
        "drained": device.drained,
        "foreign": device.foreign,
        "foreign_memory": device.foreign_memory,
        "settling": device.settling,
        "power": device.power,
        "power_limit": device.power_limit,
        "ecc_errors": device.ecc_errors,
        "compute_mode": device.compute_mode,
        "pci": device.pci,
        "numa": device.numa,
        "parent": device.parent,
        "vendor": device.vendor,
        "processes": [{"pid": p.pid, "user": p.user, "name": p.name, "memory": p.memory} for p in device.processes],
    }
