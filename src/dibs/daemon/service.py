"""A running daemon as HTTP handlers use it: store queries, work for the queue thread, devices, and shutdown.

Every query runs in a thread that may block. `daemon.assembly` builds the parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from dibs.daemon import login_shell
from dibs.daemon.device_watch import DeviceWatcher
from dibs.daemon.readers import Readers
from dibs.daemon.search_driver import SearchDriver
from dibs.devices.view import DeviceView
from dibs.engines.job_files import JobFiles
from dibs.engines.remote import Remote
from dibs.errors import MachineError
from dibs.foreground import device_check
from dibs.jobqueue import outlook
from dibs.jobqueue.control import Submitted
from dibs.jobqueue.counters import Tally
from dibs.jobqueue.outlook import QueueOutlook
from dibs.jobqueue.thread import QueueThread
from dibs.jobqueue.turns import Turn
from dibs.jobqueue.validation import Rules, Submission
from dibs.model.devices import Inventory
from dibs.model.jobs import ACTIVE, JobId
from dibs.scheduling.views import Policy
from dibs.store import writer
from dibs.system import settings
from dibs.system.locks import Folder
from dibs.system.settings import Settings

T = TypeVar("T")

#: Seconds between checks for changes that no event reports, such as idle tickets or devices that appear or disappear.
SAFETY_TICK_S = 30.0
#: Seconds for which a submission waits for the first answer of an engine, which may refuse it.
FIRST_LOOK_S = 5.0
#: Threads that read logs for HTTP requests.
LOG_READERS = 4


@dataclass(frozen=True, slots=True)
class Identity:
    """Facts about the daemon that clients see."""

    pid: int
    user: str
    home: Path
    socket: Path
    started_at: int
    #: The setting of this daemon: a client with another value asks the user to restart it.
    devices: str


class Events:
    """Notify waiters in the asyncio thread that jobs changed. Costs nothing without waiters."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: Grows with every change; only the queue thread writes it.
        self.version = 0
        self._waiting = 0
        self._changed = asyncio.Event()

    def publish(self) -> None:
        """Wake all waiters; each checks whether the change concerns it. From any thread."""
        self.version += 1
        if self._waiting:
            # The queue thread may still work while the loop is closing; then there are no waiters.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._changed.set)

    async def changed(self, since: int, timeout_s: float) -> None:
        """Wait until something changes after version `since`, at most `timeout_s`."""
        # Count first, then check: a change from now on finds us waiting.
        self._waiting += 1
        try:
            self._changed.clear()
            if self.version == since:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), timeout_s)
        finally:
            self._waiting -= 1


@dataclass(eq=False)
class Daemon:
    """The parts of a running daemon, as HTTP handlers use them."""

    identity: Identity
    settings: Settings
    files: JobFiles
    _queue: QueueThread
    events: Events
    readers: Readers
    watcher: DeviceWatcher
    searches: SearchDriver
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: The error that stops the daemon, if any.
    trouble: MachineError | None = None
    #: Removes the files of deleted jobs, possibly on a slow disk.
    remover: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "remover"))
    #: Reads the logs of jobs, possibly on a slow disk.
    logs: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(LOG_READERS, "logs"))
    #: When the time that jobs have been kept was last counted, by the monotonic clock.
    counted_at: float = field(default_factory=time.monotonic)
    #: Why old jobs are not deleted without asking; empty: they are.
    question: str = ""
    #: Engines for whose first answer a submission has waited.
    awaited_engines: set[str] = field(default_factory=set)
    #: Waits for the running jobs to end, after a drain request.
    closing: asyncio.Task[None] | None = None
    #: Reads the environment of a login shell, once.
    _login: asyncio.Task[login_shell.Environment] | None = None

    @property
    def devices(self) -> DeviceView:
        """Return the devices as last assessed."""
        return self.watcher.view

    @property
    def inventory(self) -> Inventory:
        """Return the devices as last read, with the current drains."""
        return self.devices.inventory()

    @property
    def remotes(self) -> Mapping[str, Remote]:
        """Return the engines that others operate, by name."""
        return self._queue.remotes

    async def know_engines(self, submissions: Sequence[Submission]) -> None:
        """Wait until the engines of jobs have first reported their resources; only once for each engine."""
        unknown = {name for name, one in self.remotes.items() if not one.is_known} - self.awaited_engines
        if not unknown:
            return
        chosen = ((one.engine or self.settings.engine_for(one.spec.project), one.spec.overflow) for one in submissions)
        named = unknown & {name for pair in chosen for name in pair}
        if named:
            self.awaited_engines |= named
            looks = [asyncio.wrap_future(self.remotes[name].look()) for name in named]
            await asyncio.wait(looks, timeout=FIRST_LOOK_S)

    @property
    def lease_folder(self) -> Folder:
        """Return the folder with the leases and tickets of this machine."""
        return self._queue.line.folder

    @property
    def lost(self) -> str | None:
        """Return why the database is not in its place, and what to do; None if it is. Otherwise nothing is stored."""
        gone = self._queue.store.custody.gone
        return gone.line().removeprefix("nothing was changed: ") if gone else None

    @property
    def counters(self) -> Tally:
        """Return the counters since the daemon started."""
        return self._queue.tally

    @property
    def pending_work(self) -> int:
        """Return the number of requests and messages that wait for the next turn."""
        return len(self._queue.waits)

    def outlook(self, reader: writer.Reader) -> QueueOutlook:
        """Read the queue and the machine once, to explain why jobs wait and when they start."""
        return QueueOutlook.of_queue(self._queue, reader)

    def people_days(self) -> list[tuple[int, int, float]]:
        """Return the device time of all users today and yesterday: the day, the uid, and milliseconds."""
        return self._queue.line.people_days()

    def starts_trouble(self, reader: writer.Reader) -> str | None:
        """Return why the machine refuses starts; None if it does not."""
        return self._queue.backoff.pauses.told([job.id for job in reader.active_devices()], time.monotonic())

    def receipt(self, reader: writer.Reader, ids: list[JobId]) -> tuple[str, list[str]]:
        """Describe a submission in one line, with a hint if its GPU memory does not fit what earlier runs used."""
        return outlook.receipt(self._queue, reader, ids), outlook.declared_amiss(self._queue, reader, ids)

    def submit_now(self, turn: Turn, submissions: Sequence[Submission], rules: Rules) -> Submitted:
        """Queue jobs that must all start in this turn, or raise with the reason."""
        return self._queue.submit_now(turn, submissions, rules, lambda job: self.outlook(turn.store).reason(job).text)

    def tell(self, work: Callable[[Turn], object]) -> None:
        """Run work in the next turn, without an answer."""
        self._queue.tell(work)

    def wake(self) -> None:
        """Run a placement, because something outside the queue has changed."""
        self._queue.wake()

    def fail(self, trouble: MachineError) -> None:
        """Stop the daemon because of an error."""
        self.trouble = trouble
        self.stopping.set()

    async def ask(self, question: Callable[[writer.Reader], T]) -> T:
        """Query the store without delaying the queue thread."""
        return await self.readers.ask(question)

    async def ask_until(self, question: Callable[[writer.Reader], T], is_over: Callable[[T], bool], for_s: float) -> T:
        """Ask again after each change until an answer is final, `for_s` seconds are over, or the daemon stops."""
        deadline = self.events.loop.time() + for_s
        while True:
            version = self.events.version
            answer = await self.ask(question)
            left = deadline - self.events.loop.time()
            if is_over(answer) or left <= 0 or self.stopping.is_set():
                return answer
            await self.changed(version, left)

    async def changed(self, since: int, timeout_s: float) -> None:
        """Wait until jobs change after version `since`; raise if the database was deleted: none will be recorded."""
        gone = self._queue.store.custody.gone
        if gone is not None and gone.is_final:
            # One error for all: it must not collect the frames of each.
            raise gone.with_traceback(None)
        await self.events.changed(since, timeout_s)

    async def do(self, verb: Callable[[Turn], T]) -> T:
        """Run a verb in the queue thread; return after the commit."""
        return await asyncio.wrap_future(self._queue.ask(verb))

    async def probe_now(self) -> Inventory:
        """Read the devices; wake the queue thread if a change matters to it."""
        return await self.watcher.read_now()

    async def reload_settings(self) -> list[str]:
        """Read the settings again; return the names of those that have changed but need a restart."""
        fresh = await asyncio.to_thread(settings.load, os.environ)
        return await self.do(lambda turn: self._adopt(fresh))

    def _adopt(self, fresh: Settings) -> list[str]:
        waiting = self.settings.adopt(fresh)
        self._queue.policy = policy_of(self.settings)
        self._queue.line.collect_for(self.settings.collect_for)
        self.devices.limits = device_check.limits_of(self.settings)
        return waiting

    async def login_environment(self) -> login_shell.Environment:
        """Return the environment of a login shell, as it was when it was first needed."""
        if self._login is None:
            self._login = asyncio.create_task(asyncio.to_thread(login_shell.read, os.environ))
        return await asyncio.shield(self._login)

    def close_when_idle(self, is_wanted: bool) -> None:
        """Start nothing new and stop when no job runs, or cancel that."""
        self._queue.close(is_wanted)
        if not is_wanted and self.closing is not None:
            self.closing.cancel()
            self.closing = None
        elif is_wanted and self.closing is None:
            self.closing = asyncio.create_task(self._stop_when_idle())

    async def _stop_when_idle(self) -> None:
        # After this turn, starts that were decided earlier count as active.
        await self.do(lambda turn: None)
        while True:
            version = self.events.version
            counts = await self.ask(lambda reader: reader.counts())
            if not any(counts[state.value] for state in ACTIVE):
                break
            await self.events.changed(version, SAFETY_TICK_S)
        self.stopping.set()

    def close(self) -> None:
        """Shut down the threads; one that hangs in a driver is left until the process ends."""
        self.readers.close()
        for pool in (self.remover, self.logs):
            pool.shutdown(wait=False, cancel_futures=True)
        self.watcher.close()


def policy_of(values: Settings) -> Policy:
    """Return the scheduling policy from the settings and this machine's memory."""
    mem_total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Policy(
        values.cpu_slots,
        mem_total,
        values.assumed_time,
        values.max_gpus,
        values.keep_free,
        values.max_jobs_per_gpu,
        evict_min_run_s=values.evict_min_run,
        evict_grace_s=values.evict_grace,
        evictable_wait_s=values.evictable_wait,
        project_quotas=values.rules.project,
        pass_for_s=values.pass_for,
    )
