"""The queue as a whole: paused or not."""

from __future__ import annotations

from aiohttp import web

from dibs import actions, submissions, turns, verbs
from dibs.http_api import exchanges


async def get_queue(request: web.Request) -> web.Response:
    """Say whether the queue is paused, and how many jobs are in which state."""
    return exchanges.json(
        await request.app[exchanges.DAEMON].ask(
            lambda reader: {"paused": bool(reader.fact(turns.PAUSED)), "counts": reader.counts()}
        )
    )


async def post_queue(request: web.Request) -> web.Response:
    """Pause or resume the queue: `{"paused": true}`."""
    change = submissions.convert(await exchanges.body(request), actions.QueueIn)
    await request.app[exchanges.DAEMON].do(verbs.pause_queue if change.paused else verbs.resume_queue)
    return await get_queue(request)
