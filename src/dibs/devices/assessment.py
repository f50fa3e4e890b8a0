"""Observations: what follows from one look at the devices, the leases and our jobs. Pure; time comes in as seconds.

Decides foreign use, strays, honest release (a device is free when its memory has come back, not when its lease ended)
and health. Who looks, when, and what is done about it is `observing`'s business.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.devices import foreign, health, usage
from dibs.devices.foreign import Limits
from dibs.model import units
from dibs.model.devices import Device, DeviceId, Inventory
from dibs.model.jobs import Job, JobId

#: What may be found out about a job while it runs, as its events call it.
KINDS = ("Stray", "Exceeds", "Foreign", "Unwell")
#: Seconds that memory may take to come back after the last lease of a device ended.
SETTLES_WITHIN_S = 60.0
#: How much of what it declared a job that shares may use: a context of the driver is easily forgotten.
EXCESS = 1.1


@dataclass(frozen=True)
class Look:
    """What was seen at one moment: the devices, who holds them, our jobs, and which processes are whose."""

    raw: Inventory
    at_s: float
    #: The users who hold a lease of a device; None for one whom we cannot see.
    users: Mapping[DeviceId, Collection[str | None]] = field(default_factory=dict)
    jobs: Sequence[Job] = ()
    #: The job that a process belongs to, of processes on the devices.
    job_of: Mapping[int, JobId] = field(default_factory=dict)
    user: str = ""
    #: Processes on a device that belong to nobody's share of it.
    outside: Mapping[DeviceId, Collection[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What is remembered from look to look."""

    inventory: Inventory = field(default_factory=lambda: Inventory(is_known=False))
    #: Devices that were in use and have not been seen free and clean since.
    unsettled: frozenset[DeviceId] = frozenset()
    #: Since when memory has been coming back, in seconds.
    releasing: Mapping[DeviceId, float] = field(default_factory=dict)
    #: Devices that somebody has to bring back, and why; and which worries were accepted.
    unwell: Mapping[DeviceId, str] = field(default_factory=dict)
    accepted: Mapping[DeviceId, str] = field(default_factory=dict)
    #: What is to be said about jobs as long as it is so.
    marks: Mapping[JobId, tuple[str, ...]] = field(default_factory=dict)
    #: What has been told already.
    told: frozenset[tuple[object, ...]] = frozenset()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was not so before: about a job, or a device that is out of use from now on."""

    #: One of `KINDS`.
    kind: str
    text: str
    job: JobId | None = None
    device: DeviceId | None = None


def observe(before: Seen, look: Look, limits: Limits) -> tuple[Seen, list[Finding]]:
    """Return what is remembered after a look, and what is new."""
    if look.raw.problem is not None or not look.raw.is_known:
        # Nothing can be said about devices that were not seen.
        seen = replace(look.raw, devices=before.inventory.devices or look.raw.devices)
        return replace(before, inventory=seen), []
    round_ = _Round(before, look, limits)
    devices = tuple(round_.judge(device) for device in look.raw.devices)
    return round_.seen(devices), round_.findings


def heard_xid(before: Seen, device_id: str, xid: int) -> tuple[Seen, list[Finding]]:
    """Return what follows from an Xid about a card: its slices, if it has any, are out with it."""
    fault = health.xid_fault(xid)
    hit = [d.id for d in before.inventory.devices if device_id in (d.id, d.parent)]
    if fault is None or not hit:
        return before, []
    findings = [Finding("Unwell", fault, device=each) for each in hit]
    devices = tuple(replace(d, fault=d.fault or fault) if d.id in hit else d for d in before.inventory.devices)
    inventory = replace(before.inventory, devices=devices)
    return replace(before, inventory=inventory, unwell={**before.unwell, **dict.fromkeys(hit, fault)}), findings


def brought_back(before: Seen, device_id: DeviceId) -> Seen:
    """Return what is remembered after somebody said that a device shall be used as it is."""
    device = before.inventory.by_id.get(device_id)
    unwell = {other: why for other, why in before.unwell.items() if other != device_id}
    concern = None if device is None else health.worry(device)
    accepted = before.accepted if concern is None else {**before.accepted, device_id: concern}
    settled = before.unsettled - {device_id}
    releasing = {other: since for other, since in before.releasing.items() if other != device_id}
    return replace(before, unwell=unwell, accepted=accepted, unsettled=settled, releasing=releasing)


class _Round:
    """One look in the making."""

    def __init__(self, before: Seen, look: Look, limits: Limits) -> None:
        self.before, self.look, self.limits = before, look, limits
        self.unsettled = set(before.unsettled)
        self.releasing = dict(before.releasing)
        self.unwell = dict(before.unwell)
        self.marks: dict[JobId, list[str]] = {}
        active = {job.id for job in look.jobs}
        self.told = {key for key in before.told if key[0] in active}
        self.findings: list[Finding] = []

    def seen(self, devices: tuple[Device, ...]) -> Seen:
        """Return what is remembered after this round."""
        there = {device.id for device in devices}
        return replace(
            self.before,
            inventory=replace(self.look.raw, devices=devices),
            unsettled=frozenset(self.unsettled & there),
            releasing={device: since for device, since in self.releasing.items() if device in there},
            unwell=self.unwell,
            marks={job: tuple(texts) for job, texts in self.marks.items()},
            told=frozenset(self.told),
        )

    def judge(self, device: Device) -> Device:
        """Return one device as it stands."""
        ours = [job for job in self.look.jobs if device.id in job.allocation]
        users = set(self.look.users.get(device.id, ())) | ({self.look.user} if ours else set())
        device = foreign.judged(device, users, self.limits, self.look.outside.get(device.id, ()))
        self._find_strays(device)
        if users:
            self.unsettled.add(device.id)
            self.releasing.pop(device.id, None)
        elif device.id in self.unsettled:
            device = self._settle(device)
        device = self._with_fault(device)
        for job in ours:
            self._tell_job(job, device)
        return device

    def _settle(self, device: Device) -> Device:
        """Return a device that was in use: free if its memory has come back, or if it is somebody else who has it."""
        used = device.memory_used or 0
        if used <= self.limits.memory or foreign.foreign_processes(device, (), self.limits):
            self.unsettled.discard(device.id)
            self.releasing.pop(device.id, None)
            return device
        since = self.releasing.setdefault(device.id, self.look.at_s)
        size = units.format_size(used)
        if self.look.at_s - since < SETTLES_WITHIN_S:
            told = f"{size} of its last job have not come back yet"
            return replace(device, settling=told, foreign=None, foreign_memory=0)
        self._put_out(device, health.dirty(size, SETTLES_WITHIN_S))
        self.unsettled.discard(device.id)
        self.releasing.pop(device.id, None)
        return replace(device, foreign=None)

    def _put_out(self, device: Device, why: str) -> None:
        if device.id not in self.unwell:
            self.unwell[device.id] = why
            self.findings.append(Finding("Unwell", why, device=device.id))

    def _with_fault(self, device: Device) -> Device:
        concern = health.worry(device)
        if concern is not None and concern == self.before.accepted.get(device.id):
            concern = None
        fault = device.fault or self.unwell.get(device.id) or concern
        return device if fault == device.fault else replace(device, fault=fault)

    def _find_strays(self, device: Device) -> None:
        """Find jobs of ours that use a device that they were not given."""
        jobs = {job.id: job for job in self.look.jobs}
        for process in device.processes:
            job = jobs.get(self.look.job_of.get(process.pid, JobId(0)))
            if job is not None and device.id not in job.allocation:
                text = f"uses GPU {device.index}, which it was not given (pid {process.pid})"
                self._say(job, "Stray", text, device.id)

    def _tell_job(self, job: Job, device: Device) -> None:
        if device.fault is not None:
            self._say(job, "Unwell", f"GPU {device.index}: {device.fault}", device.id)
        declared, used = job.spec.request.vram, usage.memory_of(job, device, self.look.job_of)
        if declared and used is not None and used > declared * EXCESS:
            told = f"uses {units.format_size(used)} of GPU {device.index}, and declared {units.format_size(declared)}"
            self._say(job, "Exceeds", told, device.id)
        if device.foreign is not None:
            self._say(job, "Foreign", f"GPU {device.index} is {device.foreign}", device.id)

    def _say(self, job: Job, kind: str, text: str, device: DeviceId) -> None:
        """Mark a job with something as long as it is so, and tell of it once."""
        marks = self.marks.setdefault(job.id, [])
        if text not in marks:
            marks.append(text)
        key = (job.id, job.attempt, kind, device)
        if key not in self.told:
            self.told.add(key)
            self.findings.append(Finding(kind, text, job.id, device))
