"""`/v1/queue`: pause and resume the queue, the next starts, and the order of waiting jobs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from dibs.daemon.service import Daemon
from dibs.http_api import why
from dibs.http_api.exchange import Whole
from dibs.http_api.schemas import actions, job_answers
from dibs.jobqueue import control, turns
from dibs.model.devices import Inventory
from dibs.model.jobs import Job, State
from dibs.scheduling import views
from dibs.scheduling.explanation import Reason
from dibs.scheduling.forecasts import Forecast
from dibs.store.writer import Reader

#: The most jobs in one answer.
MOST_STARTS = 100


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
    await daemon.do(control.pause_queue if body.paused else control.resume_queue)
    # No job has changed, but the page shows whether the queue is paused.
    daemon.events.publish()
    return await daemon.ask(get_queue)


def get_starts(daemon: Daemon, reader: Reader, query: StartsQuery) -> job_answers.Starts:
    """Return the next `most` jobs to start, and when and where each is expected to start."""
    seen = daemon.outlook(reader)
    found = seen.next_starts(min(max(0, query.most), MOST_STARTS)).items()
    return job_answers.Starts(
        [job_answers.Start(job, why.expected_start(forecast, seen.inventory)) for job, forecast in found]
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
    spec = job.spec
    return job_answers.InLine(
        id=job.id,
        name=spec.name,
        state=job.word,
        command=spec.command,
        gpus=spec.request.gpus,
        priority=spec.priority,
        reason=reason.text,
        hint=reason.hint,
        expected_start=why.expected_start(forecast, inventory),
        unknown=why.unknown_start(forecast),
    )
