"""`/v1/queue`: pause and resume the queue and its groups, the next starts, and the order of waiting jobs."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct

from dibs.daemon.service import Daemon
from dibs.errors import NotFound, UserError
from dibs.http_api import jobs
from dibs.http_api.exchange import Whole
from dibs.http_api.schemas import actions, job_answers, wire
from dibs.jobqueue import control, turns
from dibs.jobqueue.turns import Turn
from dibs.model import fields
from dibs.model.devices import Inventory
from dibs.model.jobs import Job, State
from dibs.scheduling import views
from dibs.scheduling.explanation import Reason
from dibs.scheduling.forecasts import Forecast
from dibs.store.writer import Reader
from dibs.system import commands

#: The most jobs in one answer.
MOST_STARTS = 100
#: Maximum length of the name of a group in characters.
LONGEST_NAME = next(own.most or 0 for own in fields.SPEC if own.name == "group")


class StartsQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The size of the answer."""

    most: Annotated[Whole, Meta(description="The most jobs to return.")] = 5


class LineQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The size of the answer."""

    most: Annotated[Whole, Meta(description="The most jobs to return.")] = 10


def get_queue(reader: Reader) -> job_answers.Queue:
    """Return whether the queue is paused, and the number of jobs in each state."""
    found = queue_state(reader)
    return job_answers.Queue(found.queue.paused, found.counts)


def queue_state(reader: Reader) -> job_answers.QueueState:
    """Return the number of jobs in each state, and whether the queue is paused."""
    return job_answers.QueueState(reader.counts(), job_answers.PauseState(bool(reader.fact(turns.PAUSED))))


async def post_queue(daemon: Daemon, body: actions.QueueIn) -> job_answers.Queue:
    """Pause or resume the queue: `{"paused": true}`."""
    await daemon.do(lambda turn: control.pause_queue(turn, body.paused))
    # No job has changed, but the page shows whether the queue is paused.
    daemon.events.publish()
    return await daemon.ask(get_queue)


def get_groups(reader: Reader) -> job_answers.NamedGroups:
    """Return the groups that have a rule or an unfinished job, and how many of their jobs run and wait."""
    found = [wire.fill(job_answers.NamedGroup, each, paused=each.is_paused) for each in reader.groups()]
    return job_answers.NamedGroups(found)


async def post_group(daemon: Daemon, name: str, body: actions.GroupIn) -> job_answers.NamedGroups:
    """Set how many jobs of a group run at once, or pause it: `{"at_once": 2}`, `{"paused": true}`."""
    if not 0 < len(name) <= LONGEST_NAME:
        raise UserError(f"expected a name of up to {LONGEST_NAME} characters for a group, got {len(name)}.")
    commands.check_text(name)
    if body.at_once is UNSET and body.paused is UNSET:
        raise UserError("expected at_once or paused for the group, got neither.")

    def change(turn: Turn) -> None:
        # A limit may come before the first job. Everything else is about a group that there is.
        is_known = body.at_once not in (UNSET, None) or any(each.name == name for each in turn.store.groups())
        if not is_known:
            raise NotFound(f'there is no group "{name}" with a limit or unfinished jobs.', "See `dibs group`.")
        if body.at_once is not UNSET:
            turn.store.set_group(name, body.at_once)
        if body.paused is not UNSET:
            turn.store.pause_group(name, body.paused)

    await daemon.do(change)
    # No job has changed, but the reasons of some have.
    daemon.events.publish()
    return await daemon.ask(get_groups)


def get_starts(daemon: Daemon, reader: Reader, query: StartsQuery) -> job_answers.Starts:
    """Return the next `most` jobs to start, and when and where each is expected to start."""
    seen = daemon.outlook(reader)
    found = seen.next_starts(min(max(0, query.most), MOST_STARTS)).items()
    return job_answers.Starts(
        [job_answers.Start(job, jobs.expected_start(forecast, seen.inventory)) for job, forecast in found]
    )


def get_line(daemon: Daemon, reader: Reader, query: LineQuery) -> job_answers.Line:
    """Return the first `most` waiting jobs in scheduling order, why each waits, and when it is expected to start.

    Jobs that are held or wait for other jobs come last.
    """
    most = min(max(0, query.most), MOST_STARTS)
    seen = daemon.outlook(reader)
    ready = [reader.job(waiting.id) for waiting in views.order(seen.view.waiting)[:most]]
    others = [
        job
        for job in reader.overview(2 * MOST_STARTS, 0)
        if job.state is State.HELD or (job.is_waiting and not job.is_ready)
    ]
    jobs = [*ready, *others][:most]
    return job_answers.Line([_in_line(job, seen.reason(job), seen.expected(job), seen.inventory) for job in jobs])


def _in_line(job: Job, reason: Reason, forecast: Forecast, inventory: Inventory) -> job_answers.InLine:
    return wire.fill(
        job_answers.InLine,
        job.spec,
        id=job.id,
        state=job.word,
        gpus=job.spec.request.gpus,
        reason=reason.text,
        hint=reason.hint,
        expected_start=jobs.expected_start(forecast, inventory),
        unknown=jobs.unknown_start(forecast),
    )
