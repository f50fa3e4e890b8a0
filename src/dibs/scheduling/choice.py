"""Sharing devices by memory: what is free on each, and which a request may take without delaying those ahead.

The daemon's plan and every foreground command use `choose`. A request with an amount (MiB) shares a device with other
such requests; one without needs the device exclusively.

Lean.
"""

from __future__ import annotations

from dibs.scheduling import topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from dibs.scheduling.topology import Closeness

    #: Keyed by device, whatever type the caller uses for its id.
    Rooms = Mapping[Any, "Room"]

MIB = 2**20
#: Default limit on the number of jobs that share a device.
MOST_SHARERS = 4


class Room:
    """What is left of a device without an exclusive holder."""

    __slots__ = ("left_mib", "places", "shared_mib", "sharers")

    def __init__(self, left_mib: float, places: int, sharers: int = 0, shared_mib: int = 0) -> None:
        self.left_mib = left_mib
        #: How many more jobs may share it.
        self.places = places
        self.sharers = sharers
        self.shared_mib = shared_mib

    def fits(self, mib: int) -> bool:
        """Tell whether `mib` more fit; 0 means exclusive use."""
        if mib == 0:
            return self.sharers == 0
        return self.places > 0 and mib <= self.left_mib

    def could_fit(self, mib: int) -> bool:
        """Tell whether `mib` would fit if all shares ended."""
        return mib <= self.left_mib + self.shared_mib

    def less(self, mib: int) -> Room:
        """Return what is left after one more share."""
        return Room(self.left_mib - mib, self.places - 1, self.sharers + 1, self.shared_mib + mib)


def room(capacity_mib: int | None, most: int, shares: Collection[int] = ()) -> Room:
    """Return what is left of a device beside `shares`. A device of unknown size can only be used exclusively."""
    if capacity_mib is None:
        return Room(float("inf"), 1) if not shares else Room(0, 0, len(shares), sum(shares))
    taken = sum(shares)
    return Room(capacity_mib - taken, most - len(shares), len(shares), taken)


class Want:
    """The devices that a request ahead in the line wants, in the order in which it waits for them to become free."""

    __slots__ = ("count", "devices", "is_emptying", "mib")

    def __init__(self, count: int, devices: Sequence[str], mib: int = 0, is_emptying: bool = True) -> None:
        self.count = count
        self.devices = devices
        self.mib = mib
        #: Whether newcomers are kept off devices that are shared now, so that they become free for this request.
        self.is_emptying = is_emptying


class Terms:
    """What a request needs of each device, and facts about the devices."""

    __slots__ = ("capacity_mib", "closeness", "first", "mib", "most", "used_at")

    def __init__(
        self,
        mib: int = 0,
        capacity_mib: Mapping[Any, int] | None = None,
        most: int = MOST_SHARERS,
        closeness: Closeness | None = None,
        first: Sequence[str] = (),
        used_at: Mapping[Any, float] | None = None,
    ) -> None:
        #: 0: exclusive use.
        self.mib = mib
        #: Memory of each device without foreign use; devices of unknown size are missing.
        self.capacity_mib = capacity_mib or {}
        self.most = most
        self.closeness = closeness or {}
        #: Devices to take before all others.
        self.first = first
        #: When each device was last taken.
        self.used_at = used_at or {}


ALONE = Terms()


def alone() -> Terms:
    """Return the terms of an exclusive request without information about the devices."""
    return ALONE


def choose(
    count: int,
    wanted: Sequence[str],
    rooms: Rooms,
    ahead: Sequence[Want],
    terms: Terms = ALONE,
    allows: Callable[[Sequence[Any]], bool] | None = None,
) -> tuple[str, ...] | None:
    """Return `count` devices of `wanted` that nobody ahead could use; None if there are not enough.

    `allows` may refuse a set of devices; it must then also refuse every larger set that contains it.

    Preference order: the first ones of `terms`, the best connected, the fullest that fits, the least recently used.
    """
    served, closed = serve(ahead, rooms)
    able = [d for d in wanted if d in rooms and d not in closed and rooms[d].fits(terms.mib)]

    def is_spare(own: Sequence[str]) -> bool:
        if allows is not None and not allows(own):
            return False
        return not ahead or serve(ahead, _taken(rooms, own, terms.mib))[0] >= served

    places = {device: place for place, device in enumerate(wanted)}
    # For one whole device the order in which they were listed is enough.
    used_at = terms.used_at if count > 1 or terms.mib else {}
    able.sort(key=lambda d: (d not in terms.first, _waste(rooms[d], terms.mib), used_at.get(d, 0), places[d]))
    chosen = topology.best(count, able, terms.first, terms.closeness, is_spare)
    # Return the devices in the order in which they were listed, because users expect 0,1,2,3.
    return None if chosen is None else tuple(sorted(chosen, key=places.__getitem__))


def _waste(room: Room, mib: int) -> float:
    """Return the memory left unused: the fullest device sorts first, so that exclusive requests find whole ones."""
    return room.left_mib - mib if mib else 0


def _taken(rooms: Rooms, own: Sequence[str], mib: int) -> dict[str, Room]:
    left = dict(rooms)
    for device in own:
        if mib:
            left[device] = rooms[device].less(mib)
        else:
            del left[device]
    return left


def nearest(devices: Sequence[str], rooms: Rooms, mib: int) -> list[str]:
    """Return devices in the order in which they are worth waiting for: the least occupied first.

    A waiting request writes them on its ticket in this order, and others keep off the first ones. The order may change
    during the wait, but only in favour of a less occupied device, and nothing new starts there.
    """

    def distance(device: str) -> tuple[float, float]:
        room = rooms.get(device)
        if room is None or not room.could_fit(mib):
            # It has an exclusive holder or too much foreign use: keeping newcomers off would not free it.
            return float("inf"), 0
        if mib == 0:
            return room.sharers, room.shared_mib
        return max(0, mib - room.left_mib), room.sharers

    return sorted(devices, key=distance)


def serve(ahead: Sequence[Want], rooms: Rooms) -> tuple[list[int], set[str]]:
    """Return how many devices each request ahead can have now, in order, and which are kept clear for the rest.

    A request that cannot be fully served keeps newcomers off as many devices as it lacks: the first on its list that
    are shared now and would suffice once empty.
    """
    seats = _Seats(rooms)
    closed: set[str] = set()
    served = []
    for want in ahead:
        got = 0
        # If one attempt finds no seat, the next finds none either.
        while got < want.count and seats.add(want, closed):
            got += 1
        served.append(got)
        if want.is_emptying and got < want.count:
            hopeful = [d for d in want.devices if d in rooms and d not in closed and _is_emptied(rooms[d], want.mib)]
            closed.update(hopeful[: want.count - got])
    return served, closed


def _is_emptied(room: Room, mib: int) -> bool:
    return not room.fits(mib) and room.could_fit(mib)


class _Seats:
    """An assignment of devices to the requests ahead. A later request never displaces an earlier one."""

    __slots__ = ("_able", "_rooms", "_seated")

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._seated: dict[str, list[Want]] = {}
        self._able: dict[Want, list[str]] = {}

    def add(self, want: Want, closed: Collection[str]) -> bool:
        """Assign one more device to a want; move another want to a different device if needed."""
        if want not in self._able:
            able = [d for d in want.devices if d in self._rooms and self._rooms[d].fits(want.mib)]
            # The fullest first, as in `choose`; ties are broken by name, not by the order on a ticket.
            self._able[want] = sorted(able, key=lambda d: (_waste(self._rooms[d], want.mib), d))
        return self._seat(want, set(closed))

    def _seat(self, want: Want, seen: set[str]) -> bool:
        for device in self._able[want]:
            here = self._seated.setdefault(device, [])
            if device in seen or want in here:
                continue
            seen.add(device)
            if self._fits(device, here, want):
                here.append(want)
                return True
            for other in reversed(here):
                rest = [each for each in here if each is not other]
                if self._fits(device, rest, want) and self._seat(other, seen):
                    here.remove(other)
                    here.append(want)
                    return True
        return False

    def _fits(self, device: str, seated: Sequence[Want], want: Want) -> bool:
        room = self._rooms[device]
        if not seated:
            return room.fits(want.mib)
        if not want.mib or not all(each.mib for each in seated):
            return False
        taken = sum(each.mib for each in seated)
        return len(seated) < room.places and taken + want.mib <= room.left_mib
