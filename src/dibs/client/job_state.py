"""Derive from the answer about a job whether it has finished, its log paths, and its exit code."""

from __future__ import annotations

from dibs.client.answers import Attempt, Job, WholeJob
from dibs.errors import NotFound
from dibs.model import selectors

WAITING = ("held", "queued")
FINISHED = selectors.GROUP_WORDS["finished"]


def is_finished(job: Job) -> bool:
    """Return whether a job has finished for good."""
    return job["state"] in FINISHED


def log_path(job: WholeJob, attempt: int) -> str:
    """Return the path of one attempt's log."""
    if attempt == job["attempt"]:
        return job["log"]
    for past in job["attempts"]:
        if past["attempt"] == attempt:
            return past["log"]
    count = job["attempt"]
    raise NotFound(f"job {job['id']} has no attempt {attempt}; its newest is {count}.")


def attempt_code(job: WholeJob, attempt: int) -> int:
    """Return the exit code of one finished attempt, even if a later attempt has started."""
    past = next((past for past in job["attempts"] if past["attempt"] == attempt), None)
    return exit_code(job, job["state"]) if past is None else exit_code(past, past["outcome"])


def exit_code(job: Job | Attempt, state: str) -> int:
    """Return the exit code that a shell would report for a command that ended this way."""
    if state == "timeout":
        return 124
    if state == "lost":
        return 125
    if job["signal"] is not None:
        return 128 + job["signal"]
    # A cancelled job did not succeed, even if its command exited with 0: a script must not continue after it.
    if state == "cancelled":
        return job["exit_code"] or 130
    return job["exit_code"] if job["exit_code"] is not None else 125
