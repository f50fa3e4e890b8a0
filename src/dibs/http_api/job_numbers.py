"""Metrics that jobs report: stored values, values from the report file, and a short wait for unread reports."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable

from dibs.daemon.service import Daemon
from dibs.http_api import job_logs
from dibs.http_api.schemas import job_answers
from dibs.logs import reports, tails
from dibs.logs.reports import Numbers
from dibs.model.jobs import Job, JobId
from dibs.store.writer import FileGone, Reader


async def are_read(daemon: Daemon, is_unread: Callable[[Reader], bool], for_s: float) -> None:
    """Wait up to `for_s` seconds until the metrics of jobs that just finished are read."""
    # If the database was deleted, they stay unread; the jobs are shown anyway.
    with contextlib.suppress(FileGone):
        await daemon.ask_until(is_unread, operator.not_, for_s)


def numbers_of_job(daemon: Daemon, reader: Reader, job: Job) -> Numbers | None:
    """Return the last metrics of the current attempt; None if it has none."""
    if job.start == 0:
        return None
    kept = reader.numbers(job) if job.is_finished else None
    return (kept or None) if kept is not None else reports.last(daemon.files.report(job))


async def get_numbers(daemon: Daemon, id: JobId, query: job_logs.AttemptQuery) -> job_answers.Courses:
    """Return the metrics of an attempt over time, thinned to what a chart can show."""
    job = await daemon.ask(lambda reader: job_logs.having(reader, id, query))
    return await job_logs.in_thread(daemon, _courses, daemon.files.report(job, query.attempt))


def _courses(report: str) -> job_answers.Courses:
    tail = tails.read(report, reports.COURSE_BYTES)
    found = [
        job_answers.Course(name, [p[0] for p in points], [p[1] for p in points], [p[2] for p in points])
        for name, points in reports.courses(tail).items()
    ]
    return job_answers.Courses(found, cut=len(tail) == reports.COURSE_BYTES)
