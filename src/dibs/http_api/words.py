"""`GET /v1/words`: job and GPU names for shell completion."""

from __future__ import annotations

from aiohttp import web

from dibs.http_api import exchange
from dibs.http_api.schemas.job_answers import GpuWords, JobWords, Words

#: Unfinished and finished jobs that a shell offers.
WORDS_SHOWN = 100, 50


async def get_words(request: web.Request) -> web.Response:
    """Return jobs and devices in a few words each, for shells that complete what is typed."""
    daemon = request.app[exchange.DAEMON]
    jobs = await daemon.ask(lambda reader: reader.overview(*WORDS_SHOWN))
    return exchange.json(
        Words(
            [JobWords(job.id, job.spec.name, job.word, job.spec.project, list(job.spec.tags)) for job in jobs],
            [GpuWords(device.index, device.name) for device in daemon.inventory.devices],
        )
    )
