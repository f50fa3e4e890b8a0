"""Waiting: how a foreground door stands in the line until it holds its devices, without polling.

Decides when to look again; whose turn it is decides `tickets.choose`. The daemon has its own loop and uses neither.
"""

from __future__ import annotations

import os
import select
import time

from dibs import errors
from dibs.leases import device_lease, holders, tickets
from dibs.scheduling import choice
from dibs.system import locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Protocol

    from dibs.leases.device_lease import Lease, Note
    from dibs.leases.tickets import OwnTicket, Ticket
    from dibs.scheduling.choice import Terms
    from dibs.system.locks import Folder

    class Vet(Protocol):
        """Returns those of the devices that must not be used now; `is_taken`: they have just become ours."""

        def __call__(self, devices: Sequence[str], *, is_taken: bool) -> Collection[str]: ...


#: Longest sleep in seconds: for what no hang-up tells, such as a ticket whose process was stopped or has to rest.
LONGEST_S = 30.0

#: Seconds after which a device that was not fit to be used is looked at again.
UNFIT_FOR_S = 10.0

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
    terms: Callable[[], Terms] = choice.alone,
    wake_fd: int | None = None,
    timeout_s: float | None = None,
    on_wait: Callable[[Ticket], None] | None = None,
    vet: Vet | None = None,
) -> list[Lease]:
    """Wait in the line for `count` of `wanted` (best first) and take them. With `timeout_s=0` try once.

    `terms` are looked at again each time: what strangers leave of a device changes.
    What `vet` says of devices that were taken is believed: those are given back, and not asked for during a while.

    Raises `TimedOut`, or `Interrupted` when `wake_fd` becomes readable. `on_wait` is called once, when waiting begins.
    """
    wanted = tickets.checked(count, wanted)
    until = None if timeout_s is None else time.monotonic() + timeout_s
    waiter = Waiter(place, note, collect_for_s, on_wait, terms, vet)
    try:
        while True:
            left_s = LONGEST_S if until is None else until - time.monotonic()
            got = waiter.ask(count, wanted) if left_s > 0 else waiter.try_now(count, wanted)
            if got is not None:
                return got
            left_s = LONGEST_S if until is None else until - time.monotonic()
            if left_s <= 0:
                raise TimedOut(f"{count} of {len(wanted)} devices did not become free within {timeout_s:g} s.")
            waiter.hung_up(_sleep(waiter.fds(), wake_fd, min(left_s, waiter.sleep_s)))
    finally:
        waiter.leave()


def _sleep(fds: Collection[int], wake_fd: int | None, for_s: float) -> set[int]:
    """Sleep until a descriptor is ready; return those that are. Raise `Interrupted` if `wake_fd` is one of them."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    if wake_fd is not None:
        poll.register(wake_fd, select.POLLIN)
    ready = {fd for fd, _ in poll.poll(max(0, for_s) * 1000)}
    if wake_fd in ready:
        raise Interrupted("waiting for devices was interrupted.")
    return ready


class Waiter:
    """A foreground door in the line: it asks, keeps a ticket while it has to wait, and knows what may wake it.

    Whoever asks sleeps until one of `fds` is ready or `sleep_s` is over, says which ones were, and asks again.
    """

    __slots__ = (
        "_collect_for_s", "_note", "_on_wait", "_own", "_pause_s", "_place", "_terms", "_unfit", "_vet", "_watched",
        "sleep_s",
    )  # fmt: skip

    def __init__(
        self,
        place: Folder,
        note: Note,
        collect_for_s: float,
        on_wait: Callable[[Ticket], None] | None = None,
        terms: Callable[[], Terms] = choice.alone,
        vet: Vet | None = None,
    ) -> None:
        self._vet = vet
        #: Devices that must not be used, and until when nobody looks at them again.
        self._unfit: dict[str, float] = {}
        self._place = place
        self._note = note
        self._collect_for_s = collect_for_s
        self._on_wait = on_wait
        self._terms = terms
        self._own: OwnTicket | None = None
        self._watched = _Watched()
        self._pause_s = SHORTEST_S
        #: Seconds after which to ask again even if nobody hung up.
        self.sleep_s = LONGEST_S

    @property
    def is_standing(self) -> bool:
        """Tell whether we have a ticket in the line."""
        return self._own is not None

    @property
    def is_waiting(self) -> bool:
        """Tell whether we stand in the line, or wait for devices to be fit for use."""
        return self._own is not None or bool(self._unfit)

    def try_now(self, count: int, wanted: Sequence[str]) -> list[Lease] | None:
        """Take `count` of `wanted` (best first) if that is possible at once, those ahead considered."""
        while len(fit := self._fit(wanted)) >= count:
            got = _take(self._place, self._look(count, fit), self._note)
            if got is None or self._passes(got):
                return got
        return None

    def ask(self, count: int, wanted: Sequence[str]) -> list[Lease] | None:
        """Take `count` of `wanted` and leave the line; or stand in it with a ticket for them and return None."""
        every = wanted
        while True:
            wanted = self._fit(every)
            if len(wanted) < count:
                # No place in the line for what cannot be used: others would wait behind us for nothing.
                self.leave()
                self.sleep_s = max(0.0, min(self._unfit.values()) - time.monotonic()) if self._unfit else LONGEST_S
                return None
            look = self._look(count, wanted)
            got = _take(self._place, look, self._note)
            if got is not None and not self._passes(got):
                continue
            if got is not None:
                self.leave()
                return got
            if self._own is None:
                self._own = tickets.queue_up(self._place, count, look.collected, self._note.user, mib=look.terms.mib)
                if self._on_wait is not None:
                    self._on_wait(self._own.ticket)
                continue
            self._own.update(count, look.collected, look.terms.mib)
            if self._watched.follow(look.in_the_way):
                # Look once more now that the watches stand: what they watch may have gone just before.
                continue
            is_blind = look.chosen is not None or look.is_hidden or not self._watched.covers(look.in_the_way)
            self.sleep_s = self._pause_s if is_blind else UNFIT_FOR_S if look.is_short else LONGEST_S
            return None

    def _fit(self, wanted: Sequence[str]) -> Sequence[str]:
        """Return `wanted` without what is not fit to be used; what was not a while ago is looked at again."""
        if self._vet is None or not self._unfit:
            return wanted
        now = time.monotonic()
        over = [device for device, until in self._unfit.items() if until <= now]
        if over:
            self._note_unfit(over, self._vet(over, is_taken=False))
        return [device for device in wanted if device not in self._unfit]

    def _passes(self, got: list[Lease]) -> bool:
        """Tell whether all of what we have just taken may be used; give it back if not."""
        if self._vet is None:
            return True
        devices = [lease.device for lease in got]
        unfit = self._vet(devices, is_taken=True)
        self._note_unfit(devices, unfit)
        if unfit:
            for lease in got:
                lease.close()
        return not unfit

    def _note_unfit(self, seen: Collection[str], unfit: Collection[str]) -> None:
        until = time.monotonic() + UNFIT_FOR_S
        self._unfit = {device: at for device, at in self._unfit.items() if device not in seen}
        self._unfit |= dict.fromkeys(unfit, until)

    def ahead(self) -> list[Ticket]:
        """Return the tickets that are served before ours, or before one that we would put down now."""
        return tickets.ahead(self._place, self._own)

    def renew(self) -> None:
        """Go to the back of the line, after a turn that was had otherwise."""
        if self._own is not None:
            self._own.renew()

    def fds(self) -> Collection[int]:
        """Return the descriptors that become ready when something in our way goes."""
        return self._watched.fds.values()

    def hung_up(self, ready: Collection[int]) -> bool:
        """Take note of what was ready after a sleep; tell whether any of it was ours."""
        is_woken = self._watched.drop(ready)
        self._pause_s = SHORTEST_S if is_woken else min(2 * self._pause_s, LONGEST_S)
        return is_woken

    def leave(self) -> None:
        """Leave the line; twice is harmless."""
        self._watched.follow(())
        if self._own is not None:
            self._own.close()
            self._own = None
        self._pause_s, self.sleep_s = SHORTEST_S, LONGEST_S

    def _look(self, count: int, wanted: Sequence[str]) -> _Look:
        return _Look(self._place, count, wanted, self._own, self._collect_for_s, self._terms())


class _Look:
    """One look at line and devices: what we may take, and who is in the way."""

    __slots__ = ("chosen", "collected", "in_the_way", "is_hidden", "is_short", "terms")

    def __init__(
        self,
        place: Folder,
        count: int,
        wanted: Sequence[str],
        own: OwnTicket | None,
        collect_for_s: float,
        terms: Terms,
    ) -> None:
        ahead = tickets.ahead(place, own)
        devices = {*wanted, *(device for ticket in ahead for device in ticket.devices)}
        rooms = holders.rooms(place, devices, terms)
        held = {device for device in wanted if device not in rooms or rooms[device].sharers}
        holding = holders.watchable(place, held)
        self.terms = terms
        self.chosen = tickets.choose(count, wanted, rooms, ahead, locks.boot_ns(), collect_for_s, terms)
        #: What we want, in the order in which it shall become empty for us.
        self.collected = choice.nearest(wanted, rooms, terms.mib) if held else wanted
        self.in_the_way = {*holding, *(tickets.socket_name(place, ticket) for ticket in ahead)}
        #: Whether a device is held by somebody whose socket we cannot see, or who is just letting go.
        self.is_hidden = not held <= set(holding.values())
        #: Whether a device would not do for us even if all others let go: strangers, who hang up on nobody, may go too.
        self.is_short = any(terms.mib > terms.capacity_mib.get(device, terms.mib) for device in wanted)


def _take(place: Folder, look: _Look, note: Note) -> list[Lease] | None:
    """Take what was chosen; None when there was nothing or somebody was faster."""
    if look.chosen is None:
        return None
    terms = look.terms
    share = device_lease.Share(terms.mib, terms.capacity_mib, terms.most) if terms.mib else None
    try:
        return device_lease.take(place, look.chosen, note, share)
    except device_lease.Refused:
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

    def drop(self, ready: Collection[int]) -> bool:
        """Close what hung up, and tell whether anything did.

        Whoever hung up may have the same name again: a dead connection would wake us for ever.
        """
        gone = [name for name, fd in self.fds.items() if fd in ready]
        for name in gone:
            os.close(self.fds.pop(name))
        return bool(gone)
