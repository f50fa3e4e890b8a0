"""What a key does to the chosen job: the request, the question to ask first, or why it cannot be done. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dibs.client import job_state
from dibs.client.answers import ActionResult, Job
from dibs.errors import UserError


@dataclass(frozen=True)
class Request:
    """A verb for one job; with a question it is sent only after a yes."""

    verb: str
    job: int
    question: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def cancel(job: Job) -> Request:
    """Cancel a job that has not finished, after a question."""
    if job_state.is_finished(job):
        raise UserError(f"job {job['id']} is {job['state']}: there is nothing to cancel.")
    verb = "Cancel" if job["state"] in job_state.WAITING else "Stop"
    return Request("cancel", job["id"], f"{verb} job {job['id']} {job['name']} ({job['state']})?")


def retry(job: Job) -> Request:
    """Retry a job that has finished; one that succeeded after a question."""
    if not job_state.is_finished(job):
        raise UserError(f"job {job['id']} is {job['state']}: only a finished job can be retried.")
    if job["state"] == "done":
        question = f"Job {job['id']} {job['name']} succeeded. Run it again?"
        return Request("retry", job["id"], question, {"done": True})
    return Request("retry", job["id"])


def hold(job: Job) -> Request:
    """Hold a job that waits, or release one that is held."""
    if job["state"] not in job_state.WAITING:
        raise UserError(f"job {job['id']} is {job['state']}: only a waiting job can be held.")
    return Request("unhold" if job["state"] == "held" else "hold", job["id"])


def move_up(job: Job, listed: Sequence[Job]) -> Request:
    """Move a waiting job before the one above it; jobs of another priority stay where they are."""
    if job["state"] not in job_state.WAITING:
        raise UserError(f"job {job['id']} is {job['state']}: only a waiting job can be moved.")
    waiting = [one["id"] for one in listed if one["state"] in job_state.WAITING and one["priority"] == job["priority"]]
    place = waiting.index(job["id"])
    if place == 0:
        raise UserError(f"job {job['id']} is the first of its priority.", "Raise it: e, then --priority 10")
    return Request("move", job["id"], more={"to": "before", "other": waiting[place - 1]})


def told(request: Request, answer: ActionResult) -> str:
    """Return the result of a request as one line."""
    if answer["unchanged"]:
        left = answer["unchanged"][0]
        raise UserError(f"job {left['id']}: {left['why']}")
    state = answer["changed"][0]["state"] if answer["changed"] else "unchanged"
    words = {"move": "moved up", "edit": "changed"}.get(request.verb, state)
    return "; ".join(filter(None, (f"job {request.job}: {words}", answer.get("note"))))


def typed(text: str) -> list[str]:
    """Return the words of a line as a shell would split them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"expected a command line, got an error: {error}.") from None
