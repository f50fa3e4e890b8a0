"""Make a reservation: choose its GPUs, and refuse in words what conflicts with others or exceeds the bounds."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass

from dibs.errors import Conflict, Impossible, NotAllowed, NotFound, UserError
from dibs.leases import holders, reservations, rules_file
from dibs.leases.reservations import Reservation
from dibs.model import units
from dibs.model.devices import DeviceId, Inventory
from dibs.scheduling import capacity, choice
from dibs.scheduling.choice import Terms
from dibs.system.locks import Folder

#: How far ahead repeated reservations are compared, in seconds; and the most times of one that are.
COMPARED_S, MOST_TIMES = 35 * 86400.0, 40


@dataclass(frozen=True, slots=True)
class Wanted:
    """A reservation as it is asked for. Times are seconds since 1970."""

    count: int
    from_s: float
    for_s: float
    #: Only these GPUs; empty: any.
    devices: tuple[DeviceId, ...] = ()
    user: str | None = None
    every: str = ""
    name: str = ""


def make(place: Folder, inventory: Inventory, wanted: Wanted, now_s: float) -> Reservation:
    """Write a reservation and return it; raise an error that says what is in the way."""
    uid = uid_of(wanted.user)
    _check_bounds(wanted, now_s)
    reservations.remove_ended(place, now_s)
    known = reservations.read_all(place, now_s)
    _check_number([one for one in known if one.owner == os.geteuid()])
    draft = Reservation(0, os.geteuid(), uid, (), wanted.from_s, wanted.for_s, wanted.every, wanted.name, now_s)
    others = [one for one in known if overlaps(one, draft, now_s)]
    _check_quota(place, inventory, wanted, [one for one in others if one.owner == os.geteuid()])
    draft.devices = _choose(place, inventory, wanted, others, now_s)
    draft.number = reservations.make(place, draft)
    return draft


def uid_of(user: str | None) -> int:
    """Return whose reservation is meant; only root has to do with those of somebody else."""
    if user is None:
        return os.geteuid()
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise NotFound(f'there is no user "{user}" on this machine.') from None
    if uid != os.geteuid() and os.geteuid() != 0:
        raise NotAllowed(f"only root reserves for somebody else, here {user}.", "Leave --user out.")
    return uid


def _check_bounds(wanted: Wanted, now_s: float) -> None:
    """Refuse what no user may reserve; root may reserve for any time."""
    if os.geteuid() == 0:
        return
    if wanted.for_s > reservations.LONGEST_S:
        asked, most = units.write_duration(wanted.for_s), f"{reservations.LONGEST_S / 3600:g} hours"
        raise Impossible(f"--for {asked}: a user's reservation lasts {most} at most.", "Root may reserve for longer.")
    if wanted.from_s > now_s + reservations.AHEAD_S:
        most = f"{reservations.AHEAD_S / 86400:g} days"
        raise Impossible(f"--from: a user reserves {most} ahead at most.", "Root may reserve further ahead.")


def _check_number(own: Sequence[Reservation]) -> None:
    """Refuse a reservation that readers would not count."""
    if os.geteuid() != 0 and len(own) >= reservations.MOST_OF_USER:
        ids = ", ".join(str(one.number) for one in own)
        raise Impossible(
            f"you have {len(own)} reservations ({ids}), and a user may have {reservations.MOST_OF_USER}.",
            "Cancel one: `dibs reserve cancel ID`.",
        )


def overlaps(one: Reservation, other: Reservation, now_s: float) -> bool:
    """Return whether two reservations are for the same time at some time."""
    theirs = windows(other, now_s)
    return any(begin < end2 and begin2 < end for begin, end in windows(one, now_s) for begin2, end2 in theirs)


def windows(one: Reservation, now_s: float) -> list[tuple[float, float]]:
    """Return the times of a reservation in the weeks to come."""
    found: list[tuple[float, float]] = []
    at_s = now_s
    while len(found) < MOST_TIMES and (window := one.window(at_s)) is not None and window[0] < now_s + COMPARED_S:
        found.append(window)
        at_s = window[1]
        if not one.every:
            break
    return found


def _check_quota(place: Folder, inventory: Inventory, wanted: Wanted, own: Sequence[Reservation]) -> None:
    """Refuse more GPUs than a user may reserve at once: by default half of the machine."""
    if os.geteuid() == 0:
        return
    rules = rules_file.rules_of_folder(place).now()
    quota = rules.quota(rules_file.person(os.geteuid(), rules.names_groups)).reserve_gpus
    most = (len(inventory.devices) + 1) // 2 if quota is None else quota
    taken = {device for one in own for device in one.devices}
    if len(taken) + wanted.count > most:
        beside = f" beside {units.count_gpus(len(taken))} that you have reserved for that time" if taken else ""
        raise Impossible(
            f"you may reserve {units.count_gpus(most)} at once, not {wanted.count}{beside}.",
            "Root sets reserve_gpus in [quotas] of /etc/dibs/config.toml.",
        )


def _choose(
    place: Folder, inventory: Inventory, wanted: Wanted, others: Sequence[Reservation], now_s: float
) -> tuple[str, ...]:
    """Return the GPUs to reserve: free ones first, the best connected."""
    able = [device for device in wanted.devices or inventory.ids if inventory.by_id[device].fault is None]
    if len(able) < wanted.count:
        kind = " of them" if wanted.devices else ""
        raise Impossible(f"{units.count_gpus(wanted.count)} are requested; this machine has {len(able)}{kind}.")
    taken = {device: one for one in others for device in one.devices}
    left = [device for device in able if device not in taken]
    if len(left) < wanted.count:
        raise Conflict(
            f"{units.count_gpus(len(left))} of {len(able)} can be reserved for that time: {_told(others, now_s)}.",
            "`dibs reserve list` shows all. Choose another time or fewer GPUs.",
        )
    held = holders.held(place, left)
    ordered = sorted(left, key=lambda device: device in held)
    free = [device for device in ordered if device not in held]
    pool = free if len(free) >= wanted.count else ordered
    rooms = dict.fromkeys(pool, capacity.WHOLE)
    chosen = choice.choose(wanted.count, pool, rooms, (), Terms(closeness=inventory.closeness))
    assert chosen is not None
    return tuple(sorted(chosen, key=inventory.ids.index))


def _told(others: Sequence[Reservation], now_s: float) -> str:
    """Describe reservations that are in the way."""
    told = []
    for one in others:
        begin, end = one.window(now_s) or (one.from_s, one.from_s + one.for_s)
        span = f"{reservations.moment(begin)} to {reservations.moment(end)}"
        told.append(f"{one.user} has {units.count_gpus(len(one.devices))} from {span}")
    return "; ".join(told)


def find(place: Folder, number: int, now_s: float, user: str | None = None) -> Reservation:
    """Return a reservation that we may cancel, only of `user` if one is named; raise an error otherwise."""
    found = [one for one in reservations.read_all(place, now_s) if one.number == number]
    if user is not None:
        uid = uid_of(user)
        found = [one for one in found if one.uid == uid]
    mine = [one for one in found if os.geteuid() in (one.owner, 0)]
    if len(mine) > 1:
        # Only for root: after a reboot, or if somebody chose the number by hand.
        names = " and ".join(sorted(one.user for one in mine))
        raise Conflict(f"{len(mine)} reservations have the number {number}, of {names}.", "Add --user.")
    if mine:
        return mine[0]
    if found:
        raise NotAllowed(f"reservation {number} is {found[0].user}'s.", "Its owner or root can cancel it.")
    raise NotFound(f"there is no reservation {number}.", "See `dibs reserve list`.")


def check_count(count: int) -> int:
    """Refuse a reservation of nothing."""
    if count < 1:
        raise UserError(f"reserve expected at least one GPU, got --gpus {count}.")
    return count
