"""The queue as a whole: paused or not."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from dibs.http_api import exchange, wire
from dibs.http_api.schemas import actions
from dibs.jobqueue import control, turns
from dibs.store.writer import Reader


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
    daemon.events.publish(set())
    return await get_queue(request)
