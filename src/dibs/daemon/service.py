"""A running daemon as its doors see it: what they may ask of the store, of the core and of the devices, and its end.

Every question is answered in a thread in which waiting does no harm. `daemon` builds the parts and hands them on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dibs.daemon.device_watch import DeviceWatcher
from dibs.daemon.readers import Readers
from dibs.engines.job_files import JobFiles
from dibs.errors import MachineError
from dibs.jobqueue import outlook
from dibs.jobqueue.control import Submitted
from dibs.jobqueue.counters import Tally
from dibs.jobqueue.outlook import QueueOutlook
from dibs.jobqueue.thread import QueueThread
from dibs.jobqueue.turns import Turn
from dibs.jobqueue.validation import Rules, Submission
from dibs.model.devices import Inventory
from dibs.model.jobs import ACTIVE, JobId
from dibs.store import writer
from dibs.system.locks import Folder
from dibs.system.settings import Settings

T = TypeVar("T")

#: Seconds between looks at the world that no event tells of: tickets that rest, devices that come and go.
SAFETY_TICK_S = 30.0
#: Threads that read logs for those who ask over HTTP.
LOG_READERS = 4


@dataclass(frozen=True, slots=True)
class Identity:
    """What the daemon says about itself."""

    pid: int
    user: str
    home: Path
    socket: Path
    started_at: int
    #: The setting as this daemon got it: a client that wants other devices is told to restart it.
    devices: str


class Events:
    """Those who wait for jobs to change, in the asyncio thread. Costs nothing while nobody waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: Grows with every change; written by the core thread alone.
        self.version = 0
        self._waiting = 0
        self._changed = asyncio.Event()

    def publish(self) -> None:
        """Wake everybody who waits for jobs to change; each looks whether it concerns him. From any thread."""
        self.version += 1
        if self._waiting:
            # A core that still works while the loop is closing has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._changed.set)

    async def changed(self, since: int, timeout_s: float) -> None:
        """Return when something has changed since that version, or the time is over."""
        # Counted before looking: a change from now on finds us waiting.
        self._waiting += 1
        try:
            self._changed.clear()
            if self.version == since:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), timeout_s)
        finally:
            self._waiting -= 1


class Daemon:
    """The parts of a running daemon, as the HTTP door sees them."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        files: JobFiles,
        queue: QueueThread,
        events: Events,
        readers: Readers,
        watcher: DeviceWatcher,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.files = files
        self._queue = queue
        self.events = events
        self.readers = readers
        self.watcher = watcher
        #: The devices as they were last judged.
        self.devices = watcher.view
        self.stopping = asyncio.Event()
        #: Why it has to stop, if nobody asked it to.
        self.trouble: MachineError | None = None
        #: Removes the files of forgotten jobs, on whatever disk they are.
        self.remover = ThreadPoolExecutor(1, "remover")
        #: Reads what jobs wrote, on whatever disk.
        self.logs = ThreadPoolExecutor(LOG_READERS, "logs")
        #: Waits for the running jobs to end, while a drain is asked for.
        self.closing: asyncio.Task[None] | None = None

    @property
    def inventory(self) -> Inventory:
        """Return the devices as last seen, with what is drained now."""
        return self.devices.inventory()

    @property
    def lease_folder(self) -> Folder:
        """Return where the leases and tickets of this machine are."""
        return self._queue.line.folder

    @property
    def counters(self) -> Tally:
        """Return what was counted since the daemon began."""
        return self._queue.tally

    @property
    def pending_work(self) -> int:
        """Return how many requests and messages wait for the next turn."""
        return len(self._queue.waits)

    def outlook(self, reader: writer.Reader) -> QueueOutlook:
        """Read the queue and the machine once, to explain why jobs wait and when they start."""
        return QueueOutlook.of_queue(self._queue, reader)

    def receipt(self, reader: writer.Reader, ids: list[JobId]) -> str:
        """Say in one line what became of a submission."""
        return outlook.receipt(self._queue, reader, ids)

    def memory_hints(self, reader: writer.Reader, ids: list[JobId]) -> list[str]:
        """Return hints about a declared GPU memory that does not fit what earlier runs used."""
        return outlook.declared_amiss(self._queue, reader, ids)

    def submit_now(self, turn: Turn, submissions: Sequence[Submission], rules: Rules) -> Submitted:
        """Queue jobs that must all start in this turn, or raise with the reason."""
        return self._queue.submit_now(turn, submissions, rules, lambda job: self.outlook(turn.store).reason(job).text)

    def tell(self, work: Callable[[Turn], object]) -> None:
        """Have work done in the next turn, without an answer."""
        self._queue.tell(work)

    def wake(self) -> None:
        """Place jobs once more: something outside the queue has changed."""
        self._queue.wake()

    def fail(self, trouble: MachineError) -> None:
        """Stop the daemon because of an error."""
        self.trouble = trouble
        self.stopping.set()

    async def ask(self, question: Callable[[writer.Reader], T]) -> T:
        """Answer a question from the store without disturbing the core."""
        return await self.readers.ask(question)

    async def do(self, verb: Callable[[Turn], T]) -> T:
        """Run a verb in the core thread; returns after the commit."""
        return await asyncio.wrap_future(self._queue.ask(verb))

    async def probe_now(self) -> Inventory:
        """Read the devices; wake the core if anything changed that matters to it."""
        return await self.watcher.read_now()

    def close_when_idle(self, is_wanted: bool) -> None:
        """Start nothing new and stop when nothing runs; or take that back."""
        self._queue.close(is_wanted)
        if not is_wanted and self.closing is not None:
            self.closing.cancel()
            self.closing = None
        elif is_wanted and self.closing is None:
            self.closing = asyncio.create_task(self._stop_when_idle())

    async def _stop_when_idle(self) -> None:
        # A start that was decided before is under way, and counts.
        await self.do(lambda turn: None)
        while True:
            version = self.events.version
            counts = await self.ask(lambda reader: reader.counts())
            if not any(counts[state.value] for state in ACTIVE):
                break
            await self.events.changed(version, SAFETY_TICK_S)
        self.stopping.set()

    def close(self) -> None:
        """Let go of the threads; one that hangs in a driver is left to the end of the process."""
        self.readers.close()
        for pool in (self.remover, self.logs):
            pool.shutdown(wait=False, cancel_futures=True)
        self.watcher.close()
