"""Decide who may take which devices: a bipartite matching that serves requests ahead first.

The daemon's plan and every foreground command use it.

Lean.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    Want = tuple[int, Collection[str]]


def choose(count: int, wanted: Sequence[str], free: Collection[str], ahead: Sequence[Want]) -> tuple[str, ...] | None:
    """Return `count` free devices of `wanted`, best first, that nobody ahead could use; None if there are not enough.

    Each of `ahead` is (count, devices) and takes what it can get, in order. An augmenting path takes a device from a
    want only if it finds another one for it, so requests ahead lose nothing; they may only be moved to another device.
    """
    owner: dict[str, int] = {}
    slots: list[Sequence[str]] = []

    def seat(slot: int, seen: set[str]) -> bool:
        """Assign a device to `slot`; move others to a different device if needed."""
        for device in slots[slot]:
            if device in seen:
                continue
            seen.add(device)
            if device not in owner or seat(owner[device], seen):
                owner[device] = slot
                return True
        return False

    for many, devices in ahead:
        usable = [device for device in sorted(devices) if device in free]
        for _ in range(min(many, len(usable))):
            slots.append(usable)
            seat(len(slots) - 1, set())
    first_of_mine = len(slots)
    mine = [device for device in wanted if device in free]
    for _ in range(count):
        slots.append(mine)
        if not seat(len(slots) - 1, set()):
            return None
    taken = {device for device, slot in owner.items() if slot >= first_of_mine}
    return tuple(device for device in mine if device in taken)
