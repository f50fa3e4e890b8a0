"""A place in the machine-wide line: our ticket, the tickets around it, and the sockets to watch while we wait.

The daemon (`jobqueue.machine_line`) and foreground commands (`waiters`) use this class. They differ in how they wait:
the daemon gives the sockets to its reactor, a command polls them.
"""

from __future__ import annotations

import os
import time

from dibs.leases import holders, own_ticket, reservations, rules_file, tickets
from dibs.system import locks
from dibs.system.lean import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dibs.leases.own_ticket import OwnTicket
    from dibs.leases.tickets import Ticket
    from dibs.system.locks import Folder


@record
class Obstacles:
    """Holders and tickets in our way."""

    #: Their sockets; each hangs up when its owner releases it.
    names: frozenset[bytes]
    #: Devices without a visible socket: the holder is in another network namespace, or is just releasing the device.
    hidden: frozenset[str]


class LinePlace:
    """The place of one process in the line. It has a ticket only between `join` and `leave`."""

    def __init__(self, folder: Folder, collect_for_s: float) -> None:
        self.folder = folder
        self.collect_for_s = collect_for_s
        self.rules = rules_file.rules_of_folder(folder)
        self._own: OwnTicket | None = None
        #: Each socket is connected once, because every connection uses up a place in its owner's backlog.
        self._watched: dict[bytes, int] = {}

    # -- our ticket

    @property
    def has_ticket(self) -> bool:
        """Return whether we have a ticket in the line."""
        return self._own is not None

    def join(self, count: int, devices: Iterable[str], mib: int, is_evictable: bool = False) -> Ticket | None:
        """Ask for `count` of `devices`: with a new ticket, which is returned, or by changing ours at the same age."""
        if self._own is None:
            self._own = own_ticket.queue_up(self.folder, count, devices, mib=mib, is_evictable=is_evictable)
            return self._own.ticket
        self._own.update(count, devices, mib, is_evictable)
        return None

    def cover(self, devices: Sequence[str]) -> None:
        """Make our ticket, if we have one, ask for all of `devices`."""
        if self._own is not None:
            self._own.cover(devices)

    def renew(self) -> None:
        """Move our ticket, if we have one, to the back of the line."""
        if self._own is not None:
            self._own.renew()

    def leave(self) -> None:
        """Drop our ticket. Idempotent."""
        if self._own is not None:
            self._own.close()
            self._own = None

    # -- the line

    def around(self, known: Collection[str] | None = None) -> tuple[list[Ticket], int]:
        """Return all other tickets in serving order, and how many are served before ours or before a new one."""
        others, before = tickets.around(self.folder, self._own.ticket if self._own else None, known, self.rules)
        self._leave_out_reserved(others)
        return others, before

    def _leave_out_reserved(self, others: list[Ticket]) -> None:
        """Remove devices from tickets whose users may not take them now: nobody has to wait for them there."""
        now_s = time.time()
        found = reservations.read_all(self.folder, now_s)
        if not any((window := one.window(now_s)) is not None and window[0] <= now_s for one in found):
            return
        devices = {device for ticket in others for device in ticket.devices}
        kept = reservations.kept(self.folder, found, devices, now_s, self.rules.now().unused_for_s)
        for ticket in others:
            closed = reservations.closures(kept, ticket.uid, now_s)
            ticket.devices = tuple(
                device for device in ticket.devices if device not in closed or closed[device].at_s > now_s
            )

    def ahead(self, known: Collection[str] | None = None) -> list[Ticket]:
        """Return the tickets that are served before ours, or before a new one."""
        others, before = self.around(known)
        return others[:before]

    def listening(self, table: bytes | None = None) -> set[str]:
        """Return the names of all other tickets with a visible socket. Cheaper than `around`: it reads no tickets."""
        own = self._own.ticket.name if self._own else None
        return {name for name in locks.bound(self.folder, "ticket", table) if name != own}

    # -- what to watch

    def obstacles(self, held: Collection[str], names: Iterable[str]) -> Obstacles:
        """Return the sockets of the holders of `held` devices, and of the tickets with these names."""
        by_name = holders.watchable(self.folder, held)
        sockets = {*by_name, *(tickets.socket_name(self.folder, name) for name in names)}
        return Obstacles(frozenset(sockets), frozenset(held) - frozenset(by_name.values()))

    def watch(self, obstacles: Obstacles) -> list[int]:
        """Watch these too; return the new descriptors, each of which becomes readable when its owner releases it.

        If there are any, check again: the state may have changed before they were watched.
        """
        names = obstacles.names - self._watched.keys()
        # A connection may be refused (a full backlog): see `is_watching`.
        new = {name: fd for name in names if (fd := locks.connect(name)) is not None}
        self._watched |= new
        return list(new.values())

    def is_watching(self, obstacles: Obstacles) -> bool:
        """Return whether all of these are watched."""
        return obstacles.names <= self._watched.keys()

    def watch_only(self, names: Collection[bytes]) -> None:
        """Stop watching everything but these."""
        for name in self._watched.keys() - names:
            os.close(self._watched.pop(name))

    @property
    def fds(self) -> Collection[int]:
        """Return the descriptors that are watched."""
        return self._watched.values()

    def drop_hung_up(self, ready: Collection[int]) -> bool:
        """Close those of our descriptors that are `ready`, which would stay ready; return whether there were any."""
        gone = [name for name, fd in self._watched.items() if fd in ready]
        for name in gone:
            os.close(self._watched.pop(name))
        return bool(gone)
