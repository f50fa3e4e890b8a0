"""A queue together with one engine that runs its jobs: what tests need to know to be the same for all engines."""

from __future__ import annotations

import contextlib
import json
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import Bench, wait_for
from dibs.errors import NoDaemon
from dibs.model import environment
from dibs.system import processes
from lab import Lab

#: Seconds for whatever an engine does: on a busy machine one job of Ray takes half a minute.
PATIENCE_S = 240.0
FINISHED = ("done", "failed", "cancelled", "timeout", "lost")


@dataclass
class Site:
    """One queue, and the engine that its jobs name."""

    bench: Bench
    engine: str
    #: How many nodes it has, and GPUs each.
    nodes: int
    gpus: int
    #: Whether the engine has names of its own for jobs and nodes.
    has_names: bool

    def add(self, command: str | list[str], **fields: Any) -> int:
        """Queue a job for the engine; return its id."""
        return self.bench.add(command, engine=self.engine, **fields)

    def fill(self) -> list[int]:
        """Take all GPUs by jobs that run until they are ended; return them once they run."""
        jobs = [self.add(["sleep", "1000"], gpus=self.gpus, retries=0) for _ in range(self.nodes)]
        return [self.until(job, "running")["id"] for job in jobs]

    def until(self, job_id: int, *states: str) -> dict[str, Any]:
        """Wait until a job has one of these states, by default any final one; return it."""
        wanted = states or FINISHED

        def is_so(job: dict[str, Any]) -> bool:
            assert job["state"] in wanted or job["state"] not in FINISHED, f"{job['state']}: {self.story(job_id)}"
            return job["state"] in wanted

        return wait_for(lambda: self.bench.job(job_id), is_so, PATIENCE_S)

    def release(self, *jobs: int) -> None:
        """Let held jobs start; a daemon that dies meanwhile is no failure."""
        body = {"verb": "unhold", "select": [str(job_id) for job_id in jobs]}
        with contextlib.suppress(NoDaemon):
            self.bench.client.post("/v1/jobs/actions", body)

    def is_done_or_down(self, job_id: int) -> bool:
        """Tell whether a job is done or the daemon has died."""
        if self.bench.pid() is None:
            return True
        try:
            return bool(self.bench.job(job_id)["state"] == "done")
        except NoDaemon:
            return True

    def story(self, job_id: int) -> str:
        """Return what happened to a job, for messages of failed tests."""
        return json.dumps([self.bench.job(job_id), self.bench.events(job_id)], indent=1)

    def wait(self, what: Callable[[], Any], until: Callable[[Any], bool] = bool) -> Any:
        """Wait for something with the patience that engines need."""
        return wait_for(what, until, PATIENCE_S)


def packed(environ: Mapping[bytes, bytes]) -> str:
    """Return an environment as a client sends it."""
    return b2a_base64(environment.capture(environ), newline=False).decode()


def living(mark: str) -> list[int]:
    """Return the processes that have an entry in their environment, wherever they are in the tree."""
    return [proc.pid for proc in processes.marked([mark.encode()])]


def configured(folder: Path, settings: Mapping[str, str] | None) -> tuple[Bench, str]:
    """Return a queue whose settings name an engine, and the name; without settings it is this machine."""
    if settings is None:
        return Bench(folder, DIBS_GRACE="2s"), "local"
    return Lab(folder, {"lab": dict(settings)}), "lab"
