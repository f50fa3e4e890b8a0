"""The kinds of slots: on devices chosen from a set, listed one by one, and on shares of devices."""

from __future__ import annotations

from dibs.foreground.slots import RETRY_S, Slot, Slots, move_up
from dibs.leases import device_lease, holders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from dibs.foreground.slots import LeaseOptions
    from dibs.leases.device_lease import Lease


class ChosenSlots(Slots):
    """A fixed number of devices per command, chosen from a set, with room for `per_device` commands on them."""

    def __init__(
        self,
        how: LeaseOptions,
        count: int,
        devices: Sequence[str],
        per_device: int,
        label: Callable[[Sequence[str]], str],
    ) -> None:
        super().__init__(how)
        self._count = count
        self._devices = devices
        self._per_device = per_device
        self._label = label

    def take(self, now: float) -> Slot | None:
        """Return a slot on idle devices, else on new ones, else beside another command; else wait in the line."""
        slot = self._reuse(now, is_empty=True)
        if slot is None and now >= self._ask_at and (others := self._others()):
            if self._try(self._count, others, now):
                slot = self._reuse(now, is_empty=True)
            else:
                self._refused(now)
        if slot is None:
            slot = self._reuse(now, is_empty=False)
        if slot is None and (others := self._others()) and self._stand(self._count, others, now):
            slot = self._reuse(now, is_empty=True)
        return slot

    def _reuse(self, now: float, *, is_empty: bool) -> Slot | None:
        """Return a free slot on devices that we hold: idle ones if `is_empty`, else only those where a command runs."""
        for slot in reversed(self._idle):
            # Releasing a device also removed the other slots of its group.
            if slot not in self._idle or is_empty is not (self._kept[slot.devices[0]].running == 0):
                continue
            if self._may_use(slot.devices):
                self._idle.remove(slot)
                return self._use(slot, now)
        return None

    def _others(self) -> list[str]:
        """Return the devices that we could still lease; none if they are too few."""
        others = [device for device in self._devices if device not in self._kept]
        is_enough = len(others) >= self._count and self._etiquette.has_room(len(self._kept), self._count)
        return others if is_enough else []

    def _keep(self, taken: Iterable[Lease], now: float) -> None:
        leased = list(taken)
        super()._keep(leased, now)
        names = {lease.device for lease in leased}
        devices = [device for device in self._devices if device in names]
        self._idle += [Slot(devices, self._label(devices)) for _ in range(self._per_device)]

    def _dropped(self, devices: Collection[str]) -> None:
        gone = {device for slot in self._idle if not set(slot.devices) <= set(self._kept) for device in slot.devices}
        self._idle = [slot for slot in self._idle if set(slot.devices) <= set(self._kept)]
        # Devices are taken and released together: a single one would wait for the rest and block others.
        self._release(device for device in gone & set(self._kept) if not self._kept[device].running)


class FixedSlots(Slots):
    """Slots that are listed one by one; the last one is used first. Slots may overlap.

    They may have no device, or devices in `granted`: leased for us before we started.
    """

    def __init__(self, how: LeaseOptions, slots: Sequence[Slot], granted: Collection[str] = ()) -> None:
        super().__init__(how)
        self._idle = list(slots)
        self._granted = frozenset(granted)

    def take(self, now: float) -> Slot | None:
        """Return the last free slot whose devices we hold or can lease now; if there is none, wait in the line."""
        slot = self._find(now)
        if slot is None and self._stand_for_any(now):
            slot = self._find(now)
        return slot

    def _find(self, now: float) -> Slot | None:
        is_asking, is_refused = now >= self._ask_at, False
        for at in range(len(self._idle) - 1, -1, -1):
            slot = self._idle[at]
            if not self._may_use([device for device in slot.devices if device in self._kept]):
                continue
            missing = self._missing(slot)
            if not missing or (is_asking and self._try(len(missing), missing, now)):
                del self._idle[at]
                if is_refused:
                    self._refused(now)
                return self._use(slot, now)
            is_refused = is_asking
        return None

    def _missing(self, slot: Slot) -> list[str]:
        return [device for device in slot.devices if device not in self._kept and device not in self._granted]

    def _stand_for_any(self, now: float) -> bool:
        """Wait in the line for any one device if each free slot lacks exactly one, else for those of the first slot."""
        lacking = [missing for slot in reversed(self._idle) if (missing := self._missing(slot))]
        if not lacking:
            return False
        if all(len(missing) == 1 for missing in lacking):
            return self._stand(1, tuple(dict.fromkeys(missing[0] for missing in lacking)), now)
        return self._stand(len(lacking[0]), lacking[0], now)


class SharedSlots(Slots):
    """A share of several devices per command, leased when it starts and released when it ends."""

    def __init__(
        self, how: LeaseOptions, count: int, devices: Sequence[str], label: Callable[[Sequence[str]], str]
    ) -> None:
        super().__init__(how)
        self._count = count
        self._devices = devices
        self._label = label
        self._shares: dict[Slot, list[Lease]] = {}

    def take(self, now: float) -> Slot | None:
        """Return a slot on devices that have room for one more command, else wait in the line."""
        if (self._waiter.has_ticket or self._is_held_back) and now < self._ask_at:
            return None
        wanted = self._polite()
        self._is_held_back = len(wanted) < self._count
        if self._is_held_back:
            self._hold_back(now)
            return None
        got = self._waiter.ask(self._count, wanted)
        if got is None:
            if not self._shares:
                self._waiter.check_left(self._count, wanted)
            is_choosy = len(wanted) < len(self._devices)
            # No event wakes us for devices that we skip to keep them free.
            self._ask_at = now + (min(RETRY_S, self._waiter.sleep_s) if is_choosy else self._waiter.sleep_s)
            return None
        for lease in got:
            move_up(lease)
        names = {lease.device for lease in got}
        devices = [device for device in self._devices if device in names]
        slot = Slot(devices, self._label(devices))
        self._shares[slot] = got
        return slot

    def _polite(self) -> Sequence[str]:
        """Return the devices of which we may take a share: sharing a device in use takes nothing from others."""
        devices = self._devices
        mine = {device for slot in self._shares for device in slot.devices}
        if not self._etiquette.has_room(len(mine), self._count):
            devices = [device for device in devices if device in mine]
        if not self._etiquette.leaves_enough(self._place, self._count):
            in_use = holders.held(self._place, devices)
            devices = [device for device in devices if device in in_use]
        return devices

    def give(self, slot: Slot, now: float) -> None:
        """Release the shares of a command that has ended."""
        device_lease.release(self._place, self._shares.pop(slot))
        # The next command may need the share that was released.
        self._ask_at = now

    def inherited(self, slot: Slot) -> list[int]:
        """Return the descriptors through which a command holds its shares itself, even if we are killed."""
        return [fd for lease in self._shares[slot] for fd in lease.fds()]

    def close(self) -> None:
        """Release all leases and shares."""
        super().close()
        for slot in list(self._shares):
            self.give(slot, 0.0)
