"""Why a job does not run, and when it is expected to."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from dibs.http_api import exchange
from dibs.jobqueue import outlook
from dibs.jobqueue.outlook import Sight
from dibs.model import serialization
from dibs.model.devices import Inventory, indices
from dibs.model.jobs import Job, State
from dibs.scheduling import views
from dibs.scheduling.explanation import Reason
from dibs.scheduling.forecasts import Forecast
from dibs.store.writer import Reader

#: Starts to come that are told at once.
MOST_STARTS = 100


async def get_why(request: web.Request) -> web.Response:
    """Say why a job is not running, or how it stands."""
    daemon = request.app[exchange.DAEMON]
    job_id = exchange.job_id(request)

    def answer(reader: Reader) -> dict[str, Any]:
        job = reader.job(job_id)
        if not job.is_waiting:
            return _why(job, Reason(outlook.describe(job)), Forecast(), daemon.inventory)
        sight = Sight.of(daemon.core, reader)
        return _why(job, sight.reason(job), sight.expected(job), sight.inventory)

    return await exchange.answer(daemon, answer)


def _why(job: Job, reason: Reason, forecast: Forecast, inventory: Inventory) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": job.word,
        "reason": reason.text,
        "hint": reason.hint,
        **expected(forecast, inventory),
    }


def expected(forecast: Forecast, inventory: Inventory) -> dict[str, Any]:
    """Return when and where a job is expected to start, or why nobody knows."""
    return {
        "expected_start": start_to_json(forecast, inventory),
        "unknown": {"why": forecast.unknown, "hint": forecast.hint} if forecast.unknown else None,
    }


def start_to_json(forecast: Forecast, inventory: Inventory) -> dict[str, Any] | None:
    """Return an expected start as every door shows it; null where it is unknown."""
    if forecast.range is None:
        return None
    earliest, latest = forecast.range
    return {
        "earliest": serialization.moment(earliest),
        "latest": serialization.moment(latest),
        "gpu_ids": list(forecast.devices),
        "gpu_indices": list(indices(inventory, forecast.devices)),
    }


async def get_starts(request: web.Request) -> web.Response:
    """Return the jobs that start next, at most `most`, and when and where each is expected to."""
    daemon = request.app[exchange.DAEMON]
    most = min(max(0, exchange.whole_number(request, "most", 5)), MOST_STARTS)

    def answer(reader: Reader) -> list[dict[str, Any]]:
        sight = Sight.of(daemon.core, reader)
        found = sight.next_starts(most).items()
        return [{"id": job, "expected_start": start_to_json(forecast, sight.inventory)} for job, forecast in found]

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
    asked = job.asked
    return {
        "id": job.id,
        "name": asked.name,
        "state": job.word,
        "command": asked.command,
        "gpus": asked.request.gpus,
        "priority": asked.priority,
        "reason": reason.text,
        "hint": reason.hint,
        **expected(forecast, inventory),
    }
