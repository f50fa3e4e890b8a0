"""`/v1/queue`: pause and resume the queue, the next starts, and the order of waiting jobs."""

from __future__ import annotations

from aiohttp import web

from dibs.http_api import exchange, why, wire
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


async def get_queue(request: web.Request) -> web.Response:
    """Return whether the queue is paused, and the number of jobs in each state."""
    found = await request.app[exchange.DAEMON].ask(queue_state)
    return exchange.json(job_answers.Queue(found.queue.paused, found.counts))


def queue_state(reader: Reader) -> job_answers.QueueState:
    """Return the number of jobs in each state, and whether the queue is paused."""
    return job_answers.QueueState(reader.counts(), job_answers.Paused(bool(reader.fact(turns.PAUSED))))


async def post_queue(request: web.Request) -> web.Response:
    """Pause or resume the queue: `{"paused": true}`."""
    change = wire.convert(await exchange.body(request), actions.QueueIn)
    daemon = request.app[exchange.DAEMON]
    await daemon.do(control.pause_queue if change.paused else control.resume_queue)
    # No job has changed, but the page shows whether the queue is paused.
    daemon.events.publish()
    return await get_queue(request)


async def get_starts(request: web.Request) -> web.Response:
    """Return the next `most` jobs to start, and when and where each is expected to start."""
    daemon = request.app[exchange.DAEMON]
    most = min(max(0, exchange.whole_number(request, "most", 5)), MOST_STARTS)

    def answer(reader: Reader) -> job_answers.Starts:
        seen = daemon.outlook(reader)
        found = seen.next_starts(most).items()
        starts = [job_answers.Start(job, why.expected_start(forecast, seen.inventory)) for job, forecast in found]
        return job_answers.Starts(starts)

    return await exchange.answer(daemon, answer)


async def get_line(request: web.Request) -> web.Response:
    """Return the first `most` waiting jobs in scheduling order, why each waits, and when it is expected to start.

    Jobs that are held or wait for other jobs come last.
    """
    daemon = request.app[exchange.DAEMON]
    most = min(max(0, exchange.whole_number(request, "most", 10)), MOST_STARTS)

    def answer(reader: Reader) -> job_answers.Line:
        seen = daemon.outlook(reader)
        ready = [reader.job(waiting.id) for waiting in views.order(seen.view.waiting)[:most]]
        others = [job for job in reader.overview(2 * MOST_STARTS, 0) if job.is_waiting and not _is_ready(job)]
        jobs = [*ready, *others][:most]
        forecasts = seen.expected_of([job.id for job in ready])
        return job_answers.Line(
            [_in_line(job, seen.reason(job), forecasts.get(job.id, Forecast()), seen.inventory) for job in jobs]
        )

    return await exchange.answer(daemon, answer)


def _is_ready(job: Job) -> bool:
    return job.is_ready and job.state is not State.HELD


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
