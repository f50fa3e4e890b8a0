"""Watch the jobs that may go to another engine if they wait too long here. `overflow` decides.

Apart: It is a task of its own in `daemon.main`: forecasts take long, and a turn must not wait for them.
"""

from __future__ import annotations

import asyncio
import logging

from dibs.daemon.service import Daemon
from dibs.errors import DibsError
from dibs.jobqueue.remote import overflow
from dibs.jobqueue.remote.overflow import Overflow
from dibs.jobqueue.thread import now_ms
from dibs.store.database import DatabaseError
from dibs.store.writer import Reader

log = logging.getLogger("dibs.daemon.overflow_watch")

#: Jobs that are looked at in one round.
MOST_LOOKED_AT = 500
#: Jobs whose start is forecast in one round.
MOST_FORECAST = 50
#: Seconds between two rounds, and the longest pause.
SOONEST_S, LATEST_S = 0.5, 30.0


async def run(daemon: Daemon) -> None:
    """Move jobs when their time has come, until cancelled. Without clusters there is nothing to do."""
    while daemon.remotes:
        version = daemon.events.version
        look_at = None
        try:
            found = await daemon.ask(lambda reader: _decide(daemon, reader))
            look_at = found.look_at
            if found.why:
                await daemon.do(lambda turn, found=found: overflow.apply(turn, found.why))  # type: ignore[misc]
        except (OSError, DatabaseError, DibsError):
            log.exception("overflow")
        left_s = LATEST_S if look_at is None else (look_at - now_ms()) / 1000
        await daemon.events.changed(version, min(LATEST_S, max(SOONEST_S, left_s)))
        # Not more often, however much happens.
        await asyncio.sleep(SOONEST_S)


def _decide(daemon: Daemon, reader: Reader) -> Overflow:
    jobs = reader.to_overflow(MOST_LOOKED_AT)
    if not jobs:
        return Overflow({}, None)
    outlook = daemon.outlook(reader)
    forecasts = {job.id: outlook.expected(job) for job in jobs[:MOST_FORECAST]}
    return overflow.decide(jobs, forecasts, now_ms())
