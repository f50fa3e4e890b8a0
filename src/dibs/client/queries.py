"""Requests that several verbs share, and selectors as queries. `answers` has the types of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dibs.client.answers import ActionResult, Daemon, ExpectedStart, Jobs, WholeJob
from dibs.client.connection import ANSWER_FOR_S
from dibs.errors import NotFound, UserError
from dibs.model import selectors, units
from dibs.submission import options

if TYPE_CHECKING:
    from dibs.client.connection import Client


#: Runs in one answer.
MOST_RUNS = 5000
#: When and where each of the jobs that start next is expected to start.
Starts = dict[int, ExpectedStart]


def select(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return selectors as a query; an invalid selector is refused before a daemon is contacted or started."""
    selectors.parse(words)
    return [("select", word) for word in compact(words)]


def compact(words: Sequence[str]) -> list[str]:
    """Return equivalent selectors with ids joined to ranges: a shell may expand to thousands of ids."""
    joined = selectors.ranges(int(word) for word in words if is_id(word))
    return [word for word in words if not is_id(word)] + ([joined] if joined else [])


def require_words(verb: str, words: Sequence[str]) -> None:
    """Raise UserError if a verb has no selectors, or an invalid one."""
    if not words:
        raise UserError(f"{verb} expected a job such as 12, 3-7, @ (the last) or failed.", f"See `dibs {verb} --help`.")
    selectors.parse(words)


def overview(queue: Client, words: Sequence[str], per_group: int | None = None) -> Jobs:
    """Return the jobs that match selectors; without any, the unfinished and latest jobs.

    With `per_group` only that many waiting jobs of one submission are listed; `groups` counts all of them.
    """
    query = select(words)
    try:
        few = [] if query or per_group is None else [("per_group", str(per_group))]
        answer: Jobs = queue.get("/v1/jobs", [*query, *few])
    except UserError:
        if not few:
            raise
        # An older daemon does not know the parameter.
        answer = queue.get("/v1/jobs", query)
    return answer


def whole(queue: Client, job_id: int) -> WholeJob:
    """Return one job in full."""
    answer: WholeJob = queue.get(f"/v1/jobs/{job_id}")
    return answer


def find_one(queue: Client, verb: str, words: Sequence[str]) -> WholeJob:
    """Return the one job that matches; if several match, raise an error that names them."""
    found = find_ids(queue, verb, words)
    if not found:
        raise NotFound(f'no job matches "{options.shown(" ".join(words))}".')
    if len(found) > 1:
        raise UserError(f"{verb} expected one job, got {len(found)}: {few(found)}.")
    return whole(queue, found[0])


def find_ids(queue: Client, verb: str, words: Sequence[str]) -> list[int]:
    """Return the ids of the jobs that match; those that are written as ids are not looked up."""
    require_words(verb, words)
    if all(is_id(word) for word in words):
        return list(dict.fromkeys(int(word) for word in words))
    return [job["id"] for job in overview(queue, words)["jobs"]]


def few(ids: Sequence[int]) -> str:
    """Return the first ids of a list that may be long."""
    return ", ".join(str(job_id) for job_id in ids[:5]) + (", ..." if len(ids) > 5 else "")


def is_id(word: str) -> bool:
    return units.is_whole(word)


def starts(queue: Client, most: int) -> Starts:
    """Return the jobs that start next and when, if that can be forecast."""
    # An older daemon does not have this route.
    try:
        answer = queue.get("/v1/queue/starts", [("most", str(most))])
    except NotFound:
        return {}
    return {each["id"]: each["expected_start"] for each in answer["starts"] if each["expected_start"]}


def runs(queue: Client, sweep_id: int) -> Iterator[Any]:
    """Yield the runs of a sweep in no particular order; there may be a million."""
    after: str | None = ""
    while after is not None:
        answer = queue.get(f"/v1/sweeps/{sweep_id}/results", [("most", str(MOST_RUNS)), ("after", after)])
        yield from answer["runs"]
        after = answer["next"]


def act(queue: Client, verb: str, words: Sequence[str], **more: object) -> ActionResult:
    """Apply one verb to all jobs that match selectors."""
    selectors.parse(words)
    answer: ActionResult = queue.post("/v1/jobs/actions", {"verb": verb, "select": list(words), **more})
    return answer


def identity(queue: Client, patience_s: float = ANSWER_FOR_S) -> Daemon | None:
    """Return the description of the running daemon; None if none runs. Never starts one."""
    if not queue.is_daemon_there(patience_s):
        return None
    answer: Daemon = queue.get("/v1/daemon", patience_s=patience_s)
    return answer
