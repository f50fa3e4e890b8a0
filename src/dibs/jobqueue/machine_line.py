"""Our standing in the machine-wide line: what others hold, whose turn it is, and our own ticket.

For one door that stays, the daemon. What to start is decided by `scheduling`; here the line is read, our ticket is kept
up to date, and whatever stands in our way is watched until it hangs up.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dibs.leases import holders, tickets
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.scheduling.views import Active, Collector, Occupant
from dibs.system import locks

#: Seconds for which a device is left alone after a runner was refused it though nobody is seen to hold it.
SHUN_FOR_S = 1.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """The machine as it is outside our own queue."""

    held: Mapping[DeviceId, Occupant]
    line: tuple[Collector, ...] = ()
    ahead: int = 0
    #: The names of all tickets but ours.
    tickets: frozenset[str] = frozenset()
    #: Those who share a device and are not of our jobs.
    sharers: Mapping[DeviceId, Sequence[Occupant]] = field(default_factory=dict)
    #: The names of the sockets of all who share a device with one of them.
    shares: frozenset[bytes] = frozenset()


class Standing:
    """Reads the line and stands in it. `watch` takes a descriptor and what to call when it hangs up."""

    def __init__(
        self, place: locks.Folder, user: str, collect_for_s: float, watch: Callable[[int, Callable[[], None]], None]
    ) -> None:
        self.place = place
        self.user = user
        self.collect_for_s = collect_for_s
        self._watch = watch
        self._watched: set[bytes] = set()
        self._ticket: tickets.OwnTicket | None = None
        #: Our ticket stands for devices that our runners are about to take.
        self.is_granting = False
        #: Nobody else stood in the line when we last looked.
        self._is_alone = False
        self._shunned: dict[DeviceId, float] = {}

    def look(self, inventory: Inventory, active: Sequence[Active]) -> Outlook:
        """Return what stands in the way of us, who have these jobs under way."""
        ours = {device for job in active if not job.mib for device in job.devices}
        elsewhere = [device for device in inventory.ids if device not in ours]
        # Only what shows a socket. A lease from another network namespace shows none; then a runner is refused,
        # and the device is shunned: that is rare enough not to read the lock table in every turn.
        table = locks.table()
        seen = holders.sockets(self.place, elsewhere, table)
        held = {DeviceId(socket.device): Occupant("somebody") for socket in seen if socket.mib is None}
        shares = [socket for socket in seen if socket.mib is not None]
        sharers = _sharers(shares, active) if shares else {}
        now = time.monotonic()
        self._shunned = {device: until for device, until in self._shunned.items() if until > now}
        held |= {device: Occupant("somebody") for device in self._shunned if device not in ours}
        self._is_alone = not self._others(table)
        names = frozenset(socket.name for socket in shares if DeviceId(socket.device) in sharers)
        if self._is_alone:
            return Outlook(held, sharers=sharers, shares=names)
        others, before = tickets.around(self.place, self._ticket)
        collectors, ahead = self._collecting(others, before)
        return Outlook(held, collectors, ahead, frozenset(ticket.name for ticket in others), sharers, names)

    def _others(self, table: bytes | None = None) -> set[str]:
        """Return the names of all tickets but ours that somebody listens for."""
        own = self._ticket.ticket.name if self._ticket else None
        return {name for name in locks.bound(self.place, "ticket", table) if name != own}

    def collectors(self) -> tuple[tuple[Collector, ...], int]:
        """Return the others' tickets whose turn it is to collect, and how many of them stand before ours."""
        return self._collecting(*tickets.around(self.place, self._ticket))

    def _collecting(self, others: list[tickets.Ticket], before: int) -> tuple[tuple[Collector, ...], int]:
        now_ns = locks.boot_ns()
        collecting = [ticket.is_collecting(now_ns, self.collect_for_s) for ticket in others]
        collectors = tuple(
            collector_of(ticket, is_emptying=ticket.is_emptying(now_ns, self.collect_for_s))
            for ticket, counts in zip(others, collecting, strict=True)
            if counts
        )
        return collectors, sum(collecting[:before])

    def used_at(self, inventory: Inventory) -> dict[DeviceId, float]:
        """Return when each device was last taken."""
        return {DeviceId(device): at for device, at in holders.used_at(self.place, inventory.ids).items()}

    def shun(self, device: DeviceId) -> float:
        """Leave a device alone for a moment; return for how many seconds."""
        self._shunned[device] = time.monotonic() + SHUN_FOR_S
        return SHUN_FOR_S

    def stand(self, wanted: Sequence[DeviceId], request: Request | None, pending: Collection[DeviceId]) -> None:
        """Hold the ticket that our first waiting job needs, or none: its request, and the devices it collects.

        `pending` are devices we gave to runners that do not hold them yet: until they do, a ticket that we have keeps
        our place for them, or somebody who is woken by its end would find the devices free. After that our next ticket
        is a new one, behind everybody. Where there is nobody, the old one will do for all that, and spares the files.
        """
        if pending and self._ticket is not None and not self._is_alone:
            self.is_granting = True
            self._ticket.cover(sorted({*pending}))
            return
        if self.is_granting:
            self.is_granting = False
            if not self._is_alone:
                self.leave()
        if request is None or len(wanted) < request.gpus:
            self.leave()
        elif self._ticket is None:
            self._ticket = tickets.queue_up(self.place, request.gpus, wanted, self.user, mib=request.mib)
        else:
            self._ticket.update(request.gpus, wanted, request.mib)

    @property
    def is_waiting(self) -> bool:
        """Tell whether we stand in the line."""
        return self._ticket is not None

    def leave(self) -> None:
        """Leave the line."""
        if self._ticket is not None:
            self._ticket.close()
            self._ticket = None

    def watch(self, outlook: Outlook, wake: Callable[[], None]) -> bool:
        """Call `wake` when a holder or another ticket goes; tell whether to look once more.

        What is newly watched may have changed just before, and what is gone already will wake nobody.
        """
        if not outlook.held and not outlook.tickets and not outlook.sharers:
            # Our own runners stand in our way, and those we hear of.
            return False
        by_name = holders.watchable(self.place, {*outlook.held, *outlook.sharers})
        line = self._others()
        names = [*by_name, *(self.place.socket("ticket", name) for name in line)]
        # A connection that is refused (a full queue) is left to the slow tick.
        new = {name: fd for name in names if name not in self._watched and (fd := locks.connect(name)) is not None}
        for name, fd in new.items():
            self._watched.add(name)
            self._watch(fd, lambda name=name, fd=fd: self._hung_up(name, fd, wake))  # type: ignore[misc]
        unseen = [d for d in outlook.held if d not in by_name.values() and d not in self._shunned]
        is_gone = len(holders.held(self.place, unseen)) < len(unseen) or not outlook.tickets <= line
        return bool(new) or is_gone or not outlook.shares <= by_name.keys()

    def _hung_up(self, name: bytes, fd: int, wake: Callable[[], None]) -> None:
        os.close(fd)
        self._watched.discard(name)
        wake()


def _sharers(shares: Sequence[holders.Socket], active: Sequence[Active]) -> dict[DeviceId, list[Occupant]]:
    """Return the shares that are not of our own jobs.

    Ours are told by their amount alone, because each of them shows exactly what it declared. One that does not hold yet
    may make us take a stranger's equal share for it; then its runner, or the next one, is refused and comes again.
    """
    ours = Counter((device, job.mib) for job in active if job.mib for device in job.devices)
    found: dict[DeviceId, list[Occupant]] = {}
    for socket in shares:
        device, mib = DeviceId(socket.device), socket.mib or 0
        if ours[device, mib]:
            ours[device, mib] -= 1
        else:
            found.setdefault(device, []).append(Occupant("somebody", mib=mib))
    return found


def collector_of(ticket: tickets.Ticket, *, is_emptying: bool = True) -> Collector:
    """Return a ticket as the plan sees it."""
    return Collector(ticket.user or str(ticket.uid), ticket.count, ticket.devices, ticket.mib, is_emptying)


def people(
    place: locks.Folder, inventory: Inventory, active: Sequence[Active]
) -> tuple[dict[DeviceId, Occupant], dict[DeviceId, list[Occupant]]]:
    """Return who has a device alone and who shares which, by name, without our own active jobs."""
    ours = {(device, str(job.id)) for job in active for device in job.devices}
    held: dict[DeviceId, Occupant] = {}
    sharers: dict[DeviceId, list[Occupant]] = {}
    # Of those that a job of ours has alone nobody else has anything.
    alone = {device for job in active if not job.mib for device in job.devices}
    for device, found in holders.survey(place, [each for each in inventory.ids if each not in alone]).items():
        for who in found:
            if who.uid == os.geteuid() and (DeviceId(device), who.job) in ours:
                continue
            occupant = Occupant(who.user or "somebody", who.pid, who.job or None, who.mib or 0)
            if who.mib is None:
                held.setdefault(DeviceId(device), occupant)
            else:
                sharers.setdefault(DeviceId(device), []).append(occupant)
    return held, sharers
