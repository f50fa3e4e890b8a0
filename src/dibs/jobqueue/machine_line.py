"""The daemon in the machine-wide line: leases of others, the order of tickets, and the ticket of our first waiting job.

`scheduling` decides what to start. This module translates the machine's state for it, and watches obstacles through
the reactor.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dibs.leases import blockers, holders, tickets
from dibs.leases.line import LinePlace
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.scheduling.views import Active, Collector, Occupant
from dibs.system import locks, users

#: Seconds for which a device counts as held after a runner could not lease it and no holder is visible.
SHUN_FOR_S = 1.0

#: Seconds until the next look while something in our way cannot be watched.
BLIND_S = 0.5


@dataclass(frozen=True, slots=True)
class Outlook:
    """The machine outside our own queue."""

    held: Mapping[DeviceId, Occupant]
    line: tuple[Collector, ...] = ()
    ahead: int = 0
    #: The names of all tickets except ours.
    tickets: frozenset[str] = frozenset()
    #: Shares of devices that are not held by our jobs.
    sharers: Mapping[DeviceId, Sequence[Occupant]] = field(default_factory=dict)
    #: The socket names of all shares of these devices.
    shares: frozenset[bytes] = frozenset()


class MachineLine:
    """The daemon's place in the line. `watch` calls a function once, when a descriptor becomes readable."""

    def __init__(
        self, folder: locks.Folder, user: str, collect_for_s: float, watch: Callable[[int, Callable[[], None]], None]
    ) -> None:
        self.folder = folder
        self.user = user
        self._place = LinePlace(folder, collect_for_s)
        self._watch = watch
        #: Our ticket covers devices that our runners are about to take.
        self.is_granting = False
        #: There was no other ticket at the last `look`.
        self._is_alone = False
        self._shunned: dict[DeviceId, float] = {}
        #: Something in our way cannot be watched.
        self._is_blind = False
        self._looks_at = 0.0

    def collect_for(self, seconds: float) -> None:
        """Change how long a ticket for several devices may collect them."""
        self._place.collect_for_s = seconds

    def look(self, inventory: Inventory, active: Sequence[Active]) -> Outlook:
        """Return what blocks our queue, whose running jobs are `active`."""
        ours = {device for job in active if not job.mib for device in job.devices}
        elsewhere = [device for device in inventory.ids if device not in ours]
        # Only holders with a visible socket. A lease from another network namespace has none; a runner is then refused
        # and the device is shunned. That is too rare to read the lock table in every turn.
        table = locks.table()
        seen = holders.sockets(self.folder, elsewhere, table)
        held = {DeviceId(socket.device): Occupant("somebody") for socket in seen if socket.mib is None}
        shares = [socket for socket in seen if socket.mib is not None]
        sharers = _sharers(shares, active) if shares else {}
        self._update_shunned(elsewhere, table, time.monotonic())
        held |= {device: Occupant("somebody") for device in self._shunned if device not in ours}
        self._is_alone = not self._place.listening(table)
        names = frozenset(socket.name for socket in shares if DeviceId(socket.device) in sharers)
        if self._is_alone:
            return Outlook(held, sharers=sharers, shares=names)
        others, before = self._place.around({*inventory.ids})
        # Only explanations need names, and the lookup of a name may take time.
        collectors, ahead = self._collectors(others, before, str)
        return Outlook(held, collectors, ahead, frozenset(ticket.name for ticket in others), sharers, names)

    def _update_shunned(self, devices: Sequence[DeviceId], table: bytes, now: float) -> None:
        """Shun devices that somebody blocks, and shunned ones for longer while their gate stays locked."""
        over = [device for device, until in self._shunned.items() if until <= now]
        stuck = blockers.gate_pids(self.folder, over) if over else {}
        deaf = blockers.deaf_devices(self.folder, devices, table)
        self._shunned = {device: until for device, until in self._shunned.items() if until > now}
        self._shunned |= {DeviceId(device): now + SHUN_FOR_S for device in (*stuck, *deaf)}

    def collectors(self, inventory: Inventory) -> tuple[tuple[Collector, ...], int]:
        """Return the other tickets for which free devices are kept, and how many of them are ahead of ours."""
        return self._collectors(*self._place.around({*inventory.ids}), users.name)

    def _collectors(
        self, others: list[tickets.Ticket], before: int, name_of: Callable[[int], str]
    ) -> tuple[tuple[Collector, ...], int]:
        now_ns = locks.boot_ns()
        ahead, behind = (
            tickets.collectors(part, now_ns, self._place.collect_for_s) for part in (others[:before], others[before:])
        )
        found = (
            Collector(name_of(ticket.uid), ticket.count, ticket.devices, ticket.mib, is_emptying)
            for ticket, is_emptying in (*ahead, *behind)
        )
        return tuple(found), len(ahead)

    def used_at(self, inventory: Inventory) -> dict[DeviceId, float]:
        """Return when each device was last taken."""
        return {DeviceId(device): at for device, at in holders.used_at(self.folder, inventory.ids).items()}

    def shun(self, device: DeviceId) -> float:
        """Count a device as held for a short time; return the number of seconds."""
        self._shunned[device] = time.monotonic() + SHUN_FOR_S
        return SHUN_FOR_S

    def update_ticket(self, wanted: Sequence[DeviceId], request: Request | None, pending: Collection[DeviceId]) -> None:
        """Take a ticket for the request of our first waiting job and the devices it collects, or leave the line.

        `pending` devices were assigned to runners that do not hold them yet. Until they do, our ticket covers them:
        otherwise other waiters, woken by its end, would find the devices free. Our next ticket is then a new one at the
        back of the line. If we are alone in the line, we keep the old ticket, which saves file operations.
        """
        if pending and self.is_waiting and not self._is_alone:
            self.is_granting = True
            self._place.cover(sorted({*pending}))
            return
        if self.is_granting:
            self.is_granting = False
            if not self._is_alone:
                self.leave()
        if request is None or len(wanted) < request.gpus:
            self.leave()
        else:
            self._place.join(request.gpus, wanted, request.mib)

    @property
    def is_waiting(self) -> bool:
        """Tell whether we have a ticket in the line."""
        return self._place.has_ticket

    def leave(self) -> None:
        """Leave the line."""
        self._place.leave()

    def watch(self, outlook: Outlook, wake: Callable[[], None]) -> bool:
        """Call `wake` when a holder or another ticket disappears; tell whether to look again at once.

        A holder that disappeared before it was watched would not wake us.
        """
        self._is_blind = False
        if not outlook.held and not outlook.tickets and not outlook.sharers:
            # Only our own runners block us, and they report their end.
            return False
        listening = self._place.listening()
        # Not every listening socket: anybody can make any number of them without a ticket.
        obstacles = self._place.obstacles({*outlook.held, *outlook.sharers}, outlook.tickets & listening)
        # Sockets that no longer block us stay watched: they may block us again soon, and each new connection takes a
        # place in the backlog.
        new = self._place.watch(obstacles)
        # A full backlog refuses connections.
        self._is_blind = not self._place.is_watching(obstacles)
        for fd in new:
            self._watch(fd, lambda fd=fd: self._hung_up(fd, wake))  # type: ignore[misc]
        unseen = [device for device in outlook.held if device in obstacles.hidden and device not in self._shunned]
        is_gone = len(holders.held(self.folder, unseen)) < len(unseen) or not outlook.tickets <= listening
        return bool(new) or is_gone or not outlook.shares <= obstacles.names

    def look_again_s(self, now: float) -> float | None:
        """Return the seconds after which to look again; None if an event or an earlier answer of this does it."""
        if now < self._looks_at or not (self._is_blind or self._shunned):
            return None
        self._looks_at = now + BLIND_S
        return BLIND_S

    def _hung_up(self, fd: int, wake: Callable[[], None]) -> None:
        self._place.drop_hung_up((fd,))
        wake()


def _sharers(shares: Sequence[holders.Socket], active: Sequence[Active]) -> dict[DeviceId, list[Occupant]]:
    """Return the shares that our own jobs do not hold.

    Ours are recognised only by their amount, which is exactly what the job declared. While a job of ours does not hold
    its share yet, an equal share of another user counts as ours; the runner is then refused and tries again.
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


def people(
    folder: locks.Folder, inventory: Inventory, active: Sequence[Active]
) -> tuple[dict[DeviceId, Occupant], dict[DeviceId, list[Occupant]]]:
    """Return the exclusive holder, or who blocks it, and the sharers of each device, by name, without our own jobs."""
    ours = {(device, str(job.id)) for job in active for device in job.devices}
    held: dict[DeviceId, Occupant] = {}
    sharers: dict[DeviceId, list[Occupant]] = {}
    # A device that our job holds exclusively has no other holder.
    exclusive = {device for job in active if not job.mib for device in job.devices}
    others = [each for each in inventory.ids if each not in exclusive]
    table, locked = locks.table(), locks.flocked()
    for device, found in holders.survey(folder, others, table, locked).items():
        for who in found:
            if who.uid == os.geteuid() and (DeviceId(device), who.job) in ours:
                continue
            occupant = Occupant(who.user or "somebody", who.pid, who.job or None, who.mib or 0)
            if who.mib is None:
                held.setdefault(DeviceId(device), occupant)
            else:
                sharers.setdefault(DeviceId(device), []).append(occupant)
    for device, blocker in blockers.find(folder, others, table, locked).items():
        held.setdefault(DeviceId(device), _blocked_by(blocker))
    return held, sharers


def _blocked_by(blocker: blockers.Blocker) -> Occupant:
    """Return who blocks a device, for explanations."""
    return Occupant(blocker.user or "somebody", blocker.pid, note=blocker.text, cure=blocker.cure)
