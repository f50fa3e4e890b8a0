"""Why a job does not run, and when it is expected to."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from dibs.http_api import exchange
from dibs.jobqueue import outlook
from dibs.jobqueue.outlook import Sight
from dibs.model import serialization
from dibs.model.devices import Inventory, indices
from dibs.model.jobs import Job
from dibs.scheduling.explanation import Reason
from dibs.scheduling.forecasts import Forecast
from dibs.store.writer import Reader


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
