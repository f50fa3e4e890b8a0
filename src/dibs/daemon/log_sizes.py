"""Note the sizes of the logs of running jobs from time to time, so that the page can tell when lines were written.

One `stat` for each running job with every safety tick, and 16 bytes for each log that has grown. A job that ends before
the first tick costs nothing: its start and its end say enough.

Apart: It is a task of its own in `daemon.main`.
"""

from __future__ import annotations

import asyncio

from dibs.daemon.service import Daemon
from dibs.engines.job_files import JobFiles
from dibs.jobqueue.thread import now_ms
from dibs.logs import write_times
from dibs.model.jobs import Job


class LogSizes:
    """The sizes that were noted last, by the path of the notes."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._busy: asyncio.Future[None] | None = None

    async def note(self, daemon: Daemon) -> None:
        """Note the logs that have grown. It does not wait: the disk of a log may not answer."""
        if self._busy is not None and not self._busy.done():
            return
        active = await daemon.ask(lambda reader: reader.active())
        started = [job for job in active if job.started_at is not None]
        if started or self._last:
            loop = asyncio.get_running_loop()
            self._busy = loop.run_in_executor(daemon.logs, self.look, daemon.files, started)
            # Nobody waits for it: an error must not be left to the garbage collector to report.
            self._busy.add_done_callback(lambda done: done.cancelled() or done.exception())

    def look(self, files: JobFiles, jobs: list[Job]) -> None:
        """Look at the logs of jobs, and note the sizes of those that have grown."""
        seen: dict[str, int] = {}
        for job in jobs:
            for stream, log in (("stdout", files.log(job)), ("stderr", files.stderr(job))):
                at, size = now_ms(), write_times.size_of(log) if log is not None else None
                if size is None:
                    continue
                path = files.write_times(job, job.attempt, stream)
                if size != self._last.get(path, 0):
                    write_times.append(path, (at, size))
                seen[path] = size
        self._last = seen
