"""The numbers of jobs on the wire: what was kept, what a report says, and a short wait for what is just being read."""

from __future__ import annotations

from collections.abc import Callable

from dibs import reports
from dibs.daemon import Daemon
from dibs.jobs import Job
from dibs.reports import Numbers
from dibs.store import Reader


async def are_read(daemon: Daemon, is_unread: Callable[[Reader], bool], for_s: float) -> None:
    """Wait a while for the numbers of jobs that have just ended."""
    deadline = daemon.events.loop.time() + for_s
    while True:
        version = daemon.events.version
        left = deadline - daemon.events.loop.time()
        if not await daemon.ask(is_unread) or left <= 0 or daemon.stopping.is_set():
            return
        await daemon.events.changed(version, left)


def of(daemon: Daemon, reader: Reader, job: Job) -> Numbers | None:
    """Return the last numbers of the present attempt; None if it has none."""
    if job.start == 0:
        return None
    kept = reader.numbers(job) if job.is_finished else None
    return (kept or None) if kept is not None else reports.last(daemon.core.engine.report(job))
