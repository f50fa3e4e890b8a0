"""Devices and the inventory: the GPUs of this machine as last read, as plain values.

`probe` reads them and `leases` knows who holds them; this module never queries the machine.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import NewType

DeviceId = NewType("DeviceId", str)

#: The compute modes that administrators set with `nvidia-smi -c`: any process, one process at a time, none.
DEFAULT, EXCLUSIVE, PROHIBITED = "default", "exclusive-process", "prohibited"


@dataclass(frozen=True)
class Process:
    """A process that the driver reports on a device."""

    pid: int
    user: str | None = None
    name: str | None = None
    #: Bytes on the device; None where the driver does not report it.
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Closure:
    """A time from which on a device is kept for somebody else, or for another job of ours; wall-clock milliseconds."""

    at: int
    #: When we may use it again.
    until: int
    #: For whom it is kept, as text.
    why: str
    #: How long a job without a time limit is expected to run, in seconds.
    assumed_s: float = 86400.0
    #: The time for which it is judged.
    now: int = field(default=0, compare=False)

    @property
    def is_on(self) -> bool:
        """Tell whether the device is kept now."""
        return self.at <= self.now < self.until

    def blocks(self, limit_s: float | None) -> bool:
        """Tell whether a job that starts now would not have ended by then."""
        return self.now < self.until and self.now + (limit_s or self.assumed_s) * 1000 > self.at


@dataclass(frozen=True)
class Device:
    """One GPU (or pretend GPU) as last read. None means that the driver does not report the value."""

    id: DeviceId
    index: int
    name: str
    memory_total: int | None = None
    memory_used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    processes: tuple[Process, ...] = ()
    #: Why nothing may start on it (lost, reset required, ...); None if healthy.
    fault: str | None = None
    #: Who drained it and why ("drained by root: fan"); None if not drained.
    drained: str | None = None
    #: Who uses it without a lease, as text, if that use is enough to keep jobs away; None otherwise.
    foreign: str | None = None
    #: Bytes used by processes without a lease; subtracted from the available memory.
    foreign_memory: int = 0
    #: What has not been released yet since its last lease ended, as text; None if everything has.
    settling: str | None = None
    #: Current power draw and power limit in watts.
    power: float | None = None
    power_limit: float | None = None
    #: Uncorrectable memory errors since the driver was loaded.
    ecc_errors: int | None = None
    #: PCI address ("00000000:07:00.0") and NUMA node.
    pci: str | None = None
    numa: int | None = None
    #: The GPU of which this device is a MIG slice.
    parent: str | None = None
    #: nvidia, amd or intel: decides which environment variable selects the device.
    vendor: str = "nvidia"
    #: A health concern about a device that still works, as text; a user may accept it.
    worry: str | None = None
    #: Which processes the driver lets compute on it, independent of dibs; None where the driver does not report it.
    compute_mode: str | None = None
    #: The next reservation that keeps it from us; None if there is none.
    closure: Closure | None = None

    @property
    def obstacle(self) -> str | None:
        """Return why nothing may start on it; None if something may."""
        return self.obstacle_to(ignores_foreign=False)

    def obstacle_to(self, *, ignores_foreign: bool) -> str | None:
        """Return why a job that does or does not tolerate foreign use may not start on it; None if it may."""
        is_minded = not ignores_foreign or self.compute_mode == EXCLUSIVE
        reserved = self.closure.why if self.closure is not None and self.closure.is_on else None
        return self.fault or self.drained or reserved or self.settling or (self.foreign if is_minded else None)


@dataclass(frozen=True)
class Inventory:
    """All usable devices in index order, and how they were found."""

    devices: tuple[Device, ...] = ()
    #: What hides devices from dibs, as text for `status` ("DIBS_DEVICES=0,1"); None if nothing does.
    restriction: str | None = None
    #: Why the devices could not be read; None if they could. `devices` then holds the last known ones.
    problem: str | None = None
    #: False until the driver first answers: no request may be refused as impossible before that.
    is_known: bool = True
    #: How closely each pair of devices is connected, in both orders: 0 across sockets, higher is closer, NVLink
    #: highest.
    closeness: Mapping[tuple[DeviceId, DeviceId], int] = field(default_factory=dict, repr=False)
    by_id: dict[DeviceId, Device] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {device.id: device for device in self.devices})

    @property
    def ids(self) -> tuple[DeviceId, ...]:
        """Return the ids of all devices in index order."""
        return tuple(device.id for device in self.devices)

    def usable(self, *, ignores_foreign: bool = False) -> tuple[DeviceId, ...]:
        """Return the ids of the devices on which something may start; none while the devices cannot be read."""
        if self.problem is not None:
            return ()
        return tuple(d.id for d in self.devices if d.obstacle_to(ignores_foreign=ignores_foreign) is None)

    def index_of(self, device_id: DeviceId) -> int | None:
        """Return the index of a device, or None if it has vanished."""
        device = self.by_id.get(device_id)
        return None if device is None else device.index


def with_drained(inventory: Inventory, drained: Mapping[str, str]) -> Inventory:
    """Return the inventory with drained devices marked; the same object if none is drained."""
    return _marked(inventory, drained, lambda device: replace(device, drained=drained.get(device.id)))


def with_faults(inventory: Inventory, faults: Mapping[DeviceId, str]) -> Inventory:
    """Return the inventory with more faults; the same object if there are none."""
    return _marked(inventory, faults, lambda device: replace(device, fault=device.fault or faults.get(device.id)))


def with_closures(inventory: Inventory, closures: Mapping[DeviceId, Closure]) -> Inventory:
    """Return the inventory with reservations of devices; the same object if there are none."""
    return _marked(inventory, closures, lambda device: replace(device, closure=closures.get(device.id)))


def _marked(inventory: Inventory, found: Sized, mark: Callable[[Device], Device]) -> Inventory:
    return replace(inventory, devices=tuple(map(mark, inventory.devices))) if found else inventory


def at(inventory: Inventory, now: int) -> Inventory:
    """Return the inventory as its reservations make it at another time."""
    closures = {d.id: replace(d.closure, now=now) for d in inventory.devices if d.closure is not None}
    return with_closures(inventory, closures)


class UnknownDevice(ValueError):
    """A word names no device of the inventory, or more than one."""


def find(inventory: Inventory, word: str) -> DeviceId:
    """Return the device that `word` names: an index, a full id, or a prefix that fits only one id."""
    if word.isascii() and word.isdigit():
        hits = [device.id for device in inventory.devices if str(device.index) == (word.lstrip("0") or "0")]
    else:
        hits = [device.id for device in inventory.devices if device.id == word] or [
            device.id for device in inventory.devices if word and device.id.lower().startswith(word.lower())
        ]
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise UnknownDevice(f'"{word}" fits {len(hits)} GPUs ({", ".join(hits)})')
    known = ", ".join(f"{device.index}" for device in inventory.devices) or "none"
    raise UnknownDevice(f'there is no GPU "{word}" (this machine has: {known})')


def find_all(inventory: Inventory, words: Iterable[str]) -> tuple[DeviceId, ...]:
    """Return the devices that `words` name, in that order, without duplicates."""
    return tuple(dict.fromkeys(find(inventory, word) for word in words))


def of_type(inventory: Inventory, pattern: str) -> tuple[DeviceId, ...]:
    """Return the devices whose product name contains a match of the glob `pattern`, ignoring case.

    A partial match is enough because users omit the leading "NVIDIA" and the trailing "-SXM4-80GB". A literal match is
    tried too, because the brackets in a copied name are special in a glob.
    """
    wanted = pattern.lower()
    literal = tuple(d.id for d in inventory.devices if wanted in d.name.lower())
    return literal or tuple(d.id for d in inventory.devices if fnmatch.fnmatchcase(d.name.lower(), f"*{wanted}*"))


def pretend(count: int, memory_bytes: int) -> tuple[Device, ...]:
    """Return `count` pretend GPUs, `FAKE-0`, `FAKE-1`, ..."""
    return tuple(
        Device(DeviceId(f"FAKE-{n}"), n, "Pretend GPU", memory_bytes, memory_used=0, utilization=0)
        for n in range(count)
    )


def named(numbers: Sequence[int]) -> tuple[Device, ...]:
    """Return the Intel GPUs with these numbers; nothing else is known about them."""
    return tuple(Device(DeviceId(f"INTEL-{n}"), n, "Intel GPU", vendor="intel") for n in numbers)


def indices(inventory: Inventory, ids: Sequence[DeviceId]) -> tuple[int, ...]:
    """Return the indices of those devices in `ids` that still exist."""
    found = [inventory.index_of(device_id) for device_id in ids] if ids else ()
    return tuple(index for index in found if index is not None)
