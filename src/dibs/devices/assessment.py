"""Judges one reading of the devices, the leases and our jobs.

Decides about use without a lease, jobs on devices they were not given, release (a device is free when its memory is
released, not when its lease ends) and health. Time is passed in as seconds.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.devices import foreign, health, usage
from dibs.devices.foreign import Limits
from dibs.devices.idle_leases import LeaseHolder
from dibs.model import units
from dibs.model.devices import Device, DeviceId, Inventory
from dibs.model.jobs import Job, JobId

#: What a reading may find about a job; also the names of its events.
KINDS = ("Stray", "Exceeds", "Foreign", "Unwell")
#: What it finds if the holder of a device that is lent to a job has a right to it again.
RECLAIMED = "Reclaimed"
#: Seconds within which memory must be released after the last lease of a device ended.
SETTLES_WITHIN_S = 60.0
#: A sharing job may use its declared memory times this factor: the driver's own context is easily forgotten.
EXCESS = 1.1


@dataclass(frozen=True)
class Reading:
    """The state at one moment: the devices, who holds them, our jobs, and which process belongs to which job."""

    raw: Inventory
    at_s: float
    #: The users who hold a lease of a device; None for a holder we cannot see.
    users: Mapping[DeviceId, Collection[str | None]] = field(default_factory=dict)
    jobs: Sequence[Job] = ()
    #: Pid to job, for the processes on the devices that belong to a job.
    job_of: Mapping[int, JobId] = field(default_factory=dict)
    user: str = ""
    #: Processes on a shared device that were not started under any of its leases.
    outside: Mapping[DeviceId, Collection[int]] = field(default_factory=dict)
    #: Who holds each device.
    holders: Mapping[DeviceId, tuple[LeaseHolder, ...]] = field(default_factory=dict)
    #: Devices that are lent to evictable jobs, with the processes on them that do not borrow them.
    loans: Mapping[DeviceId, Collection[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Assessment:
    """What is known after a reading and needed to judge the next one."""

    inventory: Inventory = field(default_factory=lambda: Inventory(is_known=False))
    #: Devices that were in use and have not since been read as free with their memory released.
    unsettled: frozenset[DeviceId] = frozenset()
    #: Since when memory is being released, in seconds.
    releasing: Mapping[DeviceId, float] = field(default_factory=dict)
    #: Devices that stay out of use until a user accepts them, with the reason; and the accepted concerns.
    unwell: Mapping[DeviceId, str] = field(default_factory=dict)
    accepted: Mapping[DeviceId, str] = field(default_factory=dict)
    #: Remarks about jobs, kept as long as they are true.
    marks: Mapping[JobId, tuple[str, ...]] = field(default_factory=dict)
    #: The holders of devices that are lent.
    lenders: Mapping[DeviceId, tuple[LeaseHolder, ...]] = field(default_factory=dict)
    #: Findings that were already reported.
    reported: frozenset[tuple[object, ...]] = frozenset()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something new about a job, or a device that is out of use from now on."""

    #: One of `KINDS`, or `RECLAIMED`.
    kind: str
    text: str
    job: JobId | None = None
    device: DeviceId | None = None
    #: The user (uid) who has a right to the device, if known.
    user: int | None = None


def assess(before: Assessment, reading: Reading, limits: Limits) -> tuple[Assessment, list[Finding]]:
    """Return the assessment after a reading, and the new findings."""
    if reading.raw.problem is not None or not reading.raw.is_known:
        # Devices that could not be read cannot be judged.
        inventory = replace(reading.raw, devices=before.inventory.devices or reading.raw.devices)
        return replace(before, inventory=inventory), []
    assessor = _Assessor(before, reading, limits)
    devices = tuple(assessor.judge(device) for device in reading.raw.devices)
    return assessor.result(devices), assessor.findings


def assess_xid(before: Assessment, device_id: str, xid: int) -> tuple[Assessment, list[Finding]]:
    """Judge an Xid (a fault code of the NVIDIA driver) of a card; it affects all MIG slices of the card."""
    fault = health.xid_fault(xid)
    hit = [d.id for d in before.inventory.devices if device_id in (d.id, d.parent)]
    if fault is None or not hit:
        return before, []
    findings = [Finding("Unwell", fault, device=each) for each in hit]
    devices = tuple(replace(d, fault=d.fault or fault) if d.id in hit else d for d in before.inventory.devices)
    inventory = replace(before.inventory, devices=devices)
    return replace(before, inventory=inventory, unwell={**before.unwell, **dict.fromkeys(hit, fault)}), findings


def accept(before: Assessment, device_id: DeviceId) -> Assessment:
    """Return the assessment after a user decided to use a device as it is."""
    device = before.inventory.by_id.get(device_id)
    unwell = {other: why for other, why in before.unwell.items() if other != device_id}
    concern = None if device is None else health.concern(device)
    accepted = before.accepted if concern is None else {**before.accepted, device_id: concern}
    settled = before.unsettled - {device_id}
    releasing = {other: since for other, since in before.releasing.items() if other != device_id}
    return replace(before, unwell=unwell, accepted=accepted, unsettled=settled, releasing=releasing)


class _Assessor:
    """Judges one reading, device by device."""

    def __init__(self, before: Assessment, reading: Reading, limits: Limits) -> None:
        self.before, self.reading, self.limits = before, reading, limits
        self.unsettled = set(before.unsettled)
        self.releasing = dict(before.releasing)
        self.unwell = dict(before.unwell)
        self.marks: dict[JobId, list[str]] = {}
        active = {job.id for job in reading.jobs}
        self.reported = {key for key in before.reported if key[0] in active}
        self.findings: list[Finding] = []

    def result(self, devices: tuple[Device, ...]) -> Assessment:
        """Return the assessment with all `devices` judged."""
        there = {device.id for device in devices}
        return replace(
            self.before,
            inventory=replace(self.reading.raw, devices=devices),
            unsettled=frozenset(self.unsettled & there),
            releasing={device: since for device, since in self.releasing.items() if device in there},
            unwell=self.unwell,
            marks={job: tuple(texts) for job, texts in self.marks.items()},
            lenders={device: self.reading.holders.get(device, ()) for device in self.reading.loans},
            reported=frozenset(self.reported),
        )

    def judge(self, device: Device) -> Device:
        """Return one device with the reasons against using it."""
        ours = [job for job in self.reading.jobs if device.id in job.allocation]
        users = set(self.reading.users.get(device.id, ())) | ({self.reading.user} if ours else set())
        device = foreign.with_foreign_use(device, users, self.limits, self.reading.outside.get(device.id, ()))
        self._find_strays(device)
        if users:
            self.unsettled.add(device.id)
            self.releasing.pop(device.id, None)
        elif device.id in self.unsettled:
            device = self._settle(device)
        device = self._with_fault(device)
        for job in ours:
            if device.id in self.reading.loans and job.spec.request.is_evictable:
                self._judge_loan(job, device)
            self._remark_on_job(job, device)
        return device

    def _settle(self, device: Device) -> Device:
        """Judge a device that was in use: it is free when its memory is released or is used without a lease."""
        used = device.memory_used or 0
        if used <= self.limits.memory or foreign.foreign_processes(device, (), self.limits):
            self.unsettled.discard(device.id)
            self.releasing.pop(device.id, None)
            return device
        since = self.releasing.setdefault(device.id, self.reading.at_s)
        size = units.format_size(used)
        if self.reading.at_s - since < SETTLES_WITHIN_S:
            text = f"{size} of memory of its last job is not freed yet"
            return replace(device, settling=text, foreign=None, foreign_memory=0)
        self._put_out(device, health.dirty(size, SETTLES_WITHIN_S))
        self.unsettled.discard(device.id)
        self.releasing.pop(device.id, None)
        return replace(device, foreign=None)

    def _put_out(self, device: Device, why: str) -> None:
        if device.id not in self.unwell:
            self.unwell[device.id] = why
            self.findings.append(Finding("Unwell", why, device=device.id))

    def _with_fault(self, device: Device) -> Device:
        concern = health.concern(device)
        if concern is not None and concern == self.before.accepted.get(device.id):
            concern = None
        fault = device.fault or self.unwell.get(device.id) or concern
        return device if fault == device.fault else replace(device, fault=fault)

    def _find_strays(self, device: Device) -> None:
        """Find our jobs that use a device they were not given."""
        jobs = {job.id: job for job in self.reading.jobs}
        for process in device.processes:
            job = jobs.get(self.reading.job_of.get(process.pid, JobId(0)))
            if job is not None and device.id not in job.allocation:
                text = f"uses GPU {device.index}, which was not assigned to it (pid {process.pid})"
                self._remark(job, "Stray", text, device.id)

    def _judge_loan(self, job: Job, device: Device) -> None:
        """Find out whether the holder of a device that is lent to a job of ours has a right to it again."""
        holders = self.reading.holders.get(device.id, ())
        lenders = self.before.lenders.get(device.id, holders)
        user = lenders[0].uid if lenders else None
        others = self.reading.loans[device.id]
        if not holders:
            why = f"GPU {device.index} was lent from an idle lease, which has ended"
        elif others:
            pids = ", ".join(map(str, sorted(others)))
            why = f"GPU {device.index}, lent from an idle lease, is used by its holder again (pid {pids})"
        elif holders != lenders:
            why = f"GPU {device.index}, lent from an idle lease, has a new holder"
        else:
            # The holder comes before the borrower.
            lender = next(iter(self.reading.users.get(device.id, ())), None) or "somebody"
            self.marks.setdefault(job.id, []).append(f"GPU {device.index} is an idle lease of {lender}, lent to it")
            return
        self.findings.append(Finding(RECLAIMED, why, job.id, device.id, user))

    def _remark_on_job(self, job: Job, device: Device) -> None:
        if device.fault is not None:
            self._remark(job, "Unwell", f"GPU {device.index}: {device.fault}", device.id)
        declared, used = job.spec.request.vram, usage.memory_of(job, device, self.reading.job_of)
        if declared and used is not None and used > declared * EXCESS:
            text = f"uses {units.format_size(used)} of GPU {device.index}, but declared {units.format_size(declared)}"
            self._remark(job, "Exceeds", text, device.id)
        if device.foreign is not None:
            self._remark(job, "Foreign", f"GPU {device.index} is {device.foreign}", device.id)

    def _remark(self, job: Job, kind: str, text: str, device: DeviceId) -> None:
        """Mark a job with a remark as long as it is true, and report it once."""
        marks = self.marks.setdefault(job.id, [])
        if text not in marks:
            marks.append(text)
        key = (job.id, job.attempt, kind, device)
        if key not in self.reported:
            self.reported.add(key)
            self.findings.append(Finding(kind, text, job.id, device))
