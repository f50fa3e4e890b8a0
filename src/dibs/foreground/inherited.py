"""Devices that are already leased for us: by the runner of our job, by `dibs lease`, or by a pipe above us.

Queueing for devices that we already hold would deadlock.

Apart: Its tests need real processes above ours.
"""

from __future__ import annotations

import os

from dibs.leases import holders, keeper
from dibs.system import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.leases.holders import Holder
    from dibs.model.devices import DeviceId, Inventory
    from dibs.system.locks import Folder


def devices(place: Folder, inventory: Inventory) -> list[DeviceId]:
    """Return the devices that our environment names and that we, an ancestor or its keeper hold."""
    # A pipe above us holds more devices than it gave us; without the variable it gave us none.
    told = os.environ.get("DIBS_GPU_INDICES", "").split(",")
    named = [device.id for device in inventory.devices if str(device.index) in told]
    held = holders.survey(place, named) if named else {}
    above = set(processes.lineage(os.getpid())) if named else set()
    return [device for device in named if any(_is_ours(one, above) for one in held[device])]


def _is_ours(holder: Holder, above: set[int]) -> bool:
    # A command line of another user's process proves nothing.
    if holder.pid is None or holder.uid != os.geteuid():
        return False
    held_for = keeper.read(processes.words(holder.pid))
    return holder.pid in above or (held_for is not None and held_for[0] in above)
