"""Metrics that jobs report: stored values, values from the report file, and a short wait for unread reports."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.http_api import exchange, job_logs
from dibs.http_api.schemas import job_answers
from dibs.logs import reports, tails
from dibs.logs.reports import Numbers
from dibs.model.jobs import Job
from dibs.store.writer import Reader


async def are_read(daemon: Daemon, is_unread: Callable[[Reader], bool], for_s: float) -> None:
    """Wait up to `for_s` seconds until the metrics of jobs that just finished are read."""
    deadline = daemon.events.loop.time() + for_s
    while True:
        version = daemon.events.version
        left = deadline - daemon.events.loop.time()
        if not await daemon.ask(is_unread) or left <= 0 or daemon.stopping.is_set():
            return
        await daemon.events.changed(version, left)


def of(daemon: Daemon, reader: Reader, job: Job) -> Numbers | None:
    """Return the last metrics of the current attempt; None if it has none."""
    if job.start == 0:
        return None
    kept = reader.numbers(job) if job.is_finished else None
    return (kept or None) if kept is not None else reports.last(daemon.files.report(job))


async def get_numbers(request: web.Request) -> web.Response:
    """Return the metrics of an attempt over time, thinned to what a chart can show."""
    daemon, job_id = request.app[exchange.DAEMON], exchange.job_id(request)
    told = exchange.query(request, job_logs.AttemptQuery)
    job = await daemon.ask(lambda reader: job_logs.having(reader, job_id, told))
    where = daemon.files.report(job, told.attempt)

    def read() -> job_answers.Courses:
        tail = tails.read(where, reports.COURSE_BYTES)
        found = [
            job_answers.Course(name, [at for at, _ in points], [value for _, value in points])
            for name, points in reports.courses(tail).items()
        ]
        return job_answers.Courses(found, cut=len(tail) == reports.COURSE_BYTES)

    return exchange.json(await job_logs.in_thread(request, read))
