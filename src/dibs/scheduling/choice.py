"""Sharing devices by memory: what is left of each, and who may take which without delaying anybody ahead.

The daemon's plan and every foreground command choose with `choose`. A request with an amount (MiB) shares a device with
others of its kind; one without wants the device exclusively.

Lean.
"""

from __future__ import annotations

from dibs.scheduling import matching, topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from dibs.scheduling.topology import Closeness

    #: By device, whatever its name is to the type checker.
    Rooms = Mapping[Any, "Room"]

MIB = 2**20
#: Default for the number of jobs that share a device.
MOST_SHARERS = 4


class Room:
    """What is left of a device without an exclusive holder."""

    __slots__ = ("left_mib", "places", "shared_mib", "sharers")

    def __init__(self, left_mib: float, places: int, sharers: int = 0, shared_mib: int = 0) -> None:
        self.left_mib = left_mib
        #: How many more may share it.
        self.places = places
        self.sharers = sharers
        self.shared_mib = shared_mib

    def fits(self, mib: int) -> bool:
        """Tell whether `mib` more fit; 0 asks for the device exclusively."""
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
    """Return what is left of a device beside `shares`. One of unknown size is given as a whole or not at all."""
    if capacity_mib is None:
        return Room(float("inf"), 1) if not shares else Room(0, 0, len(shares), sum(shares))
    taken = sum(shares)
    return Room(capacity_mib - taken, most - len(shares), len(shares), taken)


class Want:
    """What somebody ahead in the line wants, in the order in which they empty what is not free yet."""

    __slots__ = ("count", "devices", "is_emptying", "mib")

    def __init__(self, count: int, devices: Sequence[str], mib: int = 0, is_emptying: bool = True) -> None:
        self.count = count
        self.devices = devices
        self.mib = mib
        #: Whether devices that are shared now are kept from newcomers, so that they become free for it.
        self.is_emptying = is_emptying


class Terms:
    """What a request wants of each device, and what is known about the devices."""

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
        #: 0: the device alone.
        self.mib = mib
        #: The memory of each device, without what strangers use of it; who is missing does not tell.
        self.capacity_mib = capacity_mib or {}
        self.most = most
        self.closeness = closeness or {}
        #: Taken before all others.
        self.first = first
        #: When each was last taken.
        self.used_at = used_at or {}


ALONE = Terms()


def alone() -> Terms:
    """Return the terms of an exclusive request that knows nothing about the devices."""
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

    `allows` may refuse some of them together, but none that are part of what it does not refuse.

    Devices that were asked for first come first, then the best connected, the fullest in which it fits, the one that
    was used longest ago.
    """
    if not is_shared(rooms, ahead, terms):
        # Nobody shares anything: those ahead can be seated exactly.
        free = rooms.keys()
        wants = [(want.count, want.devices) for want in ahead]
        if count == 1 or not (terms.closeness or terms.used_at):
            return matching.choose(count, wanted, free, wants)
        able = [device for device in wanted if device in free]

        def is_spare(own: Sequence[str]) -> bool:
            return not wants or matching.choose(len(own), own, free, wants) is not None
    else:
        served, closed = serve(ahead, rooms)
        able = [device for device in wanted if device in rooms and device not in closed]
        able = [device for device in able if rooms[device].fits(terms.mib)]

        def is_spare(own: Sequence[str]) -> bool:
            if allows is not None and not allows(own):
                return False
            return not ahead or serve(ahead, _taken(rooms, own, terms.mib))[0] >= served

    places = {device: place for place, device in enumerate(wanted)}
    able.sort(key=lambda d: (d not in terms.first, _waste(rooms[d], terms.mib), terms.used_at.get(d, 0), places[d]))
    chosen = topology.best(count, able, terms.first, terms.closeness, is_spare)
    # Which ones is decided; they come in the order in which they were wanted, as people expect of 0,1,2,3.
    return None if chosen is None else tuple(sorted(chosen, key=places.__getitem__))


def is_shared(rooms: Rooms, ahead: Sequence[Want], terms: Terms = ALONE) -> bool:
    """Tell whether anybody shares a device, or wants to."""
    return bool(terms.mib) or any(want.mib for want in ahead) or any(room.sharers for room in rooms.values())


def _waste(room: Room, mib: int) -> float:
    """Return what would be left unused: the fullest device first, so that whole ones stay for those who need one."""
    return room.left_mib - mib if mib else 0


def _taken(rooms: Rooms, own: Sequence[str], mib: int) -> dict[str, Room]:
    """Return what is left once some devices are taken."""
    left = dict(rooms)
    for device in own:
        if mib:
            left[device] = rooms[device].less(mib)
        else:
            del left[device]
    return left


def nearest(devices: Sequence[str], rooms: Rooms, mib: int) -> list[str]:
    """Return devices in the order in which waiting for them is worth it: those on which least has to end first.

    Whoever waits puts them on the ticket in this order, and everybody keeps away from the first ones. It may change
    while one waits, but only to a device on which less is in the way, and nothing new comes there.
    """

    def distance(device: str) -> tuple[float, float]:
        room = rooms.get(device)
        if room is None or not room.could_fit(mib):
            # Somebody has it alone, or strangers do: nothing that we keep away would make it free.
            return float("inf"), 0
        if mib == 0:
            return room.sharers, room.shared_mib
        return max(0, mib - room.left_mib), room.sharers

    return sorted(devices, key=distance)


def serve(ahead: Sequence[Want], rooms: Rooms) -> tuple[list[int], set[str]]:
    """Return how many devices each of those ahead can have now, in order, and which are kept empty for the rest.

    One who cannot have all keeps newcomers from as many devices as are missing, the first of its list that are shared
    now and would do once they are empty.
    """
    seats = _Seats(rooms)
    closed: set[str] = set()
    served = []
    for want in ahead:
        got = 0
        # Who finds no seat finds none at the next try either.
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
    """Where those ahead would sit. One who comes later is never served by unseating one who came before."""

    __slots__ = ("_rooms", "_seated")

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._seated: dict[str, list[Want]] = {}

    def add(self, want: Want, closed: Collection[str]) -> bool:
        """Give a want one more device, moving another one aside where it can sit elsewhere."""
        return self._seat(want, set(closed))

    def _seat(self, want: Want, seen: set[str]) -> bool:
        able = [d for d in want.devices if d in self._rooms and self._rooms[d].fits(want.mib)]
        # The fullest first, as `choose` does; the names decide the rest, not the order on a ticket.
        for device in sorted(able, key=lambda d: (_waste(self._rooms[d], want.mib), d)):
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
