"""What `dibs top` knows at one moment: the daemon's answers, put together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dibs.cli import status_view
from dibs.client import job_state
from dibs.client.answers import Gpu, Gpus, Job, Jobs, Timeline
from dibs.client.queries import Starts

NO_GPUS: Gpus = {"gpus": [], "waiters": [], "problem": None, "restriction": None, "starts": None}


@dataclass(frozen=True)
class Snapshot:
    """The queue and the machine; None: not heard of yet."""

    host: str = ""
    user: str = ""
    jobs: Jobs | None = None
    starts: Starts = field(default_factory=dict)
    gpus: Gpus = field(default_factory=lambda: NO_GPUS)
    timeline: Timeline | None = None
    #: Why the daemon cannot be asked now; empty: it answers.
    away: str = ""
    #: Active jobs that were listed before, while a search lists others: GPUs name their jobs.
    active: Mapping[int, Job] = field(default_factory=dict)

    def job(self, job_id: int) -> Job | None:
        """Return a job that is listed, or active."""
        listed = (job for job in (self.jobs["jobs"] if self.jobs else []) if job["id"] == job_id)
        return next(listed, self.active.get(job_id))

    def own_job(self, gpu: Gpu) -> int | None:
        """Return the job of this user that holds a GPU."""
        held = [holder["job"] for holder in gpu["holders"] if holder["user"] == self.user and holder["job"]]
        return int(held[0]) if held and held[0].isdigit() else None


def active_jobs(jobs: Jobs, before: Mapping[int, Job]) -> dict[int, Job]:
    """Return the active jobs of a list by their ids, and those from before that it does not have."""
    listed = {job["id"]: job for job in jobs["jobs"]}
    known = {**before, **listed}
    return {
        number: job
        for number, job in known.items()
        if not job_state.is_finished(job) and job["state"] not in job_state.WAITING
    }


def ordered(snapshot: Snapshot) -> list[Job]:
    """Return the listed jobs: active ones, then by expected start, then the latest that finished."""
    jobs = snapshot.jobs["jobs"] if snapshot.jobs else []
    waiting = [job for job in jobs if not job_state.is_finished(job)]
    over = [job for job in jobs if job_state.is_finished(job)]
    return [
        *sorted(waiting, key=lambda job: status_view.turn(job, snapshot.starts)),
        *sorted(over, key=lambda job: (job["finished_at"] or "", job["id"]), reverse=True),
    ]


def matches(job: Job, text: str) -> bool:
    """Tell whether a job has every word of a search in what its row shows, or in its tags and project."""
    parts = (job["id"], job["name"], job["state"], job["project"], job["command"], job["reason"] or "", *job["tags"])
    found = " ".join(map(str, parts)).lower()
    return all(word in found for word in text.lower().split())


def unlisted(snapshot: Snapshot) -> int:
    """Return how many waiting jobs are not listed, because many were submitted together."""
    if snapshot.jobs is None:
        return 0
    counts: Mapping[str, int] = snapshot.jobs["counts"]
    listed = sum(job["state"] in job_state.WAITING for job in snapshot.jobs["jobs"])
    return max(0, sum(counts.get(word, 0) for word in job_state.WAITING) - listed)
