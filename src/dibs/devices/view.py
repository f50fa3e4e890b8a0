"""The devices as last judged, for the scheduler and the API.

Data flows one way: `probe` reads the driver, `ownership` assigns processes to jobs, `assessment` judges, and this view
keeps the result. One thread updates it; all others only read it or report what they did with a device.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from dibs.devices import assessment, health, idle_leases, usage
from dibs.devices.assessment import Assessment, Finding, Reading
from dibs.devices.foreign import Limits
from dibs.devices.idle_leases import IdleLease
from dibs.leases.drains import Drains
from dibs.model.devices import DeviceId, Inventory, with_drained, with_faults
from dibs.scheduling.views import Occupant

#: Seconds for which a reading is recent enough to give out a device. Jobs that start together share one reading, and a
#: process that started just before is still seen.
FRESH_FOR_S = 2.0
STALE = Occupant("nobody", note="is checked first")
RELEASED = Occupant("nobody", note="was in use until now; it is free when its memory has been freed")


class DeviceView:
    """The judged devices. Without a driver (not `is_real`) all are healthy and never held back."""

    def __init__(self, drains: Drains, limits: Limits, before: Assessment, *, is_real: bool) -> None:
        self.drains = drains
        self.is_real = is_real
        self.ledger = usage.Ledger()
        #: Since when a device is idle, in wall-clock milliseconds; only if we saw it become idle.
        self.idle_since: dict[DeviceId, int] = {}
        #: Leased devices that show no use. Replaced as a whole.
        self.idle_leases: Mapping[DeviceId, IdleLease] = {}
        self.limits = limits
        self._assessment = before
        self._read_at = float("-inf")
        self._lock = threading.Lock()
        self._readings = 0
        #: Devices that were given out, with the number of the last reading that began before.
        self._given: dict[DeviceId, int] = {}
        self._busy: set[DeviceId] = set()
        #: Devices on which the machine refused starts, with the reason. Replaced as a whole.
        self.unusable: Mapping[DeviceId, str] = {}

    def inventory(self) -> Inventory:
        """Return the devices as last judged, with the current drains."""
        return with_faults(with_drained(self._assessment.inventory, self.drains.now()), self.unusable)

    @property
    def last(self) -> Assessment:
        """Return the last assessment."""
        return self._assessment

    @property
    def is_fresh(self) -> bool:
        """Return whether the last reading is recent enough to give out devices."""
        return time.monotonic() - self._read_at < FRESH_FOR_S

    @property
    def age_s(self) -> float | None:
        """Return the age of the last reading; None while the devices are not read."""
        age_s = time.monotonic() - self._read_at
        return None if math.isinf(age_s) else age_s

    # -- for the scheduler

    def hold_back(self, held: Mapping[DeviceId, Occupant], ours: Collection[DeviceId]) -> Mapping[DeviceId, Occupant]:
        """Return who holds what, including devices that must be read again before they are given out."""
        if not self.is_real:
            return held
        is_fresh = self.is_fresh
        doubtful = self._unsettled() if is_fresh else self._assessment.inventory.ids
        why = RELEASED if is_fresh else STALE
        return {**{device: why for device in doubtful if device not in ours}, **held}

    def lendable(self, after_s: float) -> frozenset[DeviceId]:
        """Return the devices whose leases were without use for this long, and on which there is no process."""
        if not self.is_fresh:
            return frozenset()
        known, most = self._assessment.inventory.by_id, self.limits.memory
        idle = [known[device] for device, lease in self.idle_leases.items() if lease.has_lasted(after_s)]
        return frozenset(each.id for each in idle if not each.processes and (each.memory_used or 0) <= most)

    def note_given(self, devices: Collection[DeviceId]) -> None:
        """Note that devices were given out: they are free again when a later reading shows them free."""
        if self.is_real:
            with self._lock:
                self._given.update(dict.fromkeys(devices, self._readings))

    def _unsettled(self) -> set[DeviceId]:
        with self._lock:
            return {*self._assessment.unsettled, *self._given}

    # -- for the thread that reads

    def begin_reading(self) -> int:
        """Return the number of a new reading. Call it before our jobs are read, so that no later start is missed."""
        with self._lock:
            self._readings += 1
            return self._readings

    def update(self, number: int, reading: Reading, now: int) -> list[Finding]:
        """Judge a reading and keep the result; return the new findings."""
        if not self.is_real:
            self._assessment = Assessment(reading.raw)
            return []
        with self._lock:
            before = replace(self._assessment, unsettled=self._assessment.unsettled | self._given.keys())
            after, findings = assessment.assess(before, reading, self.limits)
            # Nothing is known about devices that were given out during the reading.
            self._given = {device: at for device, at in self._given.items() if at >= number}
            self._assessment = replace(after, unsettled=after.unsettled | self._given.keys())
        if reading.raw.problem is None:
            self._note_idle(now)
            self.idle_leases = idle_leases.advance(self.idle_leases, reading.raw, reading.holders, now, reading.loans)
            self.ledger.count(self._assessment.inventory, reading.jobs, reading.job_of, now)
        self._read_at = time.monotonic()
        return findings

    def _note_idle(self, now: int) -> None:
        """Note which devices have just become idle. If one was idle from the start, the time is unknown."""
        foreign = {device.id for device in self._assessment.inventory.devices if device.foreign}
        busy = {*self._assessment.unsettled, *foreign}
        for device in self._assessment.inventory.ids:
            if device in busy:
                self.idle_since.pop(device, None)
            elif device in self._busy:
                self.idle_since.setdefault(device, now)
        self._busy = busy

    def expire(self) -> None:
        """Mark the last reading as too old, because the devices are not read for now."""
        self._read_at = float("-inf")
        self.idle_leases = {}

    # -- for faults and users

    def note_xid(self, device_id: str, xid: int) -> list[Finding]:
        """Judge a fault that the driver reported; return the new findings."""
        with self._lock:
            self._assessment, findings = assessment.assess_xid(self._assessment, device_id, xid)
        return findings

    def accept(self, device_id: DeviceId) -> str | None:
        """Use a device again as it is; return the concern that this accepts."""
        with self._lock:
            device = self._assessment.inventory.by_id.get(device_id)
            self._assessment = assessment.accept(self._assessment, device_id)
            self._given.pop(device_id, None)
        return None if device is None else health.concern(device)
