"""Devices and the inventory: the GPUs of this machine as last seen, as plain values.

How they are found is `probe`'s business, who holds them `leases`'s; nothing here asks the machine.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NewType

DeviceId = NewType("DeviceId", str)

#: The compute modes that administrators may set with `nvidia-smi -c`: anybody, one process at a time, nobody.
DEFAULT, EXCLUSIVE, PROHIBITED = "default", "exclusive-process", "prohibited"


@dataclass(frozen=True)
class Process:
    """A process that the driver reports on a device."""

    pid: int
    user: str | None = None
    name: str | None = None
    #: Bytes on the device; None where the driver does not tell.
    memory: int | None = None


@dataclass(frozen=True)
class Device:
    """One GPU (or pretend GPU) as last seen. None means that the driver does not tell."""

    id: DeviceId
    index: int
    name: str
    memory_total: int | None = None
    memory_used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    processes: tuple[Process, ...] = ()
    #: Why nothing may be started on it (lost, reset required, ...); None when it is well.
    fault: str | None = None
    #: By whom it was drained, and why ("drained by root: fan"); None when it was not.
    drained: str | None = None
    #: Who uses it without a lease, in words, where that is enough to keep others away; None when nobody does.
    foreign: str | None = None
    #: Bytes on it of processes that hold no lease of it; what is left is less by that.
    foreign_memory: int = 0
    #: What is still to come back after its last lease ended, in words; None when all has.
    settling: str | None = None
    #: Watts, and how many it may draw.
    power: float | None = None
    power_limit: float | None = None
    #: Memory errors since the driver was loaded that could not be corrected.
    ecc_errors: int | None = None
    #: Where it is plugged in ("00000000:07:00.0"), and the node of memory it is next to.
    pci: str | None = None
    numa: int | None = None
    #: The card of which it is a MIG slice.
    parent: str | None = None
    #: nvidia, amd or intel: which variable names it to a program.
    vendor: str = "nvidia"
    #: What speaks against it though it still works, in words; somebody may accept that.
    worry: str | None = None
    #: Who may compute on it, whatever dibs says; None where the driver does not tell.
    compute_mode: str | None = None

    @property
    def obstacle(self) -> str | None:
        """Return why nothing may be started on it; None if something may."""
        return self.obstacle_to(ignores_foreign=False)

    def obstacle_to(self, *, ignores_foreign: bool) -> str | None:
        """Return why a job may not be started on it that does or does not mind who else uses it."""
        is_minded = not ignores_foreign or self.compute_mode == EXCLUSIVE
        return self.fault or self.drained or self.settling or (self.foreign if is_minded else None)


@dataclass(frozen=True)
class Inventory:
    """All devices that may be used, in index order, and what is worth saying about how they were found."""

    devices: tuple[Device, ...] = ()
    #: What hides devices from us, in words for `status` ("DIBS_DEVICES=0,1"); None when nothing does.
    restriction: str | None = None
    #: Why the devices could not be read; None when they could. The devices are then the last ones known.
    problem: str | None = None
    #: False until the first answer of the driver: nothing may be refused as impossible before that.
    is_known: bool = True
    #: How closely each two devices are connected, in both orders: 0 across sockets, more is closer, most is NVLink.
    closeness: Mapping[tuple[DeviceId, DeviceId], int] = field(default_factory=dict, repr=False)
    by_id: dict[DeviceId, Device] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {device.id: device for device in self.devices})

    @property
    def ids(self) -> tuple[DeviceId, ...]:
        """Return the ids of all devices in index order."""
        return tuple(device.id for device in self.devices)

    def usable(self, *, ignores_foreign: bool = False) -> tuple[DeviceId, ...]:
        """Return the ids of the devices on which something may be started; none while they cannot be read."""
        if self.problem is not None:
            return ()
        return tuple(d.id for d in self.devices if d.obstacle_to(ignores_foreign=ignores_foreign) is None)

    def index_of(self, device_id: DeviceId) -> int | None:
        """Return the index of a device, or None if it has vanished."""
        device = self.by_id.get(device_id)
        return None if device is None else device.index


def with_drained(inventory: Inventory, drained: Mapping[str, str]) -> Inventory:
    """Return the inventory with what is drained marked as such; the same one if nothing is."""
    if not drained:
        return inventory
    marked = tuple(replace(device, drained=drained.get(device.id)) for device in inventory.devices)
    return replace(inventory, devices=marked)


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
    """Return the devices that `words` name, in that order and each once."""
    return tuple(dict.fromkeys(find(inventory, word) for word in words))


def of_type(inventory: Inventory, pattern: str) -> tuple[DeviceId, ...]:
    """Return the devices of whose product name some part matches the glob `pattern`, in any case.

    A part, because nobody types the "NVIDIA" in front or the "-SXM4-80GB" behind. A name that was copied is taken as it
    is, whatever its brackets mean in a glob.
    """
    wanted = pattern.lower()
    literal = tuple(d.id for d in inventory.devices if wanted in d.name.lower())
    return literal or tuple(d.id for d in inventory.devices if fnmatch.fnmatchcase(d.name.lower(), f"*{wanted}*"))


def pretend(count: int, memory_bytes: int) -> tuple[Device, ...]:
    """Return `count` pretend GPUs, `FAKE-0` and on."""
    return tuple(
        Device(DeviceId(f"FAKE-{n}"), n, "Pretend GPU", memory_bytes, memory_used=0, utilization=0)
        for n in range(count)
    )


def named(numbers: Sequence[int]) -> tuple[Device, ...]:
    """Return the Intel GPUs of these numbers, of which nothing else is known."""
    return tuple(Device(DeviceId(f"INTEL-{n}"), n, "Intel GPU", vendor="intel") for n in numbers)


def indices(inventory: Inventory, ids: Sequence[DeviceId]) -> tuple[int, ...]:
    """Return the indices of the devices in `ids` that are still there."""
    found = [inventory.index_of(device_id) for device_id in ids] if ids else ()
    return tuple(index for index in found if index is not None)
