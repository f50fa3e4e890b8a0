"""Waiting: how a foreground door stands in the line until it holds its devices, without polling.

Decides when to look again; whose turn it is decides `tickets.choose`. The daemon has its own loop and uses neither.
"""

from __future__ import annotations

import os
import select
import time

from dibs import errors, holders, leases, locks, tickets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from dibs.leases import Lease, Note
    from dibs.locks import Folder
    from dibs.tickets import OwnTicket, Ticket

#: Longest sleep in seconds: for what no hang-up tells, such as a ticket whose process was stopped or has to rest.
LONGEST_S = 30.0

#: First sleep in seconds when something in our way cannot be watched; it doubles up to the longest.
SHORTEST_S = 0.001


class TimedOut(errors.Busy):
    """The devices did not become free in time."""


class Interrupted(errors.DibsError):
    """The caller stopped waiting."""

    exit_code = 130


def acquire(
    place: Folder,
    count: int,
    wanted: Sequence[str],
    note: Note,
    *,
    collect_for_s: float = tickets.COLLECT_FOR_S,
    wake_fd: int | None = None,
    timeout_s: float | None = None,
    on_wait: Callable[[Ticket], None] | None = None,
) -> list[Lease]:
    """Wait in the line for `count` of `wanted` (best first) and take them. With `timeout_s=0` try once.

    Raises `TimedOut`, or `Interrupted` when `wake_fd` becomes readable. `on_wait` is called once, when waiting begins.
    """
    wanted = tickets.checked(count, wanted)
    until = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s = SHORTEST_S
    own: OwnTicket | None = None
    watched = _Watched()
    try:
        while True:
            look = _Look(place, count, wanted, own, collect_for_s)
            got = _take(place, look.chosen, note)
            if got is not None:
                return got
            left_s = LONGEST_S if until is None else until - time.monotonic()
            if left_s <= 0:
                raise TimedOut(f"{count} of {len(wanted)} devices did not become free within {timeout_s:g} s.")
            if own is None:
                own = tickets.queue_up(place, count, wanted, note.user)
                if on_wait is not None:
                    on_wait(own.ticket)
                continue
            if watched.follow(look.in_the_way):
                # Look once more now that the watches stand: what they watch may have gone just before.
                continue
            is_blind = look.chosen is not None or look.is_hidden or not watched.covers(look.in_the_way)
            is_woken = watched.wait(wake_fd, min(left_s, pause_s if is_blind else LONGEST_S))
            pause_s = SHORTEST_S if is_woken else min(2 * pause_s, LONGEST_S)
    finally:
        watched.follow(())
        if own is not None:
            own.close()


class _Look:
    """One look at line and devices: what we may take, and who is in the way."""

    __slots__ = ("chosen", "in_the_way", "is_hidden")

    def __init__(
        self, place: Folder, count: int, wanted: Sequence[str], own: OwnTicket | None, collect_for_s: float
    ) -> None:
        ahead = tickets.ahead(place, own)
        devices = {*wanted, *(device for ticket in ahead for device in ticket.devices)}
        held = holders.held(place, devices)
        holding = holders.watchable(place, held.intersection(wanted))
        self.chosen = tickets.choose(count, wanted, devices - held, ahead, locks.boot_ns(), collect_for_s)
        self.in_the_way = {*holding, *(tickets.socket_name(place, ticket) for ticket in ahead)}
        #: Whether a device is held by somebody whose socket we cannot see, or who is just letting go.
        self.is_hidden = not held.intersection(wanted) <= set(holding.values())


def _take(place: Folder, devices: Sequence[str] | None, note: Note) -> list[Lease] | None:
    """Take what was chosen; None when there was nothing or somebody was faster."""
    if devices is None:
        return None
    try:
        return leases.take(place, devices, note)
    except leases.Refused:
        return None


class _Watched:
    """The sockets of all that is in our way, each connected once: a connection costs its owner a place."""

    __slots__ = ("fds",)

    def __init__(self) -> None:
        self.fds: dict[bytes, int] = {}

    def follow(self, names: Collection[bytes]) -> bool:
        """Watch exactly these; tell whether any is new, because what it shows may have changed before."""
        for name in set(self.fds) - set(names):
            os.close(self.fds.pop(name))
        known = len(self.fds)
        for name in set(names) - set(self.fds):
            fd = locks.connect(name)
            if fd is not None:
                self.fds[name] = fd
        return len(self.fds) > known

    def covers(self, names: Collection[bytes]) -> bool:
        """Tell whether a hang-up of any of these would wake us."""
        return self.fds.keys() >= set(names)

    def wait(self, wake_fd: int | None, for_s: float) -> bool:
        """Sleep until somebody hangs up; tell whether anybody did. Raise `Interrupted` if `wake_fd` is readable."""
        poll = select.poll()
        for fd in self.fds.values():
            poll.register(fd, select.POLLIN)
        if wake_fd is not None:
            poll.register(wake_fd, select.POLLIN)
        woken = {fd for fd, _ in poll.poll(max(0, for_s) * 1000)}
        if wake_fd in woken:
            raise Interrupted("waiting for devices was interrupted.")
        # Whoever hung up may have the same name again: a dead connection would wake us for ever.
        for name, fd in list(self.fds.items()):
            if fd in woken:
                os.close(self.fds.pop(name))
        return bool(woken)
