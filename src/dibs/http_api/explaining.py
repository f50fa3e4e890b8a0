"""Why a job does not run, and when it is expected to."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from dibs import codec, reasons
from dibs.forecasts import Forecast
from dibs.http_api import exchanges
from dibs.jobs import Job
from dibs.obstacles import Reason
from dibs.reasons import Sight
from dibs.store import Reader

#: Starts to come that are told at once.
MOST_STARTS = 100


async def get_why(request: web.Request) -> web.Response:
    """Say why a job is not running, or how it stands."""
    daemon = request.app[exchanges.DAEMON]
    job_id = exchanges.job_id(request)

    def answer(reader: Reader) -> dict[str, Any]:
        job = reader.job(job_id)
        if not job.is_waiting:
            return _why(job, Reason(reasons.describe(job)), Forecast())
        sight = Sight.of(daemon.core, reader)
        return _why(job, sight.reason(job), sight.expected(job))

    return exchanges.json(await daemon.ask(answer))


def _why(job: Job, reason: Reason, forecast: Forecast) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": job.word,
        "reason": reason.text,
        "hint": reason.hint,
        **expected(forecast),
    }


def expected(forecast: Forecast) -> dict[str, Any]:
    """Return when a job is expected to start, or why nobody knows."""
    return {
        "expected_start": codec.range_to_json(forecast.range),
        "unknown": {"why": forecast.unknown, "hint": forecast.hint} if forecast.unknown else None,
    }


async def get_starts(request: web.Request) -> web.Response:
    """Return the jobs that start next, at most `most`, and when each is expected to."""
    daemon = request.app[exchanges.DAEMON]
    most = min(max(0, exchanges.whole_number(request, "most", 5)), MOST_STARTS)

    def answer(reader: Reader) -> list[dict[str, Any]]:
        found = Sight.of(daemon.core, reader).next_starts(most)
        return [
            {"id": job_id, "expected_start": codec.range_to_json(forecast.range)} for job_id, forecast in found.items()
        ]

    return exchanges.json({"starts": await daemon.ask(answer)})
