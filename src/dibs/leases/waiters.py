"""How a foreground command waits in the line until it holds its devices, without polling.

It decides when to check again. `tickets.choose` decides whose turn it is.
"""

from __future__ import annotations

import os
import select
import time

from dibs import errors
from dibs.leases import allowances, blockers, device_lease, holders, reservations, tickets
from dibs.leases.line import LinePlace
from dibs.scheduling import choice
from dibs.system import locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Protocol

    from dibs.leases.allowances import Bound
    from dibs.leases.device_lease import Lease, Note
    from dibs.leases.tickets import Ticket
    from dibs.scheduling.choice import Terms
    from dibs.system.locks import Folder

    class Vet(Protocol):
        """A check that returns the devices that must not be used now; `is_taken`: we have just taken them."""

        def __call__(self, devices: Sequence[str], *, is_taken: bool) -> Collection[str]: ...


#: Longest sleep in seconds, for changes without a hang-up, such as a ticket whose process is suspended.
LONGEST_S = 30.0

#: Seconds after which an unfit device is checked again.
UNFIT_FOR_S = 10.0

#: First and longest sleep in seconds when something in our way cannot be watched; it doubles in between.
SHORTEST_S = 0.001
BLIND_S = 0.5

#: Seconds for which devices without a time limit are expected to be kept.
ASSUMED_S = 86400.0

#: First sleep in seconds while a free device is left to a ticket ahead, which may leave it to us: the order of users
#: changes with time, and each of us may have looked at another moment. It doubles up to `LONGEST_S`.
YIELD_S = 0.1


class TimedOut(errors.Busy):
    """The devices did not become free in time. `limit` is the quota that forbids more, in words; empty: none does."""

    limit = ""


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
    known: Collection[str] | None = None,
    on_limit: Callable[[str], None] | None = None,
    span_s: float = ASSUMED_S,
) -> list[Lease]:
    """Wait in the line for `count` of `wanted` (best first) and take them. With `timeout_s=0` try once.

    `terms` is called for each attempt, because processes without a lease change what is left of a device.
    Taken devices that `vet` rejects are given back, and not asked for again for `UNFIT_FOR_S`. Tickets of others count
    only for `known` devices, if these are given.

    Raises `TimedOut`, or `Interrupted` when `wake_fd` becomes readable. `on_wait` is called once, when waiting begins;
    `on_limit` with the quota or reservation that forbids it, in words. Devices that are reserved within `span_s`
    seconds are not taken.
    """
    wanted = tickets.checked(count, wanted)
    until = None if timeout_s is None else time.monotonic() + timeout_s
    waiter = Waiter(place, note, collect_for_s, on_wait, terms, vet, known, on_limit, span_s)
    try:
        while True:
            left_s = LONGEST_S if until is None else until - time.monotonic()
            got = waiter.ask(count, wanted) if left_s > 0 else waiter.try_now(count, wanted)
            if got is not None:
                return got
            waiter.check_left(count, wanted)
            left_s = LONGEST_S if until is None else until - time.monotonic()
            if left_s <= 0:
                raise _timed_out(waiter, f"{count} of {len(wanted)} devices did not become free within {timeout_s:g} s")
            waiter.hung_up(_sleep(waiter.fds, wake_fd, min(left_s, waiter.sleep_s)))
    finally:
        waiter.leave()


def _timed_out(waiter: Waiter, text: str) -> TimedOut:
    error = TimedOut(f"{text}: {waiter.limit}." if waiter.limit else f"{text}.")
    error.limit = waiter.limit
    return error


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


class Waiter(LinePlace):
    """A foreground command in the line: it tries to take devices and keeps a ticket while it has to wait.

    The caller sleeps until one of `fds` is ready or `sleep_s` is over, passes the ready ones to `hung_up`, and asks
    again.
    """

    def __init__(
        self,
        place: Folder,
        note: Note,
        collect_for_s: float,
        on_wait: Callable[[Ticket], None] | None = None,
        terms: Callable[[], Terms] = choice.alone,
        vet: Vet | None = None,
        known: Collection[str] | None = None,
        on_limit: Callable[[str], None] | None = None,
        span_s: float = ASSUMED_S,
    ) -> None:
        super().__init__(place, collect_for_s)
        #: How long we may keep the devices: they must not be reserved before that is over.
        self._span_s = span_s
        #: Seconds until a reservation begins or ends.
        self._change_s = LONGEST_S
        self._on_limit = on_limit
        #: The quota that forbids more devices now, in words.
        self.limit = ""
        self._vet = vet
        self._known = known
        #: Devices that were refused though nobody holds them.
        self._refused = blockers.RefusedDevices(place)
        #: Devices that must not be used, and until when they are not checked again.
        self._unfit: dict[str, float] = {}
        #: The last device whose lease file could not be used.
        self._unusable: device_lease.Unusable | None = None
        self._note = note
        self._on_wait = on_wait
        self._terms = terms
        self._pause_s = SHORTEST_S
        self._yield_s = YIELD_S
        #: Seconds after which to ask again even if nothing hung up.
        self.sleep_s = LONGEST_S

    @property
    def is_waiting(self) -> bool:
        """Return whether we are in the line, or wait for devices to become fit for use."""
        return self.has_ticket or bool(self._unfit)

    def try_now(self, count: int, wanted: Sequence[str]) -> list[Lease] | None:
        """Take `count` of `wanted` (best first) if that is possible now without overtaking another ticket."""
        while len(fit := self._unreserved(count, self._fit(wanted))) >= count and self._bound(count, fit) is None:
            got = self._take(self._look(count, fit))
            if got is None or self._passes(got):
                return got
        return None

    def ask(self, count: int, wanted: Sequence[str]) -> list[Lease] | None:
        """Take `count` of `wanted` and leave the line; otherwise wait in it with a ticket for them and return None."""
        every = wanted
        while True:
            wanted = self._fit(every)
            if len(wanted) < count:
                # No ticket for devices that we cannot use: others would wait behind it for nothing.
                self.leave()
                self.sleep_s = max(0.0, min(self._unfit.values()) - time.monotonic()) if self._unfit else LONGEST_S
                return None
            wanted = self._unreserved(count, wanted)
            if len(wanted) < count:
                self.leave()
                self.sleep_s = self._change_s
                return None
            bound = self._bound(count, wanted)
            if bound is not None:
                if self._wait_for_quota(bound):
                    continue
                return None
            look = self._look(count, wanted)
            got = self._take(look)
            if got is not None and not self._passes(got):
                continue
            if got is not None:
                self.leave()
                return got
            new = self.join(count, look.collected, look.terms.mib)
            if new is not None:
                if self._on_wait is not None:
                    self._on_wait(new)
                continue
            self.watch_only(look.obstacles.names)
            if self.watch(look.obstacles):
                continue
            is_blind = look.chosen is not None or look.obstacles.hidden or not self.is_watching(look.obstacles)
            self.sleep_s = self._pause_s if is_blind else UNFIT_FOR_S if look.is_short else LONGEST_S
            self.sleep_s = min(self.sleep_s, self._change_s)
            if look.is_yielding:
                self.sleep_s = min(self.sleep_s, self._yield_s)
                self._yield_s = min(2 * self._yield_s, LONGEST_S)
            return None

    def _take(self, look: _Look) -> list[Lease] | None:
        """Take the chosen devices; return None if there are none or another process was faster."""
        if look.chosen is None:
            return None
        terms = look.terms
        share = device_lease.Share(terms.mib, terms.capacity_mib, terms.most) if terms.mib else None
        try:
            return device_lease.take(self.folder, look.chosen, self._note, share)
        except device_lease.Refused as refused:
            if refused.holder is None and refused.why not in ("quota", "reserved"):
                self._refused.refuse(refused.device, time.monotonic())
            return None
        except device_lease.Unusable as error:
            self._unusable = error
            self._note_unfit([error.device], [error.device])
            return None

    def _unreserved(self, count: int, wanted: Sequence[str]) -> Sequence[str]:
        """Return `wanted` without devices that are reserved before we would have released them."""
        now_s, unused_for_s = time.time(), self.rules.now().unused_for_s
        found = reservations.read_all(self.folder, now_s)
        change_s = reservations.next_change_s(found, now_s, unused_for_s)
        self._change_s = LONGEST_S if change_s is None else min(LONGEST_S, change_s - now_s)
        kept = reservations.kept(self.folder, found, wanted, now_s, unused_for_s) if found else []
        closed = reservations.closures(kept, os.geteuid(), now_s)
        left = [device for device in wanted if device not in closed or closed[device].at_s >= now_s + self._span_s]
        if len(left) < count <= len(wanted):
            first = min((closed[device] for device in wanted if device in closed), key=lambda each: each.at_s)
            self._tell_limit(reservations.text(first))
        return left

    def _bound(self, count: int, wanted: Sequence[str]) -> Bound | None:
        """Return the quota that does not allow `count` more devices; None: nothing forbids it."""
        is_shared = bool(self._terms().mib) if self.rules.now().has_quotas else False
        for bound in allowances.bounds(self.folder, self.rules):
            # A share of a device that we hold already is no further device.
            again = len(bound.held.intersection(wanted)) if is_shared else 0
            if count - min(again, count) > bound.left():
                self._tell_limit(bound.why)
                return bound
        self._tell_limit("")
        return None

    def _tell_limit(self, why: str) -> None:
        if why and why != self.limit and self._on_limit is not None:
            self._on_limit(why)
        self.limit = why

    def _wait_for_quota(self, bound: Bound) -> bool:
        """Leave the line and watch the holders that count; return whether to look again at once."""
        # No ticket: others would wait behind it for devices that we may not use.
        super().leave()
        obstacles = self.obstacles(bound.held, ())
        self.watch_only(obstacles.names)
        is_new = bool(self.watch(obstacles))
        is_blind = bool(obstacles.hidden) or not self.is_watching(obstacles)
        self.sleep_s = self._pause_s if is_blind else LONGEST_S
        return is_new

    def check_left(self, count: int, wanted: Sequence[str]) -> None:
        """Raise if too few of `wanted` are left beside those whose lease files cannot be used."""
        if self._unusable is not None and sum(device not in self._unfit for device in wanted) < count:
            raise self._unusable

    def _look(self, count: int, wanted: Sequence[str]) -> _Look:
        return _Look(self, count, wanted, self._terms(), self._refused.now(time.monotonic()), self._known)

    def _fit(self, wanted: Sequence[str]) -> Sequence[str]:
        """Return `wanted` without unfit devices; those whose time is over are checked again."""
        if not self._unfit:
            return wanted
        now = time.monotonic()
        over = [device for device, until in self._unfit.items() if until <= now]
        if over:
            self._note_unfit(over, () if self._vet is None else self._vet(over, is_taken=False))
        return [device for device in wanted if device not in self._unfit]

    def _passes(self, got: list[Lease]) -> bool:
        """Return whether all devices that we have just taken may be used; release them if not."""
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

    def hung_up(self, ready: Collection[int]) -> bool:
        """Handle the descriptors that were ready after a sleep; return whether any of them was ours."""
        is_woken = self.drop_hung_up(ready)
        self._pause_s = SHORTEST_S if is_woken else min(2 * self._pause_s, BLIND_S)
        self._yield_s = YIELD_S if is_woken else self._yield_s
        return is_woken

    def leave(self) -> None:
        """Leave the line. Idempotent."""
        self.watch_only(())
        super().leave()
        self._pause_s, self._yield_s, self.sleep_s = SHORTEST_S, YIELD_S, LONGEST_S


class _Look:
    """The line and the devices at one moment: what we may take, and which holders and tickets are in the way."""

    def __init__(
        self,
        line: LinePlace,
        count: int,
        wanted: Sequence[str],
        terms: Terms,
        avoided: Collection[str],
        known: Collection[str] | None,
    ) -> None:
        ahead = line.ahead(known)
        devices = {*wanted, *(device for ticket in ahead for device in ticket.devices)}.difference(avoided)
        rooms = holders.rooms(line.folder, devices, terms)
        held = {device for device in wanted if device not in rooms or rooms[device].sharers}
        self.terms = terms
        self.obstacles = line.obstacles(held, [ticket.name for ticket in ahead])
        self.chosen = tickets.choose(count, wanted, rooms, ahead, locks.boot_ns(), line.collect_for_s, terms)
        #: The devices we want, in the order in which they should be emptied for us.
        self.collected = choice.nearest(wanted, rooms, terms.mib) if held else wanted
        #: Whether there is a device that we leave to those ahead.
        self.is_yielding = self.chosen is None and any(d in rooms and rooms[d].fits(terms.mib) for d in wanted)
        #: Whether a device is too small for us even if all leases end. Processes without a lease may end too, but cause
        #: no hang-up.
        self.is_short = any(terms.mib > terms.capacity_mib.get(device, terms.mib) for device in wanted)
