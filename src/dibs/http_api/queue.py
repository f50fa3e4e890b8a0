"""The queue as a whole: paused or not, which jobs start next, and the order of those that wait."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from dibs.http_api import exchange, why, wire
from dibs.http_api.schemas import actions
from dibs.jobqueue import control, turns
from dibs.jobqueue.outlook import Sight
from dibs.model.devices import Inventory
from dibs.model.jobs import Job, State
from dibs.scheduling import views
from dibs.scheduling.explanation import Reason
from dibs.scheduling.forecasts import Forecast
from dibs.store.writer import Reader

#: Jobs of one answer at most.
MOST_STARTS = 100


async def get_queue(request: web.Request) -> web.Response:
    """Say whether the queue is paused, and how many jobs are in which state."""
    found = await request.app[exchange.DAEMON].ask(standing)
    return exchange.json({**found["queue"], "counts": found["counts"]})


def standing(reader: Reader) -> dict[str, Any]:
    """Return how the queue as a whole stands, as it is told beside jobs."""
    return {"counts": reader.counts(), "queue": {"paused": bool(reader.fact(turns.PAUSED))}}


async def post_queue(request: web.Request) -> web.Response:
    """Pause or resume the queue: `{"paused": true}`."""
    change = wire.convert(await exchange.body(request), actions.QueueIn)
    daemon = request.app[exchange.DAEMON]
    await daemon.do(control.pause_queue if change.paused else control.resume_queue)
    # No job has changed, but whoever watches wants to know.
    daemon.events.publish()
    return await get_queue(request)


async def get_starts(request: web.Request) -> web.Response:
    """Return the jobs that start next, at most `most`, and when and where each is expected to."""
    daemon = request.app[exchange.DAEMON]
    most = min(max(0, exchange.whole_number(request, "most", 5)), MOST_STARTS)

    def answer(reader: Reader) -> list[dict[str, Any]]:
        sight = Sight.of(daemon.core, reader)
        found = sight.next_starts(most).items()
        return [{"id": job, "expected_start": why.start_to_json(forecast, sight.inventory)} for job, forecast in found]

    return await exchange.answer(daemon, lambda reader: {"starts": answer(reader)})


async def get_line(request: web.Request) -> web.Response:
    """Return the first `most` waiting jobs in the order in which they are served, why each waits and until when.

    Those that cannot be served yet, held or waiting for others, come after all that can.
    """
    daemon = request.app[exchange.DAEMON]
    most = min(max(0, exchange.whole_number(request, "most", 10)), MOST_STARTS)

    def answer(reader: Reader) -> list[dict[str, Any]]:
        sight = Sight.of(daemon.core, reader)
        ready = [reader.job(waiting.id) for waiting in views.order(sight.view.waiting)[:most]]
        others = [job for job in reader.overview(2 * MOST_STARTS, 0) if job.is_waiting and not _is_ready(job)]
        jobs = [*ready, *others][:most]
        forecasts = sight.expected_of([job.id for job in ready])
        return [_in_line(job, sight.reason(job), forecasts.get(job.id, Forecast()), sight.inventory) for job in jobs]

    return await exchange.answer(daemon, lambda reader: {"line": answer(reader)})


def _is_ready(job: Job) -> bool:
    return job.is_ready and job.state is not State.HELD


def _in_line(job: Job, reason: Reason, forecast: Forecast, inventory: Inventory) -> dict[str, Any]:
    asked = job.spec
    return {
        "id": job.id,
        "name": asked.name,
        "state": job.word,
        "command": asked.command,
        "gpus": asked.request.gpus,
        "priority": asked.priority,
        "reason": reason.text,
        "hint": reason.hint,
        **why.expected(forecast, inventory),
    }
