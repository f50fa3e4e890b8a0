"""Observing: one look at the devices after the other, and what is done about what was seen.

A look reads the driver, the leases and our jobs; `observations` decides what follows; findings become events of jobs
and rows of the store. Between looks the core asks here which devices must not be given out yet. For real devices only:
pretend ones are never looked at.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from dibs.devices import assessment, health, ownership, usage
from dibs.devices.assessment import Finding, Look, Seen
from dibs.devices.foreign import Limits
from dibs.devices.probe import Probe
from dibs.jobqueue.thread import Core, now_ms
from dibs.jobqueue.turns import Order, Turn
from dibs.leases import holders
from dibs.model import lifecycle, units
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Job, JobId, State
from dibs.scheduling.views import Occupant
from dibs.system import processes
from dibs.system.locks import Folder

#: Seconds for which a look is good enough to give a device out on the strength of it: many jobs that start at once
#: share one, and somebody who came a moment ago is seen.
FRESH_FOR_S = 2.0
STALE = Occupant("nobody", note="is looked at first")
RELEASED = Occupant("nobody", note="was in use until now; it is free when its memory has come back")


class Observing:
    """What is known of real devices. Looks are made by one thread; the core's and others ask and tell meanwhile."""

    def __init__(self, probe: Probe, place: Folder, user: str, limits: Limits, seen: Seen) -> None:
        self.probe = probe
        self.place = place
        self.user = user
        self.limits = limits
        self.seen = seen
        self.ledger = usage.Ledger()
        #: Since when nobody has used a device, in wall-clock milliseconds, where we saw them go.
        self.idle_since: dict[DeviceId, int] = {}
        #: Called to have a look made soon. From any thread.
        self.asked: Callable[[], None] = lambda: None
        self._looked_at = float("-inf")
        self._lock = threading.Lock()
        #: Devices that were given out, and the number of the look before which that was.
        self._given: dict[DeviceId, int] = {}
        self._looks = 0
        self._busy: set[DeviceId] = set()

    @property
    def inventory(self) -> Inventory:
        """Return the devices as they were judged last."""
        return self.seen.inventory

    @property
    def is_fresh(self) -> bool:
        """Tell whether the last look was a moment ago."""
        return time.monotonic() - self._looked_at < FRESH_FOR_S

    @property
    def age_s(self) -> float | None:
        """Return how old the last look is; None while nobody looks."""
        age_s = time.monotonic() - self._looked_at
        return None if math.isinf(age_s) else age_s

    def ask(self) -> None:
        """Have the devices looked at soon, and the core woken after that. From any thread."""
        self.asked()

    # -- for the core thread

    def hold_back(self, held: Mapping[DeviceId, Occupant], ours: Collection[DeviceId]) -> dict[DeviceId, Occupant]:
        """Return who holds what, with the devices that must be looked at before they are given out."""
        why = RELEASED if self.is_fresh else STALE
        doubtful = self._unsettled() if self.is_fresh else self.inventory.ids
        return {**{device: why for device in doubtful if device not in ours}, **held}

    def given(self, devices: Collection[DeviceId]) -> None:
        """Take note of devices that were given out: they are free again when a later look has seen them free."""
        if devices:
            with self._lock:
                self._given.update(dict.fromkeys(devices, self._looks))
            self.ask()

    def _unsettled(self) -> set[DeviceId]:
        with self._lock:
            return {*self.seen.unsettled, *self._given}

    # -- for the thread that looks

    def begin(self) -> int:
        """Begin a look: before our jobs are read, so that none that starts meanwhile is overlooked."""
        with self._lock:
            self._looks += 1
            return self._looks

    def look(self, number: int, jobs: Sequence[Job]) -> list[Finding]:
        """Look at all devices; return what is new. May take as long as the driver lets it."""
        raw = self.probe.read()
        held = holders.survey(self.place, raw.ids)
        users = {DeviceId(device): [holder.user for holder in found] for device, found in held.items() if found}
        job_of = self._jobs_of(raw, held, jobs)
        outside = {device.id: ownership.outside(self.place, device, held.get(device.id, ())) for device in raw.devices}
        look = Look(raw, time.monotonic(), users, jobs, job_of, self.user, outside)
        with self._lock:
            before = replace(self.seen, unsettled=self.seen.unsettled | self._given.keys())
            seen, findings = assessment.observe(before, look, self.limits)
            # Given out while we looked: nothing is known of those.
            self._given = {device: at for device, at in self._given.items() if at >= number}
            self.seen = replace(seen, unsettled=seen.unsettled | self._given.keys())
        if raw.problem is None:
            self._count_idle(now_ms())
            self.ledger.count(self.seen.inventory, jobs, job_of, now_ms())
        self._looked_at = time.monotonic()
        return findings

    def _count_idle(self, now: int) -> None:
        """Take note of who has just gone; of a device that was idle when we came nobody knows since when."""
        for device in self.inventory.devices:
            if device.id in self.seen.unsettled or device.foreign:
                self.idle_since.pop(device.id, None)
            elif device.id in self._busy:
                self.idle_since.setdefault(device.id, now)
        self._busy = {*self.seen.unsettled, *(device.id for device in self.inventory.devices if device.foreign)}

    def _jobs_of(
        self, raw: Inventory, held: Mapping[str, Sequence[holders.Holder]], jobs: Sequence[Job]
    ) -> dict[int, JobId]:
        """Find the job of each process of ours on the devices, by the runner or the command that is above it."""
        known = {job.id for job in jobs}
        roots = {job.pid: job.id for job in jobs if job.pid is not None}
        for holder in (holder for found in held.values() for holder in found):
            job_id = JobId(int(holder.job)) if holder.job and units.is_whole(holder.job) else None
            if holder.user == self.user and holder.pid is not None and job_id in known:
                roots[holder.pid] = job_id
        pids = {process.pid for device in raw.devices for process in device.processes if process.user == self.user}
        lines = {pid: processes.lineage(pid) for pid in pids} if roots else {}
        found = {pid: next((roots[parent] for parent in line if parent in roots), None) for pid, line in lines.items()}
        return {pid: job_id for pid, job_id in found.items() if job_id is not None}

    def rest(self) -> None:
        """Look no more for a while: whoever wants a device then has to wait for a look."""
        self._looked_at = float("-inf")

    # -- for whoever hears or says something

    def heard(self, device_id: str, xid: int) -> list[Finding]:
        """Take note of an Xid; return what is new."""
        with self._lock:
            self.seen, findings = assessment.heard_xid(self.seen, device_id, xid)
        return findings

    def bring_back(self, device_id: DeviceId) -> str | None:
        """Use a device again, as it is; return what was accepted of it."""
        with self._lock:
            device = self.seen.inventory.by_id.get(device_id)
            self.seen = assessment.brought_back(self.seen, device_id)
            self._given.pop(device_id, None)
        self.ask()
        return None if device is None else health.worry(device)


def tell(core: Core, findings: Sequence[Finding]) -> None:
    """Let what was found be recorded in the next turn. From any thread."""
    if findings:
        core.tell(lambda turn: record(turn, findings))


def record(turn: Turn, findings: Sequence[Finding]) -> None:
    """Keep what was found, and end the job that may not use what it was not given."""
    for finding in findings:
        if finding.job is None:
            turn.store.put_out(str(finding.device), finding.text, turn.now)
            continue
        job = turn.store.job(finding.job)
        if not job.is_active:
            continue
        turn.changed.append(job.id)
        turn.store.note(job.id, turn.now, finding.kind, finding.text)
        if finding.kind == "Stray" and job.spec.strict_gpus and job.state in (State.RUNNING, State.PAUSED):
            end(turn, job, f"ended by --strict-gpus: it {finding.text}")
        elif finding.kind == "Exceeds" and job.spec.vram_enforce and job.state in (State.RUNNING, State.PAUSED):
            end(turn, job, f"ended by --vram-enforce: it {finding.text}")


def end(turn: Turn, job: Job, why: str) -> None:
    """End a job that uses a device otherwise than it may."""
    ended = turn.record(job, lifecycle.Misused(turn.now, why), why)
    turn.effects.append(Order(ended, f"stop {turn.settings.grace}"))


def keep(core: Core, ledger: usage.Ledger, jobs: Sequence[Job], now: int) -> None:
    """Let what was counted be kept: the minutes that are over, and the uses of attempts that have ended."""
    minutes, over = ledger.whole_minutes(now), ledger.ended(jobs)
    if minutes or over:
        core.tell(lambda turn: turn.store.keep_uses(over, minutes, now // 60_000 - usage.MOST_MINUTES))
