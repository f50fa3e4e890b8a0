"""When the devices are looked at: while a job runs, somebody watches, or a job waits for a device that others use.

Also the listener for faults, which is there for as long as that. Nothing wakes while the daemon is idle, and the driver
is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from dibs.daemon import device_history
from dibs.daemon.device_history import Observing
from dibs.devices import probe
from dibs.devices.fault_listener import Listener
from dibs.errors import DibsError
from dibs.jobqueue.thread import now_ms
from dibs.store.database import DatabaseError

if TYPE_CHECKING:
    from dibs.daemon.service import Daemon
    from dibs.model.jobs import Job

log = logging.getLogger("dibs.daemon.device_watch")

#: Seconds between looks, and while memory is coming back.
EVERY_S, SETTLING_S = 5.0, 1.0
#: Seconds between two looks that somebody asked for, at least.
LEAST_S = 0.05
#: Seconds for which whoever asked for the devices counts as watching.
WATCHES_FOR_S = 20.0


class Looking:
    """Looks at the real devices of one daemon, again and again."""

    def __init__(self, daemon: Daemon, seen: Observing) -> None:
        self.daemon = daemon
        self.observing = seen
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._watched_until = 0.0
        self._listener = Listener(probe.child_command(daemon.settings, "listen"), self._heard)
        seen.asked = self._ask

    def _ask(self) -> None:
        # A core that still works while the loop is closing has nobody left to ask.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._asked.set)

    def watched(self) -> None:
        """Take note that somebody watches."""
        self._watched_until = time.monotonic() + WATCHES_FOR_S
        self._asked.set()

    def _heard(self, device_id: str, xid: int) -> None:
        log.warning("Xid %s on %s", xid, device_id)
        device_history.tell(self.daemon.core, self.observing.heard(device_id, xid))
        self._ask()

    async def run(self) -> None:
        """Look whenever it is time; what fails once is tried at the next time."""
        every_s: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), every_s)
            self._asked.clear()
            try:
                every_s = await self._once()
            except (OSError, DatabaseError, DibsError):
                log.exception("the devices")
                every_s = EVERY_S
            await asyncio.sleep(SETTLING_S if self.observing.seen.releasing else LEAST_S)

    async def _once(self) -> float | None:
        """Look, keep what was counted, and return when to look again; None: when somebody asks."""
        jobs = await self.daemon.look()
        # Whoever waited for this look is served even if nothing else has changed.
        self.daemon.core.wake()
        device_history.keep(self.daemon.core, self.observing.ledger, jobs, now_ms())
        is_wanted = await self._is_wanted(jobs)
        self._listener.want(is_wanted)
        if not is_wanted:
            self.observing.rest()
            self.daemon.let_go()
            return None
        return SETTLING_S if self.observing.seen.releasing else EVERY_S

    async def _is_wanted(self, jobs: list[Job]) -> bool:
        if any(job.allocation for job in jobs) or time.monotonic() < self._watched_until:
            return True
        if self.observing.seen.releasing:
            return True
        counts = await self.daemon.ask(lambda reader: reader.counts())
        in_use = any(device.foreign for device in self.observing.inventory.devices)
        return bool(counts["queued"]) and (in_use or self.observing.inventory.problem is not None)

    def keep_all(self) -> None:
        """Keep what was counted so far, because nobody will look any more."""
        device_history.keep(self.daemon.core, self.observing.ledger, [], now_ms())

    def close(self) -> None:
        """Stop listening."""
        self._listener.want(False)
