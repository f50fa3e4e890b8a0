"""What the dispatcher asks of dibs: which jobs there are, and one verb for some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.client.connection import Client
from dibs.errors import NotFound
from dibs.model import selectors
from dibs_compat.gpupeasy.entries import Entry


def jobs(queue: Client, wanted: str) -> list[dict[str, Any]]:
    """Return the jobs of a selector; there may be none."""
    try:
        return list(queue.get("/v1/jobs", [("select", wanted)])["jobs"])
    except NotFound:
        return []


def do(queue: Client, verb: str, some: Sequence[Entry], **said: Any) -> str:
    """Do a verb to some jobs; return what came of it, in words."""
    wanted = selectors.ranges(entry.id for entry in some)
    answer = queue.post("/v1/jobs/actions", {"verb": verb, "select": [wanted], **said})
    return "; ".join([str(left["why"]) for left in answer["unchanged"]] or ["done"])


def edit(queue: Client, entry: Entry, changes: dict[str, Any]) -> str:
    """Change a job that waits; return what came of it."""
    return do(queue, "edit", [entry], changes=changes)
