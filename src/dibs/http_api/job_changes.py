"""Long polls for many jobs: one answer for all jobs that finished or changed meanwhile."""

from __future__ import annotations

import asyncio
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from dibs.daemon.service import Daemon
from dibs.http_api import exchange
from dibs.http_api.exchange import Seconds, Whole
from dibs.http_api.schemas import job_answers
from dibs.jobqueue import turns
from dibs.jobqueue.thread import now_ms
from dibs.model import selectors, serialization, units
from dibs.model.jobs import ACTIVE, WAITING, JobId
from dibs.store.query_results import Glance
from dibs.store.writer import Reader

#: Seconds between two answers to a client that follows a count.
NEWS_EVERY_S = 0.2
#: Seconds between two counts for a client that waits for many jobs.
GATHER_S = 0.05


#: What to do when only held jobs remain.
HELD = "^(wait|leave)$"
#: The most unfinished jobs whose end is forecast.
MOST_FORECAST = 500
#: The most events in one answer.
MOST_EVENTS = 20_000


class WaitQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The jobs to wait for."""

    select: Annotated[list[str], Meta(description="Selectors. Default: all unfinished jobs.")] = []
    seen: Annotated[Whole, Meta(description="Answer when the number of finished jobs differs from this.")] = -1
    mark: Annotated[str, Meta(description="`mark` of the previous answer: wait for the same jobs.")] = ""
    held: Annotated[str, Meta(description="leave: answer also when only held jobs remain.", pattern=HELD)] = "wait"
    forecast: Annotated[bool, Meta(description="Say when the last job is expected to end.")] = False
    wait_s: Seconds = 0.0


class ChangesQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The changes to return."""

    select: Annotated[list[str], Meta(description="Return these jobs at once.")] = []
    since: Annotated[Whole, Meta(description="Return changes after this event: `cursor` of the previous answer.")] = 0
    wait_s: Seconds = 0.0


async def get_changes(daemon: Daemon, request: web.Request, query: ChangesQuery) -> job_answers.Changes:
    """Return the states of jobs, and the event from which to ask for further changes.

    With `select`: those jobs, at once. Without: all jobs that changed after the event `since`, as soon as one of them
    has finished, shortly after any other change, or when `wait_s` is over. Event numbers stay valid when the daemon
    restarts.
    """
    if query.select:
        chosen = selectors.parse(query.select)
        cursor, found = await daemon.ask(lambda reader: (reader.last_event(), reader.standings(chosen, now_ms())))
        return _changes(daemon, cursor, found)
    deadline = daemon.events.loop.time() + exchange.wait_for(query.wait_s)
    while True:
        version = daemon.events.version
        cursor, found = await daemon.ask(lambda reader: _news(reader, query.since))
        if found:
            deadline = min(deadline, daemon.events.loop.time() + NEWS_EVERY_S)
        left = deadline - daemon.events.loop.time()
        has_left = request.transport is None or request.transport.is_closing()
        if left <= 0 or daemon.stopping.is_set() or has_left or any(one.is_finished for one in found):
            return _changes(daemon, cursor, found)
        await daemon.changed(version, left)


def _news(reader: Reader, since: int) -> tuple[int, list[Glance]]:
    """Return the last event considered, and the jobs that changed after `since` up to it."""
    until = min(reader.last_event(), max(since, 0) + MOST_EVENTS)
    return until, reader.changes(since, until)


def _changes(daemon: Daemon, cursor: int, found: list[Glance]) -> job_answers.Changes:
    shared = daemon.files.shared
    jobs = [
        job_answers.JobState(
            one.id, one.word, one.attempt, f"{shared[one.engine]}/jobs/{one.id}" if one.engine in shared else None
        )
        for one in found
    ]
    # The folder that contains each job's folder.
    return job_answers.Changes(cursor, jobs, f"{daemon.files.output_home}/jobs")


async def get_wait(daemon: Daemon, query: WaitQuery) -> job_answers.WaitSummary:
    """Answer when the number of finished jobs differs from `seen`, when all have finished, or when the time is over.

    With `held=leave` also when only held jobs remain, or jobs that wait for held ones.
    """
    asked = chosen = selectors.parse(query.select)
    began = daemon.events.loop.time()
    deadline = began + exchange.wait_for(query.wait_s)
    is_fixed = bool(query.select) and not selectors.is_moving(chosen)
    if not is_fixed:
        # Without selectors, all jobs that are unfinished now.
        meant = chosen if query.select else selectors.parse(["unfinished"])
        mark = query.mark or await daemon.ask(lambda reader: _mark(reader, meant, is_for_all=not query.select))
        chosen = _marked(mark)
    while True:
        version, looked_at = daemon.events.version, daemon.events.loop.time()
        summary = await daemon.ask(lambda reader: _summary(reader, chosen))
        if query.held == "leave" and not summary.over:
            summary.held = await daemon.ask(lambda reader: _held(daemon, reader, chosen))
        left = deadline - daemon.events.loop.time()
        if summary.over or summary.held or left <= 0 or daemon.stopping.is_set():
            break
        if summary.finished != query.seen:
            # There is news, but a thousand short jobs per second must not cause a thousand answers.
            left = min(left, began + NEWS_EVERY_S - daemon.events.loop.time())
            if left <= 0:
                break
        await daemon.changed(version, left)
        # The first change is checked at once; later ones are batched.
        await asyncio.sleep(max(0.0, looked_at + GATHER_S - daemon.events.loop.time()))
    if query.select and not summary.total:
        await daemon.ask(lambda reader: turns.require([], asked, reader, now_ms()))
    summary.mark = "" if is_fixed else mark
    if query.forecast and not summary.over:
        ends_at = await daemon.ask(lambda reader: _expected_end(daemon, reader, chosen))
        summary.expected_end = serialization.moment(ends_at)
    return summary


def _expected_end(daemon: Daemon, reader: Reader, chosen: selectors.Selection) -> int | None:
    """Return when the last job of a selection is expected to end; None if that is unknown."""
    left = reader.select_ids(selectors.within(chosen, (*ACTIVE, *WAITING)), now_ms())
    if len(left) > MOST_FORECAST:
        return None
    ahead = daemon.outlook(reader).plan_ahead(MOST_FORECAST)
    ends: dict[JobId, int | None] = {**ahead.ends, **{start.id: start.until for start in ahead.planned}}
    found = [ends.get(job_id) for job_id in left]
    known = [end for end in found if end is not None]
    return max(known) if len(known) == len(found) else None


def _mark(reader: Reader, meant: selectors.Selection, *, is_for_all: bool) -> str:
    """Return the jobs of a selection now as text; with the sweeps whose search submits more, if all jobs are meant."""
    ids = selectors.ranges(reader.select_ids(meant, now_ms()))
    sweeps = ",".join(map(str, reader.trials_left())) if is_for_all else ""
    return f"{ids};{sweeps}" if sweeps else ids


def _marked(mark: str) -> selectors.Selection:
    ids, _, sweeps = mark.partition(";")
    found = selectors.parse([ids]) if ids else ()
    numbers = [int(each) for each in sweeps.split(",") if units.is_whole(each)]
    return (*found, *((selectors.Is("sweep", number),) for number in numbers))


def _trials_left(reader: Reader, chosen: selectors.Selection) -> int:
    """Return how many more trials the searches of whole sweeps in a selection will submit."""
    left = reader.trials_left()
    if not left:
        return 0
    ids: set[int] = set()
    for atoms in chosen:
        match atoms:
            case (selectors.Like("sweep", pattern),):
                ids |= {*reader.sweep_ids(pattern)}
            case (selectors.Is("sweep", int(number)),):
                ids.add(number)
    return sum(count for sweep_id, count in left.items() if sweep_id in ids)


def _summary(reader: Reader, chosen: selectors.Selection) -> job_answers.WaitSummary:
    # First: a trial that is added in between may count twice, but is never left out.
    to_come = _trials_left(reader, chosen)
    tally = reader.tally(chosen, now_ms())
    finished = sum(tally.get(word, 0) for word in selectors.GROUP_WORDS["finished"])
    total = sum(tally.values()) + to_come
    bad = finished - tally.get("done", 0)
    if tally.get("cancelled"):
        bad -= reader.count_early(chosen, now_ms())
    return job_answers.WaitSummary(total=total, finished=finished, bad=bad, over=finished == total, mark="")


def _held(daemon: Daemon, reader: Reader, chosen: selectors.Selection) -> list[job_answers.HeldJobs]:
    """Return why jobs are held, if no other job of a selection remains."""
    groups = reader.held_among(chosen, now_ms())
    if not groups:
        return []
    seen = daemon.outlook(reader)
    reasons = [seen.held(reader.job(ids[0]), ids) for ids in groups]
    return [
        job_answers.HeldJobs(len(ids), reason.text, reason.hint) for ids, reason in zip(groups, reasons, strict=True)
    ]
