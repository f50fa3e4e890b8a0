"""What the quotas of root still allow this user, counted from the leases that the kernel shows.

`device_lease.take` refuses what they do not allow, so that they hold for every way to a device. A user who changes dibs
can take more; nothing here stops that.
"""

from __future__ import annotations

import os
import time

from dibs.leases import evictable_marks, holders, usage_records
from dibs.system import socket_owners
from dibs.system.lean import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dibs.leases.rules_file import RulesFile
    from dibs.model.lab_rules import Quota
    from dibs.system.locks import Folder


@record
class Bound:
    """One quota: how many devices somebody may hold at once, the devices that count, and its text for users."""

    most: int
    held: frozenset[str]
    #: What the quota says, and what of it is used; in sentences that begin with a lower-case letter.
    says: str
    used: str

    def left(self, own: Collection[str] = ()) -> int:
        """Return how many more devices it allows beside `own`, which may be among those that are held."""
        return self.most - len(self.held.union(own))

    @property
    def why(self) -> str:
        """Return why it allows no more."""
        return f"{self.says}, and {self.used}"


def holders_of(place: Folder, table: bytes | None = None) -> dict[str, set[int]]:
    """Return the users who hold each device, as far as the kernel names them."""
    found: dict[str, set[int]] = {}
    sockets = [socket for socket in holders.all_sockets(place, table) if not _is_text(socket.device)]
    # What an evictable job uses counts as nobody's share.
    marks = evictable_marks.marked(place, {socket.device for socket in sockets}, table)
    for socket in sockets:
        uid = socket_owners.listener_uid(socket.name, socket.inodes)
        if uid is not None and not (socket.mib is None and marks.get(socket.device) == uid):
            found.setdefault(socket.device, set()).add(uid)
    return found


def _is_text(device: str) -> bool:
    """Return whether an id is no GPU of its own, but a text that an old tool leases, or a loan."""
    return device.startswith(("text-", evictable_marks.LOAN)) or device.isdecimal()


def bounds(place: Folder, rules: RulesFile, table: bytes | None = None) -> list[Bound]:
    """Return the quotas of this user and of the groups the user is in; none: no limit."""
    now, me = rules.now(), os.geteuid()
    if not now.has_quotas:
        return []
    who = rules.person(me)
    own, shared = now.quota(who), now.shared_quotas(who)
    limits = [quota for quota in (own, *shared.values()) if _counts(quota)]
    if not limits:
        return []
    held = holders_of(place, table)
    found = _bounds_of(place, own, "your quota is", "you hold", "you used", held, [me])
    for group, quota in shared.items():
        if _counts(quota):
            members = [uid for uid in _people(place, held) if group in rules.person(uid).groups]
            names = f"the quota of group {group} is", "its members hold", "its members used"
            found += _bounds_of(place, quota, *names, held, members)
    return found


def _counts(quota: Quota) -> bool:
    return quota.gpus is not None or quota.gpu_hours_per_week is not None


def _people(place: Folder, held: dict[str, set[int]]) -> set[int]:
    return {os.geteuid(), *usage_records.recorded_users(place), *(uid for uids in held.values() for uid in uids)}


def _bounds_of(
    place: Folder, quota: Quota, says: str, hold: str, used: str, held: dict[str, set[int]], uids: Collection[int]
) -> list[Bound]:
    theirs = frozenset(device for device, who in held.items() if not who.isdisjoint(uids))
    found = []
    if quota.gpus is not None:
        plural = "" if quota.gpus == 1 else "s"
        found.append(Bound(quota.gpus, theirs, f"{says} {quota.gpus} GPU{plural} at once", f"{hold} {len(theirs)}"))
    if quota.gpu_hours_per_week is not None:
        hours = hours_in_week(place, uids)
        if hours >= quota.gpu_hours_per_week:
            text = f"{says} {quota.gpu_hours_per_week:g} GPU-hours in 7 days"
            # Running jobs continue; nothing new starts.
            found.append(Bound(0, theirs, text, f"{used} {hours:.1f}"))
    return found


def hours_in_week(place: Folder, uids: Iterable[int]) -> float:
    """Return the hours that users had devices today and on the six days before."""
    wall_s = time.time()
    days = usage_records.days_of_users(place, uids, wall_s)
    return sum(usage_records.in_week_s(each, wall_s) for each in days.values()) / 3600


def refusal(place: Folder, devices: Collection[str], rules: RulesFile) -> str | None:
    """Return why this user may not take these devices too; None: nothing forbids it."""
    if all(map(_is_text, devices)):
        return None
    for bound in bounds(place, rules):
        if bound.left(devices) < 0 and not bound.held.issuperset(devices):
            return bound.why
    return None
