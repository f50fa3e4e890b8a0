"""`GET /v1/words`: job and GPU names for shell completion."""

from __future__ import annotations

from dibs.daemon.service import Daemon
from dibs.http_api.schemas.job_answers import GpuWords, JobWords, Words
from dibs.store.writer import Reader

#: The most unfinished and finished jobs to offer.
WORDS_SHOWN = 100, 50


def get_words(daemon: Daemon, reader: Reader) -> Words:
    """Return the names of jobs and GPUs for shell completion."""
    jobs = reader.overview(*WORDS_SHOWN)
    return Words(
        [JobWords(job.id, job.spec.name, job.word, job.spec.project, list(job.spec.tags)) for job in jobs],
        [GpuWords(device.index, device.name) for device in daemon.inventory.devices],
    )
