"""Wait for jobs to finish, also across a restart of the daemon."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from dibs.client import job_state, queries
from dibs.client.answers import HeldJobs, WaitSummary
from dibs.client.connection import ANSWER_FOR_S, Client
from dibs.client.daemon_process import Unresponsive
from dibs.errors import MachineError, NoDaemon, OnlyHeld, TimedOut, UserError
from dibs.model import selectors

T = TypeVar("T")

#: Seconds of one long poll.
POLL_FOR_S = 20.0
#: The least seconds between two requests: a daemon that is about to stop answers at once.
REST_S = 0.05
#: Seconds between two requests to a daemon that does not respond: each leaves a connection in its backlog.
UNRESPONSIVE_REST_S = 2.0
#: Seconds to wait for a daemon to come back before a request starts one: it may have been stopped for an upgrade, and
#: starting the old version meanwhile would interfere.
COME_BACK_FOR_S = 3.0
#: Seconds that an answer may be late.
SLOW_S = 10.0
#: Seconds after which we give up.
GIVE_UP_AFTER_S = 60.0


class Absence:
    """How long no daemon has answered. A caller with a time limit, `until`, waits until then; others give up."""

    def __init__(self, queue: Client, until: float | None = None) -> None:
        self._queue = queue
        self._until = until
        self._is_noted = False
        self._since: float | None = None

    def is_over(self) -> bool:
        """Return whether to send a request now: a daemon listens, or none has for long enough to start one."""
        return self._queue.is_daemon_there() or self._lasts_for() > COME_BACK_FOR_S

    def record_failure(self, error: MachineError) -> None:
        """Record that a request failed; raise if they have failed for too long."""
        if isinstance(error, Unresponsive) and not self._is_noted:
            self._is_noted = True
            print(f"dibs: {error.line()}", file=sys.stderr, flush=True)
        if self._lasts_for() > GIVE_UP_AFTER_S and self._until is None:
            raise MachineError("lost the connection to the daemon; jobs keep running.", error.line()) from error

    def _lasts_for(self) -> float:
        now = time.monotonic()
        self._since = self._since or now
        return now - self._since


def until_over(
    queue: Client,
    words: Sequence[str],
    until: float | None,
    tell: Callable[[WaitSummary], None] = lambda waited: None,
    *,
    leave_held: bool = False,
    is_forecast: bool = False,
) -> WaitSummary:
    """Return when all jobs have finished or at the time `until`; `tell` is called after each answer.

    With `leave_held` also when only held jobs remain. `is_forecast`: the answers say when the end is expected.
    """
    query = queries.select(words)
    more = [("held", "leave")] if leave_held else []
    more += [("forecast", "true")] if is_forecast else []
    try:
        waited = _ask_first(queue, [*query, *more], until)
    except UserError as error:
        if not more or "there is no parameter" not in error.message:
            raise
        # The daemon runs since before an upgrade.
        more = []
        waited = _ask_first(queue, query, until)
    query = [*query, *more]
    if leave_held and waited.get("held") is None and not waited["over"]:
        note = "the daemon is older than this program and does not report held jobs; `dibs daemon restart` replaces it."
        print(f"dibs: {note}", file=sys.stderr, flush=True)
    waited = _complete(waited)
    tell(waited)
    while not (waited["over"] or waited["held"]):
        left_s = POLL_FOR_S if until is None else until - time.monotonic()
        if left_s <= 0:
            break
        seen = [("seen", str(waited["finished"])), ("wait_s", f"{min(left_s, POLL_FOR_S):.3f}")]
        waited = _ask(queue, [*query, *seen, ("mark", waited["mark"])], until) or waited
        tell(waited)
        time.sleep(0 if waited["over"] or waited["held"] else min(left_s, REST_S))
    return waited


def finished(
    queue: Client, ids: Sequence[int], until: float | None, poll_for_s: float = POLL_FOR_S
) -> Iterator[int | None]:
    """Yield the ids of jobs as they finish, until all have or at the time `until`; None when a wait has no result."""
    left = set(ids)
    if not left:
        return
    answer = _ask_changes(queue, [("select", selectors.ranges(sorted(left)))], until)
    while answer is not None:
        ended = [job["id"] for job in answer["jobs"] if job["id"] in left and job["state"] in job_state.FINISHED]
        left.difference_update(ended)
        yield from ended
        rest_s = math.inf if until is None else until - time.monotonic()
        if not left or rest_s <= 0:
            return
        yield None
        wait_s = f"{min(rest_s, poll_for_s):.3f}"
        answer = _ask_changes(queue, [("since", str(answer["cursor"])), ("wait_s", wait_s)], until)


def _ask_changes(queue: Client, query: list[tuple[str, str]], until: float | None) -> Any:
    return _repeat(queue, until, lambda: queue.get("/v1/jobs/changes", query, is_poll=True))


def require_unheld(waited: WaitSummary) -> None:
    """Raise if only held jobs remain: how many, why, and what releases them."""
    if waited["held"]:
        raise OnlyHeld(" ".join(map(_describe, waited["held"])))


def _describe(held: HeldJobs) -> str:
    return f"{held['jobs']:,} {'job is' if held['jobs'] == 1 else 'jobs are'} {held['reason']}. {held['hint']}"


def _ask_first(queue: Client, query: list[tuple[str, str]], until: float | None) -> WaitSummary:
    """Ask how things stand. A daemon that cannot answer is an error at once; with a time limit it is waited for."""
    query = [*query, ("seen", "-1"), ("wait_s", "0")]
    try:
        answer: WaitSummary = queue.get("/v1/jobs/wait", query)
        return answer
    except Unresponsive:
        if until is None:
            raise
    found = _ask(queue, query, until)
    if found is None:
        raise TimedOut("the daemon did not answer in time; jobs keep running.", "See `dibs daemon status`.")
    return found


def _complete(answer: WaitSummary) -> WaitSummary:
    """Return an answer with what an older daemon leaves out."""
    return {"held": [], "expected_end": None, **answer}


def _ask(queue: Client, query: list[tuple[str, str]], until: float | None) -> WaitSummary | None:
    """Send one long poll, and repeat it if the daemon went away; return None if time runs out first."""
    return _repeat(queue, until, lambda: _poll(queue, query, until))


def _repeat(queue: Client, until: float | None, ask: Callable[[], T]) -> T | None:
    """Ask, and ask again if the daemon went away; return None if time runs out first."""
    absence = Absence(queue, until)
    while True:
        rest_s = REST_S
        try:
            if absence.is_over():
                return ask()
        except NoDaemon as error:
            absence.record_failure(error)
            rest_s = UNRESPONSIVE_REST_S if isinstance(error, Unresponsive) else REST_S
        except MachineError:
            if until is None or time.monotonic() < until:
                raise
        left_s = math.inf if until is None else until - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(rest_s, left_s))


def _poll(queue: Client, query: list[tuple[str, str]], until: float | None) -> WaitSummary:
    # Beyond `until`, because a busy machine answers late; one that is stopped or hangs is noticed anyway.
    patience_s = ANSWER_FOR_S if until is None else max(0.0, until - time.monotonic()) + SLOW_S
    return _complete(queue.get("/v1/jobs/wait", query, patience_s=min(ANSWER_FOR_S, patience_s), is_poll=True))
