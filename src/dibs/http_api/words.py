"""`GET /v1/words`: job and GPU names for shell completion."""

from __future__ import annotations

from aiohttp import web

from dibs.http_api import exchange
from dibs.http_api.schemas.job_answers import GpuWords, JobWords, Words

#: The most unfinished and finished jobs to offer.
WORDS_SHOWN = 100, 50


async def get_words(request: web.Request) -> web.Response:
    """Return the names of jobs and GPUs for shell completion."""
    daemon = request.app[exchange.DAEMON]
    jobs = await daemon.ask(lambda reader: reader.overview(*WORDS_SHOWN))
    return exchange.json(
        Words(
            [JobWords(job.id, job.spec.name, job.word, job.spec.project, list(job.spec.tags)) for job in jobs],
            [GpuWords(device.index, device.name) for device in daemon.inventory.devices],
        )
    )
