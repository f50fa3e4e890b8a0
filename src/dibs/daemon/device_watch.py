"""Read the devices when needed; assess each reading, put it into the view and record its findings.

They are read while a job uses one, a user watches, or a job waits for one that is in use without a lease. Meanwhile a
listener waits for faults. While the daemon is idle, nothing wakes up and the driver is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from dibs.daemon.readers import Readers
from dibs.devices import last_seen, ownership, usage
from dibs.devices.assessment import RECLAIMED, Finding, Reading
from dibs.devices.fault_listener import Listener
from dibs.devices.idle_leases import LeaseHolder
from dibs.devices.probe import Probe
from dibs.devices.view import DeviceView
from dibs.errors import DibsError
from dibs.jobqueue import evictions
from dibs.jobqueue.thread import QueueThread, now_ms
from dibs.jobqueue.turns import Order, Turn
from dibs.leases import holders, keeper
from dibs.model import lifecycle, units
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Job, JobId, State
from dibs.store.database import DatabaseError
from dibs.system import paths, processes
from dibs.system.locks import Folder

log = logging.getLogger("dibs.daemon.device_watch")

#: Seconds between readings, normally, and while memory is being released or a device is lent to a job.
EVERY_S, SETTLING_S = 5.0, 1.0
#: Minimum seconds between two requested readings.
LEAST_S = 0.05
#: Milliseconds after which the time when the devices were last seen is stored again.
LAST_SEEN_MS = 60_000
#: Seconds for which a user who asked for the devices counts as watching.
WATCHES_FOR_S = 20.0


class ReadingRequest:
    """A request to read the devices soon; the queue thread makes it, the watcher serves it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def make(self) -> None:
        """Ask for a reading. From any thread."""
        # The loop may be closing; then no reading follows.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait for a request since the last call, at most `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        self._event.clear()


@dataclass(eq=False)
class DeviceWatcher:
    """Read the devices of one daemon repeatedly; fake devices only on request."""

    _probe: Probe
    view: DeviceView
    _listen_command: Sequence[str]
    _requests: ReadingRequest
    _folder: Folder
    _user: str
    _readers: Readers
    _queue: QueueThread
    _watched_until: float = 0.0
    #: Whether this user holds a device outside of the queue.
    _own_leases: bool = False
    #: Whether a device is lent to one of our jobs: its holder may use it at any time.
    _borrows: bool = False

    def __post_init__(self) -> None:
        #: The last seen devices as the store has them.
        self._kept = self._probe.last_seen
        self._listener = Listener(self._listen_command, self._record_xid)
        #: Idle leases whose holders were warned.
        self._warned: set[tuple[DeviceId, LeaseHolder]] = set()
        #: A separate thread, because it may hang in the driver.
        self._thread = ThreadPoolExecutor(1, "probe")

    async def run(self) -> None:
        """Read the devices whenever they are due. After a failure, try again at the next time."""
        every_s: float | None = None
        while self.view.is_real:
            await self._requests.wait(every_s)
            try:
                every_s = await self._run_once()
            except (OSError, DatabaseError, DibsError):
                log.exception("cannot read the devices")
                every_s = EVERY_S
            await asyncio.sleep(SETTLING_S if self.view.last.releasing else LEAST_S)

    async def _run_once(self) -> float | None:
        """Read the devices; return the seconds until the next reading; None: on request."""
        jobs = await self._read()
        # Jobs may wait for a fresh reading even if it shows nothing new.
        self._queue.wake()
        self._keep_usage(jobs)
        self._warn_idle()
        is_wanted = await self._is_wanted(jobs)
        self._listener.want(is_wanted)
        if not is_wanted:
            self.view.expire()
            self._thread.submit(self._probe.close)
            return None
        return SETTLING_S if self.view.last.releasing or self._borrows else EVERY_S

    async def _is_wanted(self, jobs: Sequence[Job]) -> bool:
        last = self.view.last
        if any(job.allocation for job in jobs) or time.monotonic() < self._watched_until or last.releasing:
            return True
        if self._own_leases:
            # Only they are left: nobody waits for the next reading.
            return True
        counts = await self._readers.ask(lambda reader: reader.counts())
        is_in_use = any(device.foreign for device in last.inventory.devices)
        is_lent = self._queue.line.idle_after_s is not None
        return bool(counts["queued"]) and (is_in_use or is_lent or last.inventory.problem is not None)

    # -- one reading

    async def read_now(self) -> Inventory:
        """Read the devices; wake the queue thread if a change matters to it."""
        before = self.view.inventory()
        await self._read()
        after = self.view.inventory()
        if _for_scheduler(before) != _for_scheduler(after):
            self._queue.wake()
        return after

    async def _read(self) -> list[Job]:
        number = self.view.begin_reading()
        jobs = await self._readers.ask(lambda reader: reader.active()) if self.view.is_real else []
        loop = asyncio.get_running_loop()
        record_findings(self._queue, await loop.run_in_executor(self._thread, self._read_in_thread, number, jobs))
        self._keep_last_seen(LAST_SEEN_MS)
        return jobs

    def _read_in_thread(self, number: int, jobs: Sequence[Job]) -> list[Finding]:
        raw = self._probe.read()
        reading = self._with_owners(raw, jobs) if self.view.is_real else Reading(raw, time.monotonic())
        return self.view.update(number, reading, now_ms())

    def _with_owners(self, raw: Inventory, jobs: Sequence[Job]) -> Reading:
        held = holders.survey(self._folder, raw.ids)
        users = {DeviceId(device): [holder.user for holder in found] for device, found in held.items() if found}
        job_of = ownership.jobs_by_pid(raw, held, jobs, self._user)
        numbers = {str(job.id) for job in jobs}
        self._own_leases = any(
            one.uid == os.geteuid() and one.job not in numbers for found in held.values() for one in found
        )
        outside = {d.id: ownership.outside(self._folder, d, held.get(d.id, ())) for d in raw.devices}
        who = {
            DeviceId(device): tuple(LeaseHolder(one.uid, one.pid, one.job) for one in found if not one.is_loan)
            for device, found in held.items()
        }
        loans = {
            device.id: beside
            for device in raw.devices
            if (beside := ownership.beside_loan(self._folder, device, held.get(device.id, ()))) is not None
        }
        self._borrows = any(device in loans for job in jobs for device in job.allocation)
        who = {device: found for device, found in who.items() if found}
        return Reading(raw, time.monotonic(), users, jobs, job_of, self._user, outside, who, loans)

    def _record_xid(self, device_id: str, xid: int) -> None:
        log.warning("Xid %s on %s", xid, device_id)
        record_findings(self._queue, self.view.note_xid(device_id, xid))
        self._requests.make()

    def _warn_idle(self) -> None:
        """Warn the holder of each of our leases without use, once: in its terminal, or with a notice of its job."""
        idle, me = self.view.idle_leases, os.geteuid()
        late = {
            (device, one)
            for device, lease in idle.items()
            for one in lease.holders
            if one.uid == me and lease.has_lasted(self._queue.settings.idle_after)
        }
        inventory, after = self.view.inventory(), units.format_duration(self._queue.settings.idle_after)
        for device, one in late - self._warned:
            text = f"GPU {inventory.index_of(device)} has shown no use for {after}"
            if one.job is not None and one.job.isdecimal():
                job_id = JobId(int(one.job))
                self._queue.tell(partial(self._queue.notices.warn, job_id=job_id, text=text))
            elif one.pid is not None:
                keeper.tell(_terminal_of(one.pid), f"{text}; dibs lease --release or Ctrl-C frees it for others")
        # Not those that are used meanwhile: they are warned again.
        self._warned = late

    # -- called by other parts

    def note_viewer(self) -> None:
        """Note that a user reads the devices."""
        self._watched_until = time.monotonic() + WATCHES_FOR_S
        self._requests.make()

    def accept(self, device_id: DeviceId) -> str | None:
        """Use a device again despite its concern; return that concern."""
        accepted = self.view.accept(device_id)
        self._requests.make()
        return accepted

    def keep_all(self) -> None:
        """Store all usage counted so far and when the devices were last seen, before the daemon ends."""
        self._keep_usage([])
        self._keep_last_seen(0)

    def _keep_last_seen(self, every_ms: int) -> None:
        """Store the devices if they changed, or if the stored time is older than `every_ms`."""
        seen, kept = self._probe.last_seen, self._kept
        if seen is None or (kept is not None and seen.ids == kept.ids and seen.at - kept.at <= every_ms):
            return
        self._kept = seen
        text = last_seen.write(seen, paths.machine_id())
        self._queue.tell(lambda turn: turn.store.set_fact(last_seen.FACT, text))

    def _keep_usage(self, jobs: Sequence[Job]) -> None:
        now = now_ms()
        minutes, over = self.view.ledger.whole_minutes(now), self.view.ledger.ended(jobs)
        if minutes or over:
            self._queue.tell(lambda turn: turn.store.keep_uses(over, minutes, now // 60_000 - usage.MOST_MINUTES))

    def close(self) -> None:
        """Stop listening and release the driver; a thread that hangs in it is left until the process ends."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._listener.want(False)
        self._probe.close()


def _terminal_of(pid: int) -> int:
    """Return the process whose terminal is that of a lease: its holder, or the one for which a keeper holds it."""
    kept = keeper.read(processes.words(pid))
    return pid if kept is None else kept[0]


def _for_scheduler(inventory: Inventory) -> object:
    return inventory.problem, [(d.id, d.obstacle, d.foreign_memory, d.memory_total) for d in inventory.devices]


def record_findings(queue: QueueThread, findings: Sequence[Finding]) -> None:
    """Record findings in the next turn. From any thread."""
    if findings:
        queue.tell(lambda turn: _record(turn, findings))


def _record(turn: Turn, findings: Sequence[Finding]) -> None:
    """Store findings, and stop a job that uses a device it must not use."""
    for finding in findings:
        if finding.job is None:
            turn.store.put_out(str(finding.device), finding.text, turn.now)
            continue
        job = turn.store.job(finding.job)
        if not job.is_active:
            continue
        if finding.kind == RECLAIMED:
            evictions.ask(turn, job, "" if finding.user is None else str(finding.user), finding.text)
            continue
        turn.changed.append(job.id)
        turn.store.note(job.id, turn.now, finding.kind, finding.text)
        if finding.kind == "Stray" and job.spec.strict_gpus and job.state in (State.RUNNING, State.PAUSED):
            _stop(turn, job, f"stopped by --strict-gpus: it {finding.text}")
        elif finding.kind == "Exceeds" and job.spec.vram_enforce and job.state in (State.RUNNING, State.PAUSED):
            _stop(turn, job, f"stopped by --vram-enforce: it {finding.text}")


def _stop(turn: Turn, job: Job, why: str) -> None:
    stopped = turn.record(job, lifecycle.Misused(turn.now, why), why)
    turn.effects.append(Order(stopped, f"stop {turn.settings.grace}"))
