"""Answers of a daemon for `dibs top`, and a source of them that records what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from dibs.cli.top.actions import Request
from dibs.cli.top.snapshot import Snapshot
from dibs.errors import UserError

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def ago(**span: float) -> str:
    """Return a time before `NOW`."""
    return (NOW - timedelta(**span)).isoformat()


def job(job_id: int, state: str = "running", **fields: Any) -> Any:
    """Return a job as the daemon shows it."""
    is_over = state in ("done", "failed", "cancelled", "timeout", "lost")
    return {
        "id": job_id, "name": f"job{job_id}", "project": "default", "state": state, "priority": 0, "tags": [],
        "command": f"train.py {job_id}", "reason": "needs 1 GPU; none is free" if state == "queued" else None,
        "cause": None, "exit_code": None, "signal": None, "remark": None, "gpus": 1, "gpu_indices": [],
        "submitted_at": ago(hours=1), "started_at": ago(minutes=30) if state not in ("queued", "held") else None,
        "finished_at": ago(minutes=5) if is_over else None, "time_limit_s": None, "report": None, "marks": [],
        "sweep": None, "batch": None, "log": "/nonexistent/log",
    } | fields  # fmt: skip


def gpu(index: int, state: str = "free", **fields: Any) -> Any:
    """Return a GPU as the daemon shows it."""
    return {
        "index": index, "id": f"GPU-{index}", "state": state, "utilization": 0, "memory_used": 0,
        "memory_total": 24 * 2**30, "holders": [], "blocked": None, "reserved_for": None, "drained": None,
        "fault": None, "foreign": None, "is_idle": False, "unused_since": None, "reservation": None,
    } | fields  # fmt: skip


def holder(user: str = "me", job: str | None = None, **fields: Any) -> Any:
    """Return a holder of a GPU."""
    found = {"user": user, "uid": 1, "pid": 77, "job": job, "since": ago(minutes=20), "vram": None, "evictable": False}
    return found | fields


def snapshot(*jobs: Any, gpus: Sequence[Any] = (), waiters: Sequence[Any] = (), **more: Any) -> Snapshot:
    """Return what the daemon would have told."""
    counts: dict[str, int] = {}
    for each in jobs:
        counts[each["state"]] = counts.get(each["state"], 0) + 1
    answer: Any = {"jobs": list(jobs), "counts": counts | more.pop("counts", {}), "queue": {"paused": False}}
    machine: Any = {"gpus": [*gpus], "waiters": [*waiters], "problem": None, "restriction": None, "starts": None}
    return Snapshot(**({"host": "box", "user": "me", "jobs": answer, "gpus": machine} | more))


@dataclass
class RecordedSource:
    """A source without a daemon."""

    snapshot: Snapshot
    requests: list[Request] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    looks: list[tuple[tuple[str, ...] | None, str | None]] = field(default_factory=list)
    refusal: str = ""
    tell: Callable[[Snapshot], None] | None = None
    is_stopped: bool = False

    def start(self, tell: Callable[[Snapshot], None]) -> None:
        """Keep the listener."""
        self.tell = tell

    def stop(self) -> None:
        """Record the end."""
        self.is_stopped = True

    def look(self, words: Sequence[str] | None = None, span: str | None = None) -> None:
        """Record what is asked for."""
        self.looks.append((None if words is None else tuple(words), span))

    def act(self, request: Request) -> str:
        """Record a request."""
        self.requests.append(request)
        return self._answer(f"job {request.job}: {request.verb}")

    def submit(self, text: str) -> str:
        """Record a submission."""
        self.texts.append(f"add {text}")
        return self._answer("99 queued")

    def change(self, job_id: int, text: str) -> str:
        """Record a change."""
        self.texts.append(f"edit {job_id} {text}")
        return self._answer("changed")

    def _answer(self, text: str) -> str:
        if self.refusal:
            raise UserError(self.refusal)
        return text
