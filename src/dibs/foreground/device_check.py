"""A last check of devices that were just leased without a daemon.

The daemon reads the devices all the time; `pipe`, `lease` and the old tools read them when they need one. All use the
same rule (`capacity.obstacle`). A device on which nothing may be started is released, and checked again later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dibs.devices import foreign, ownership, probe
from dibs.devices.foreign import Limits
from dibs.devices.probe import Probe
from dibs.leases import device_lease, holders
from dibs.leases.holders import Holder
from dibs.model.devices import Device, DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.scheduling import capacity
from dibs.system.locks import Folder
from dibs.system.settings import Settings

#: One device, exclusively: the only request that the old tools make.
WHOLE = Request()
#: Seconds for which a reading in which a device was fine is used for the next device. A reading starts a process, and
#: devices are leased one after the other, often within milliseconds. The daemon's readings are older.
FRESH_S = 1.0


@dataclass(eq=False)
class Vet:
    """Decides which devices must not be used; calls `_say` once for each reason."""

    _probe: Probe
    _place: Folder
    _limits: Limits
    _say: Callable[[str], None]
    _request: Request
    #: Why devices cannot be used now, by id.
    reasons: dict[str, str] = field(default_factory=dict)
    #: The last reading, and until when it may be used again.
    _inventory: Inventory = field(default_factory=Inventory)
    _fresh_until: float = 0.0

    def __call__(self, devices: Sequence[str], *, is_taken: bool) -> set[str]:
        """Return the `devices` on which nothing should start now; `is_taken`: we have just leased them."""
        found = self._judge(devices, self._inventory, is_taken) if time.monotonic() < self._fresh_until else None
        if found is None or found:
            # The problem may be over: the last job of a device has just ended.
            found = self._judge(devices, self._read(), is_taken)
        for device in devices:
            why = found.get(device)
            if why is not None and self.reasons.get(device) != why:
                index = self._inventory.by_id[DeviceId(device)].index
                self._say(f"GPU {index} is not used: {why}")
        self.reasons = {device: why for device, why in self.reasons.items() if device not in devices} | found
        return set(found)

    def _read(self) -> Inventory:
        try:
            self._inventory = self._probe.read()
        finally:
            self._probe.close()
        self._fresh_until = time.monotonic() + FRESH_S
        return self._inventory

    def _judge(self, devices: Sequence[str], inventory: Inventory, is_taken: bool) -> dict[str, str]:
        """Return why devices must not be used, by id."""
        held = holders.survey(self._place, devices)
        found = {}
        for device_id in devices:
            device = inventory.by_id.get(DeviceId(device_id))
            if device is None:
                # A number or text that is not a device here: the old tools lease those too.
                continue
            others = self._others(held[device_id]) if is_taken else held[device_id]
            judged = _judged(self._place, device, others, self._limits)
            # Holders that share a device that we do not hold may end; the line waits for that.
            shares = [holder.mib or 0 for holder in others] if is_taken else ()
            why = inventory.problem or capacity.obstacle(judged, self._request)
            why = why or capacity.shortage(judged, self._request, shares)
            if why is not None:
                found[device_id] = why
        return found

    def _others(self, found: Sequence[Holder]) -> list[Holder]:
        """Return the other holders of a device that we have just leased: nothing of ours runs on it yet."""
        own = next((h for h in found if h.pid == os.getpid() and (h.mib or 0) == self._request.mib), None)
        return [holder for holder in found if holder is not own]


def check_for_request(values: Settings, say: Callable[[str], None], request: Request = WHOLE) -> Vet | None:
    """Return the check of devices for `request`; None for simulated devices."""
    eyes = Probe(values)
    if not eyes.is_real:
        return None
    return Vet(eyes, device_lease.folder(), limits_of(values), say, request)


def measured(values: Settings, place: Folder) -> Inventory:
    """Return the devices with the memory that processes without a lease use, for leases that share a device."""
    found = probe.read(values)
    held = holders.survey(place, found.ids)
    limits = limits_of(values)

    def judged(device: Device) -> Device:
        # Whether foreign use excludes a device is decided when it is leased; until then we may wait for it.
        return replace(_judged(place, device, held.get(device.id, ()), limits), foreign=None)

    return replace(found, devices=tuple(judged(device) for device in found.devices))


def _judged(place: Folder, device: Device, found: Sequence[Holder], limits: Limits) -> Device:
    users = {holder.user for holder in found}
    return foreign.with_foreign_use(device, users, limits, ownership.outside(place, device, found))


def limits_of(values: Settings) -> Limits:
    """Return the limits above which foreign use counts, from the settings."""
    return Limits(values.foreign_memory, values.foreign_process, values.foreign_ignore)
