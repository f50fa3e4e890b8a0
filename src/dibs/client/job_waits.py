"""Wait for jobs to finish, also across a restart of the daemon."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence

from dibs.client import queries
from dibs.client.answers import WaitSummary
from dibs.client.connection import ANSWER_FOR_S, Client
from dibs.client.daemon_process import Unresponsive
from dibs.errors import MachineError, NoDaemon, TimedOut

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
        sock = self._queue.connect()
        if sock is not None:
            sock.close()
            return True
        return self._lasts_for() > COME_BACK_FOR_S

    def record_failure(self, error: MachineError) -> None:
        """Record that a request failed; raise if they have failed for too long."""
        if isinstance(error, Unresponsive) and not self._is_noted:
            self._is_noted = True
            print(f"dibs: {error.line()}", file=sys.stderr, flush=True)
        if self._lasts_for() > GIVE_UP_AFTER_S and self._until is None:
            raise MachineError("lost touch with the daemon; jobs go on by themselves.", error.line()) from error

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
    query = [*queries.select(words), *([("held", "leave")] if leave_held else [])]
    query += [("forecast", "true")] if is_forecast else []
    waited = _ask_first(queue, [*query, ("seen", "-1"), ("wait_s", "0")], until)
    tell(waited)
    while not (waited["over"] or waited.get("held")):
        left_s = POLL_FOR_S if until is None else until - time.monotonic()
        if left_s <= 0:
            break
        more = [("seen", str(waited["finished"])), ("wait_s", f"{min(left_s, POLL_FOR_S):.3f}")]
        waited = _ask(queue, [*query, *more, ("mark", waited["mark"])], until) or waited
        tell(waited)
        time.sleep(0 if waited["over"] or waited.get("held") else min(left_s, REST_S))
    return waited


def _ask_first(queue: Client, query: list[tuple[str, str]], until: float | None) -> WaitSummary:
    """Ask how things stand. A daemon that cannot answer is an error at once; with a time limit it is waited for."""
    try:
        answer: WaitSummary = queue.get("/v1/jobs/wait", query)
        return answer
    except Unresponsive:
        if until is None:
            raise
    found = _ask(queue, query, until)
    if found is None:
        raise TimedOut("the daemon did not answer in time; the jobs run on.", "See `dibs daemon status`.")
    return found


def _ask(queue: Client, query: list[tuple[str, str]], until: float | None) -> WaitSummary | None:
    """Send one long poll, and repeat it if the daemon went away; return None if time runs out first."""
    absence = Absence(queue, until)
    while True:
        rest_s = REST_S
        try:
            if absence.is_over():
                return _poll(queue, query, until)
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
    answer: WaitSummary = queue.get("/v1/jobs/wait", query, patience_s=min(ANSWER_FOR_S, patience_s), is_poll=True)
    return answer
