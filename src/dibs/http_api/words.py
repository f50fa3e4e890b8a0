"""`GET /v1/words`: job and GPU names for shell completion."""

from __future__ import annotations

from aiohttp import web

from dibs.http_api import exchange

#: Unfinished and finished jobs that a shell offers.
WORDS_SHOWN = 100, 50


async def get_words(request: web.Request) -> web.Response:
    """Return jobs and devices in a few words each, for shells that complete what is typed."""
    daemon = request.app[exchange.DAEMON]
    jobs = await daemon.ask(lambda reader: reader.overview(*WORDS_SHOWN))
    told = [
        {"id": j.id, "name": j.spec.name, "state": j.word, "project": j.spec.project, "tags": list(j.spec.tags)}
        for j in jobs
    ]
    return exchange.json({"jobs": told, "gpus": [{"index": d.index, "name": d.name} for d in daemon.inventory.devices]})
