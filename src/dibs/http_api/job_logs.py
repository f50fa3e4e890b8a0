"""`/v1/jobs/{id}/log`: the output of a job, whole or a byte range, its last lines, search, and a line index."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
from collections.abc import AsyncIterator, Callable
from typing import Annotated, ParamSpec, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta

from dibs.daemon.service import Daemon
from dibs.errors import NotFound, UserError
from dibs.http_api.schemas import job_answers
from dibs.jobqueue.thread import now_ms
from dibs.logs import files, write_times
from dibs.logs.files import LogFile
from dibs.model import serialization
from dibs.model.jobs import Job, JobId
from dibs.store.writer import Reader

P = ParamSpec("P")
T = TypeVar("T")
#: The most last lines, and the most matches, in one answer.
MOST_TAIL, MOST_FOUND = 100_000, 1000
#: The most characters of a search text.
LONGEST_TEXT = 1000
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

Byte = Annotated[int, Meta(ge=0, lt=2**62)]
Attempt = Annotated[int, Meta(ge=1, lt=2**31)]
Lines = Annotated[int, Meta(ge=0, le=MOST_TAIL)]


class AttemptQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The attempt of a job."""

    attempt: Annotated[Attempt | None, Meta(description="Default: the newest attempt.")] = None


class LogQuery(AttemptQuery, forbid_unknown_fields=True, kw_only=True):
    """The output of a job."""

    stream: Annotated[str, Meta(pattern="^(stdout|stderr)$", description="stderr if it has a separate file.")] = (
        "stdout"
    )


class WholeQuery(LogQuery, forbid_unknown_fields=True, kw_only=True):
    """The part of the output; a `Range` header selects one too."""

    tail: Annotated[Lines | None, Meta(description="Only the last N lines.")] = None
    download: Annotated[bool, Meta(description="Send it as a download.")] = False


class SearchQuery(LogQuery, forbid_unknown_fields=True, kw_only=True):
    """A search in the output."""

    text: Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT, description="The text to search for.")]
    regex: Annotated[bool, Meta(description="The text is a Python regular expression.")] = False
    case: Annotated[bool, Meta(description="Match case.")] = False
    from_: Annotated[Byte, Meta(description="Search from this byte on: `next` of the previous answer.")] = (
        msgspec.field(default=0, name="from")
    )
    limit: Annotated[int, Meta(ge=1, le=MOST_FOUND, description="Most lines per answer.")] = 100


class LinesQuery(LogQuery, forbid_unknown_fields=True, kw_only=True):
    """Where to start counting lines."""

    from_: Annotated[Byte, Meta(description="Count from this byte on: `next` of the previous answer.")] = msgspec.field(
        default=0, name="from"
    )
    line: Annotated[Byte, Meta(description="Number of lines before it: `line` of the previous answer.")] = 0


async def get_log(daemon: Daemon, request: web.Request, id: JobId, query: WholeQuery) -> web.StreamResponse:
    """Return the output of a job: all of it, its last lines, or a byte range."""
    async with _opened(daemon, id, query) as log:
        begin, end, status = 0, log.size, 200
        headers = {"Dibs-Log-Size": str(log.size), "Accept-Ranges": "bytes", "X-Content-Type-Options": "nosniff"}
        if (lines := query.tail) is not None:
            begin = await in_thread(daemon, files.last_lines, log, lines)
            headers["Dibs-Log-From"] = str(begin)
        elif (wanted := stretch(request.headers.get("Range", ""), log.size)) is not None:
            begin, end = wanted
            status = 206 if begin < end else 416
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{log.size}" if status == 206 else f"bytes */{log.size}"
        if query.download:
            headers["Content-Disposition"] = f'attachment; filename="{id}.{query.stream}.log"'
        return await _send(daemon, request, log, begin, end, status, headers)


def stretch(header: str, size: int) -> tuple[int, int] | None:
    """Return the start and end of a `Range` header, equal if it selects no bytes; None for the whole file.

    As in HTTP, a header that is invalid or has several ranges is ignored.
    """
    found = RANGE.fullmatch(header.replace(" ", ""))
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        last = min(int(found[2]), size)
        return size - last, size
    first, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    if found[2] and int(found[2]) < first:
        return None
    return (first, end) if first < size else (size, size)


async def get_search(daemon: Daemon, id: JobId, query: SearchQuery) -> bytes:
    """Return the lines of a log that contain a text or match a regular expression."""

    def search(log: LogFile) -> bytes:
        return files.search(log, query.from_, query.text, is_regex=query.regex, is_case=query.case, most=query.limit)

    async with _opened(daemon, id, query) as log:
        return await in_thread(daemon, search, log)


async def get_lines(daemon: Daemon, id: JobId, query: LinesQuery) -> bytes:
    """Return where every thousandth line of a log begins, for viewers that show a part of it."""
    async with _opened(daemon, id, query) as log:
        return await in_thread(daemon, files.index, log, query.from_, query.line)


async def get_times(daemon: Daemon, id: JobId, query: LogQuery) -> job_answers.WriteTimes:
    """Return the size of a log at moments while it was written: a line between two of them is from between them."""

    def paths(reader: Reader) -> tuple[Job, str, int | None, int | None]:
        job = having(reader, id, query)
        return job, _path(daemon, reader, id, query), *_bounds(reader, job, query.attempt or job.attempt)

    job, path, began, ended = await daemon.ask(paths)
    times = daemon.files.write_times(job, query.attempt, query.stream)
    # A file of the user's may have held something before.
    is_new = (job.spec.output if query.stream == "stdout" else job.spec.stderr) is None
    marks = await in_thread(daemon, _marks, path, times, began if is_new else None, ended)
    told = [job_answers.WriteMark(serialization.moment(at), size) for at, size in marks]
    return job_answers.WriteTimes(told, serialization.moment(now_ms()))


def _bounds(reader: Reader, job: Job, attempt: int) -> tuple[int | None, int | None]:
    """Return when an attempt began and ended; None if that is not known, or not yet so."""
    past = next((one for one in reader.attempts(job.id) if one.attempt == attempt), None)
    if past is not None:
        return past.started_at, past.finished_at
    return (job.started_at, None) if attempt == job.attempt else (None, None)


def _marks(log: str, times: str, began: int | None, ended: int | None) -> list[tuple[int, int]]:
    found = [*([(began, 0)] if began is not None else []), *write_times.read(times)]
    try:
        now = os.stat(log)
    except OSError:
        return []
    # The last byte was written when the file was changed last. Somebody may have touched it since the end, and the
    # clock of a disk is a little behind.
    changed = max(now.st_mtime_ns // 1_000_000, began or 0)
    last = (changed if ended is None else min(changed, ended), now.st_size)
    return write_times.thinned(write_times.sound([*found, last]))


async def in_thread(daemon: Daemon, what: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Run a function in the threads for logs: a log may be on a network file system that does not answer."""
    return await asyncio.get_running_loop().run_in_executor(daemon.logs, functools.partial(what, *args, **more))


@contextlib.asynccontextmanager
async def _opened(daemon: Daemon, job_id: JobId, query: LogQuery) -> AsyncIterator[LogFile]:
    path = await daemon.ask(lambda reader: _path(daemon, reader, job_id, query))
    opening = asyncio.ensure_future(in_thread(daemon, files.open_log, path))
    try:
        log = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The client left while the file was opened.
        opening.add_done_callback(lambda opened: None if opened.exception() else opened.result().close())
        raise
    try:
        yield log
    finally:
        log.close()


def having(reader: Reader, job_id: JobId, told: AttemptQuery) -> Job:
    """Return the job; raise NotFound if it does not have the requested attempt."""
    job = reader.job(job_id)
    if told.attempt is not None and told.attempt > job.attempt:
        raise NotFound(f"job {job_id} has no attempt {told.attempt} (the newest is {job.attempt}).")
    return job


def _path(daemon: Daemon, reader: Reader, job_id: JobId, told: LogQuery) -> str:
    job = having(reader, job_id, told)
    if told.stream == "stdout":
        return daemon.files.log(job, told.attempt)
    path = daemon.files.stderr(job, told.attempt)
    if path is None:
        raise UserError(f"job {job_id} writes stderr to the same file.", "Leave `stream` out.")
    return path


async def _send(
    daemon: Daemon, request: web.Request, log: LogFile, begin: int, end: int, status: int, headers: dict[str, str]
) -> web.StreamResponse:
    """Send a byte range of any length with only one block in memory."""
    answer = web.StreamResponse(status=status, headers=headers)
    answer.content_type, answer.charset = "text/plain", "utf-8"
    answer.content_length = end - begin
    await answer.prepare(request)
    # The client may leave at any time; that is not an error.
    with contextlib.suppress(ConnectionError):
        while begin < end:
            block = await in_thread(daemon, log.read, begin, end)
            if not block:
                # The file was truncated meanwhile: closing the connection shows that bytes are missing.
                answer.force_close()
                break
            await answer.write(block)
            begin += len(block)
        await answer.write_eof()
    return answer
