"""The GPUs by their numbers: which lease each number means, and who has it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dibs.errors import MachineError
from dibs.leases import device_lease, holders
from dibs.model import devices
from dibs_compat import ids
from dibs_compat.schedule import state_file
from dibs_compat.schedule.state_file import Entries

#: How many GPUs the old tool takes for granted.
USUAL = 4


@dataclass(frozen=True)
class Gpus:
    """The devices of this machine as the old tool counts them: from 0, whether they exist or not."""

    inventory: devices.Inventory
    place: device_lease.Folder

    def usual_count(self) -> int:
        """Return how many GPUs a new state file has: four, unless we know that there are fewer."""
        return min(USUAL, len(self.inventory.devices) or USUAL)

    def device(self, number: int) -> str:
        """Return what is leased for a number: the device with that index, or the number itself where there is none."""
        found = self._find(number)
        return str(number) if found is None else found.id

    def fault(self, number: int) -> str | None:
        """Return why nothing may be started on it, None when something may."""
        found = self._find(number)
        if found is not None:
            return found.fault
        # A number that a restriction hides is still a device: leased as a mere number it could be used twice.
        is_hidden = bool(self.inventory.devices) and self.inventory.restriction is not None
        return f"left out by {self.inventory.restriction}" if is_hidden else None

    def _find(self, number: int) -> devices.Device | None:
        return next((device for device in self.inventory.devices if device.index == number), None)

    def held(self, numbers: Iterable[int]) -> set[int]:
        """Return the numbers of all leased GPUs."""
        wanted = list(numbers)
        taken = holders.held(self.place, [self.device(number) for number in wanted])
        return {number for number in wanted if self.device(number) in taken}

    def holders(self, numbers: Iterable[int]) -> dict[int, holders.Holder]:
        """Return who holds each of the numbers that anybody holds."""
        wanted = list(numbers)
        found = holders.survey(self.place, [self.device(number) for number in wanted])
        return {number: who[0] for number in wanted if (who := found[self.device(number)])}

    def swept(self, entries: Entries, own: Collection[int] = ()) -> Entries:
        """Return the entries without the tasks that are gone; leases of `own` numbers are ours and prove nothing."""
        held = self.held(range(len(entries))).difference(own)
        return tuple(
            state_file.FREE
            if entry.task_pid is not None and number not in held and not state_file.is_alive(entry)
            else entry
            for number, entry in enumerate(entries)
        )

    def shut(self, entries: Entries) -> dict[int, state_file.Entry]:
        """Return what keeps numbers from us that no lease tells: set aside by hand, or used by the old tool."""
        held = self.held(range(len(entries)))
        return {number: entry for number, entry in enumerate(entries) if not entry.avail and number not in held}


def load() -> Gpus:
    """Look at the devices of this machine and at the place of their leases."""
    inventory = ids.inventory()
    if inventory.problem and not inventory.devices:
        raise MachineError(inventory.problem)
    return Gpus(inventory, device_lease.folder())


def environ(numbers: Sequence[int]) -> dict[str, str]:
    """Return the variables that tell a task its GPUs, as both old tools name them."""
    env = {"GPU": ",".join(f"cuda{number}" for number in numbers)}
    if os.environ.get("DIBS_COMPAT_VISIBLE") != "keep":
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, numbers))
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return env
