"""Free memory of each device for jobs that share it, now and at future times of a plan.

A job's declared memory counts from its start to its end, whatever it really uses. Use without a lease counts too.
`choice` and `planner` decide who gets the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dibs.model import devices, units
from dibs.model.devices import Device, DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.scheduling import choice
from dibs.scheduling.choice import Room

if TYPE_CHECKING:
    from dibs.scheduling.views import Active, Policy, View

#: A free device, where no device is shared.
WHOLE = choice.room(None, 1)
#: A device with an exclusive holder.
NONE = Room(0, 0, 1)

#: Why a device cannot be shared, as text.
ONE_PROCESS = (
    "cannot be shared: its compute mode is exclusive-process. "
    "Without --vram a job gets exclusive use; nvidia-smi -c 0 (root) allows sharing"
)
UNKNOWN_SIZE = "cannot be shared: the driver does not report its memory size; without --vram a job gets exclusive use"


def is_shared(view: View) -> bool:
    """Tell whether any job shares a device or wants to; otherwise memory need not be counted."""
    return (
        bool(view.sharers)
        or any(job.request.vram for job in view.waiting)
        or any(job.mib for job in view.active)
        or any(other.mib for other in view.line)
    )


def obstacle(device: Device, request: Request) -> str | None:
    """Return why this request may not start on a device, regardless of who holds it; None if it may.

    All interfaces apply this rule: an exclusive request does not get a device with foreign use, unless it ignores that;
    a sharing request subtracts the memory in foreign use.
    """
    found = device.obstacle_to(ignores_foreign=request.ignores_foreign)
    if found is None and device.closure is not None and device.closure.blocks(request.limit_s):
        found = device.closure.why
    if found is not None or not request.vram:
        return found
    if device.compute_mode == devices.EXCLUSIVE:
        return ONE_PROCESS
    if device.memory_total is None:
        return UNKNOWN_SIZE
    return f"{device.foreign}, memory use unknown" if capacity_mib(device) is None else None


def shortage(device: Device, request: Request, shares: Iterable[int] = ()) -> str | None:
    """Return why a device lacks memory for a sharing request beside `shares` (MiB) and foreign use; None if it fits."""
    left = capacity_mib(device)
    if not request.vram or left is None or request.mib + sum(shares) <= left:
        return None
    told = units.format_size(max(0, left - sum(shares)) * choice.MIB)
    return f"{told} of it left for {units.format_size(request.vram)}{f': {device.foreign}' if device.foreign else ''}"


def capacity_mib(device: Device) -> int | None:
    """Return the memory that jobs can share: all but foreign use; None if unknown."""
    if device.memory_total is None or (device.foreign and not device.foreign_memory):
        return None
    return max(0, device.memory_total - device.foreign_memory) // choice.MIB


def capacities(inventory: Inventory) -> dict[str, int]:
    """Return the memory that jobs can share of each device, where known."""
    known = {device.id: capacity_mib(device) for device in inventory.devices}
    return {device: mib for device, mib in known.items() if mib is not None}


def rooms_of_view(view: View, inventory: Inventory, policy: Policy) -> dict[DeviceId, Room]:
    """Return the free memory of each usable device without an exclusive holder."""
    shares: dict[DeviceId, list[int]] = {device: [other.mib for other in who] for device, who in view.sharers.items()}
    alone = {device for job in view.active if not job.mib for device in job.devices}.union(view.held)
    for job in view.active:
        for device in job.devices if job.mib else ():
            shares.setdefault(device, []).append(job.mib)
    return {
        device: choice.room(capacity_mib(inventory.by_id[device]), policy.most_sharers, shares.get(device, ()))
        for device in inventory.usable(ignores_foreign=True)
        if device not in alone
    }


def less(rooms: Mapping[DeviceId, Room], chosen: Iterable[DeviceId], mib: int) -> dict[DeviceId, Room]:
    """Return the free memory after a job has started on these devices and takes `mib` of each; 0: all."""
    left = dict(rooms)
    for device in chosen:
        if device in left:
            left[device] = left[device].less(mib) if mib else NONE
    return left


def beside(device: Device, staying: Sequence[Active], most: int) -> Room:
    """Return the free memory of a device beside our jobs; other users may leave at any time and count as gone."""
    if any(not job.mib for job in staying):
        return NONE
    return choice.room(capacity_mib(device), most, [job.mib for job in staying])
