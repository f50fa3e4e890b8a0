"""The GPUs of this machine when the driver last showed them, kept in the store.

A machine that had GPUs and shows none has lost its driver or its library. Jobs for GPUs wait then; without this memory
a new daemon would take it for a machine without GPUs and run them without.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from dibs.model.devices import Device, DeviceId, Inventory

#: The name of the fact in the store.
FACT = "gpus_seen"
#: What identifies a device; everything else about it was true only then.
KEPT = ("id", "index", "name", "memory_total", "pci", "parent", "vendor")


@dataclass(frozen=True)
class LastSeen:
    """Devices, and when they were seen, in wall-clock milliseconds."""

    devices: tuple[Device, ...]
    at: int

    @property
    def ids(self) -> tuple[DeviceId, ...]:
        """Return the ids of the devices."""
        return Inventory(self.devices).ids


def write(seen: LastSeen, machine: str) -> str:
    """Return the text that the store keeps."""
    devices = [{key: getattr(device, key) for key in KEPT} for device in seen.devices]
    return json.dumps({"machine": machine, "at": seen.at, "devices": devices})


def read(text: str | None, machine: str) -> LastSeen | None:
    """Return what the store kept; None if that is nothing, or about another machine."""
    kept = {} if text is None else json.loads(text)
    if kept.get("machine") != machine:
        return None
    devices = tuple(Device(**{key: given[key] for key in KEPT}) for given in kept["devices"])
    return LastSeen(devices, kept["at"])


def absence(seen: LastSeen, why: str | None, now: int) -> str:
    """Describe that none of the devices is visible any more; `why` is the driver's message."""
    then, today = time.localtime(seen.at / 1000), time.localtime(now / 1000)
    until = time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
    return f"no GPU is visible; this machine had {len(seen.devices)} until {until} (driver: {why or 'shows none'})"
