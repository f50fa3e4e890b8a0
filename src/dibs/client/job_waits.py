"""Waiting for jobs to finish, also across daemons that die meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dibs.client import queries
from dibs.client.answers import Waited
from dibs.client.connection import Client
from dibs.client.daemon_gone import Absence
from dibs.errors import NoDaemon

#: Seconds of one long poll.
POLL_FOR_S = 20.0
#: Seconds between two questions at least: a daemon that is about to stop answers at once.
REST_S = 0.05


def until_over(
    queue: Client, words: Sequence[str], until: float | None, tell: Callable[[Waited], None] = lambda waited: None
) -> Waited:
    """Return when all jobs have finished or the moment `until` has come; `tell` hears of each that finishes."""
    query = queries.select(words)
    waited: Waited = queue.get("/v1/jobs/wait", [*query, ("seen", "-1"), ("wait_s", "0")])
    tell(waited)
    while not waited["over"]:
        left_s = POLL_FOR_S if until is None else until - time.monotonic()
        if left_s <= 0:
            break
        more = [("seen", str(waited["finished"])), ("wait_s", f"{min(left_s, POLL_FOR_S):.3f}")]
        waited = _ask(queue, [*query, *more, ("mark", waited["mark"])], until) or waited
        tell(waited)
        time.sleep(0 if waited["over"] else min(left_s, REST_S))
    return waited


def _ask(queue: Client, query: list[tuple[str, str]], until: float | None) -> Waited | None:
    """Ask once, or until a daemon that went away is back; None if the time was over before that."""
    absence = Absence(queue)
    while until is None or time.monotonic() < until:
        if absence.is_over():
            try:
                answer: Waited = queue.get("/v1/jobs/wait", query)
                return answer
            except NoDaemon as error:
                absence.go_on(error)
        time.sleep(REST_S)
    return None
