"""Leased devices that show no use: since when, and by whom they are held.

A device counts as unused while every reading shows 0 % utilization and the same holders. Readings that are too far
apart say nothing about the time between them. A device that is lent to an evictable job counts as unused until another
process is on it.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dibs.model.devices import DeviceId, Inventory

#: Milliseconds between two readings after which the time starts anew.
GAP_MS = 120_000


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds a device; None: unknown."""

    uid: int | None
    pid: int | None
    #: The job, or the text of the lease.
    job: str | None = None


@dataclass(frozen=True, slots=True)
class IdleLease:
    """A leased device without use, in wall-clock milliseconds."""

    holders: tuple[LeaseHolder, ...]
    since: int
    seen_at: int

    def has_lasted(self, seconds: float) -> bool:
        """Tell whether it has been without use for this long."""
        return self.seen_at - self.since >= seconds * 1000


def advance(
    before: Mapping[DeviceId, IdleLease],
    inventory: Inventory,
    held: Mapping[DeviceId, tuple[LeaseHolder, ...]],
    now: int,
    loans: Mapping[DeviceId, Collection[int]],
) -> dict[DeviceId, IdleLease]:
    """Return the leased devices without use after a reading; `loans`: processes on lent ones that do not borrow it."""
    found = {}
    for device in inventory.devices:
        holders = held.get(device.id, ())
        is_used = bool(loans[device.id]) if device.id in loans else device.utilization != 0
        if not holders or is_used:
            continue
        last = before.get(device.id)
        is_same = last is not None and last.holders == holders and 0 <= now - last.seen_at <= GAP_MS
        found[device.id] = IdleLease(holders, last.since if last is not None and is_same else now, now)
    return found
