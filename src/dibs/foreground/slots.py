"""Slots: where a pipe can start one more command, and the leases that its slots share.

A device is leased when a command needs it and kept for the next one. It is released when a process ahead of us in the
line could use it, or when no command is left for it. This module starts no command and never waits.
"""

from __future__ import annotations

import fcntl
import os
import time

from dibs.leases import device_lease, holders, reservations, served_records, tickets, waiters
from dibs.scheduling import choice
from dibs.system import locks
from dibs.system.lean import record
from dibs.system.process_tree import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from dibs.leases.device_lease import Lease, Note
    from dibs.leases.waiters import Vet
    from dibs.scheduling.choice import Terms
    from dibs.system.locks import Folder

#: The lowest descriptor number for our leases, above the numbers on which a command sees them.
KEPT_FD = 400

#: Seconds to keep an idle device for a command that may arrive soon.
IDLE_S = 1.0

#: Seconds between two marks that this user was served, while commands follow each other on kept leases.
SERVED_S = 1.0

#: Seconds until the next attempt to lease unavailable devices, while another slot can be used.
RETRY_S = 1.0

#: Seconds between two messages about waiting.
TELL_S = 60.0

#: Nanoseconds within which two changes of a directory may have the same time: two ticks of the slowest kernel.
TICK_NS = 20_000_000


class Slot:
    """Room for one command at a time, on these devices."""

    def __init__(self, devices: Iterable[str], label: str) -> None:
        self.devices = tuple(dict.fromkeys(devices))
        #: Its name in messages.
        self.label = label


@record
class Etiquette:
    """The limits of a pipe that leave devices to other users: `max_gpus` and `keep_free`."""

    #: Maximum number of devices that we may hold; None: no limit.
    most: int | None = None
    #: The number of these devices that stay free for others.
    keep_free: int = 0
    devices: Collection[str] = ()

    def has_room(self, kept: int, more: int) -> bool:
        """Return whether we may lease more devices beside those that we hold."""
        return self.most is None or kept + more <= self.most

    def leaves_enough(self, place: Folder, more: int) -> bool:
        """Return whether enough devices would stay free for others."""
        if not self.keep_free:
            return True
        return len(self.devices) - len(holders.held(place, self.devices)) - more >= self.keep_free


@record
class LeaseOptions:
    """How slots lease their devices: where, in whose name, on which terms, and who hears of it."""

    place: Folder
    note: Note
    collect_for_s: float = tickets.COLLECT_FOR_S
    on_wait: Callable[[Sequence[str]], None] | None = None
    terms: Callable[[], Terms] = choice.alone
    vet: Vet | None = None
    etiquette: Etiquette = Etiquette()
    #: Hears of the quota that forbids more devices, in words.
    on_limit: Callable[[str], None] | None = None
    #: How long a command may run: its devices must not be reserved before that is over.
    span_s: float = waiters.ASSUMED_S


@record
class _Kept:
    """A device that this process has leased."""

    lease: Lease
    idle_since: float
    #: The number of commands on it.
    running: int = 0


class Slots:
    """The slots of one pipe. The classes in `slot_kinds` decide which slots are free and which comes first."""

    def __init__(self, how: LeaseOptions) -> None:
        self._place = how.place
        self._etiquette = how.etiquette
        #: Enough devices are free for us, but then `keep_free` would not be satisfied.
        self._is_held_back = False
        self._terms = how.terms
        self._collect_for_s = how.collect_for_s
        self._on_wait = how.on_wait
        self._told_at = -NEVER
        self._waiter = waiters.Waiter(
            how.place,
            how.note,
            how.collect_for_s,
            lambda ticket: self._say_wait(ticket.devices),
            how.terms,
            how.vet,
            on_limit=how.on_limit,
            span_s=how.span_s,
        )
        #: Free slots; the next one is last.
        self._idle: list[Slot] = []
        self._kept: dict[str, _Kept] = {}
        #: Devices that we got and have not used yet: that turn is ours, even if others have queued since.
        self._fresh: set[str] = set()
        #: When to ask for more devices. We do not ask again while we watch what blocks them.
        self._ask_at = 0.0
        self._line = _Line(how.place)
        self._served_at = 0.0

    # -- for the loop

    def take(self, now: float) -> Slot | None:
        """Return a slot whose devices we hold, to start a command in; None if there is none now."""
        raise NotImplementedError

    def give(self, slot: Slot, now: float) -> None:
        """Take back a slot whose command has ended."""
        for kept in self._of(slot):
            kept.running -= 1
            kept.idle_since = now
        self._idle.append(slot)

    def inherited(self, slot: Slot) -> list[int]:
        """Return the descriptors through which a command holds its devices itself, even if we are killed."""
        return [fd for kept in self._of(slot) for fd in kept.lease.fds()]

    def fds(self) -> Collection[int]:
        """Return descriptors that become ready when something that blocks us is gone."""
        return self._waiter.fds

    def woken(self, ready: Collection[int], now: float) -> None:
        """Record which descriptors became ready during a sleep."""
        if self._waiter.hung_up(ready):
            self._ask_at = now

    def leave_line(self) -> None:
        """Leave the line until the next `take`."""
        self._waiter.leave()
        self._is_held_back = False
        self._ask_at = 0.0

    def rest(self, now: float, *, is_over: bool) -> float:
        """Release idle devices, at once if no command can follow. Return when to call again."""
        self.leave_line()
        idle = {device: kept.idle_since + IDLE_S for device, kept in self._kept.items() if not kept.running}
        self._release(device for device, until in idle.items() if is_over or until <= now)
        return min((until for device, until in idle.items() if device in self._kept), default=NEVER)

    @property
    def ask_at(self) -> float:
        """Return when to call `take` again even if no descriptor is ready."""
        return self._ask_at if self._waiter.is_waiting or self._is_held_back else NEVER

    def close(self) -> None:
        """Release all leases."""
        self._waiter.leave()
        for kept in self._kept.values():
            kept.lease.close()
        self._kept.clear()

    def _say_wait(self, devices: Sequence[str]) -> None:
        """Report what we wait for (nothing: the limits of the settings), at most once in `TELL_S`."""
        now = time.monotonic()
        if self._on_wait is not None and now - self._told_at >= TELL_S:
            self._told_at = now
            self._on_wait(devices)

    def _of(self, slot: Slot) -> list[_Kept]:
        """Return our leases on a slot's devices; we have none on a device that was leased for us before we started."""
        return [self._kept[device] for device in slot.devices if device in self._kept]

    # -- for the kinds

    def _dropped(self, devices: Collection[str]) -> None:
        """Forget devices that we no longer hold."""

    def _use(self, slot: Slot, now: float) -> Slot:
        """Count a command on the slot's devices."""
        used = self._of(slot)
        for kept in used:
            kept.running += 1
        self._fresh.difference_update(slot.devices)
        if used and now - self._served_at >= SERVED_S:
            # A command on a kept lease counts as a new lease: others in the line must see that we had a turn.
            served_records.mark(self._place)
            self._served_at = now
        if self._waiter.has_ticket and self._line.has_others():
            self._waiter.renew()
        return slot

    def _keep(self, taken: Iterable[Lease], now: float) -> None:
        self._ask_at = 0.0
        self._served_at = now
        for lease in taken:
            move_up(lease)
            self._kept[lease.device] = _Kept(lease, now)
            self._fresh.add(lease.device)

    def _may_use(self, devices: Sequence[str]) -> bool:
        """Return whether no process ahead of us in the line needs these devices; else release the idle ones."""
        devices = [device for device in devices if device not in self._fresh]
        if not devices:
            return True
        if reservations.closed_to_us(self._place, devices):
            self._release([device for device in devices if not self._kept[device].running])
            return False
        if not self._line.has_others():
            return True
        ahead = self._waiter.ahead()
        wanted = {device for ticket in ahead for device in ticket.devices}
        terms = self._terms()
        # Decide as if we had released them and asked again: the same rule holds for every process.
        rooms = holders.rooms(self._place, wanted, terms)
        rooms |= {device: choice.room(terms.capacity_mib.get(device), terms.most) for device in devices}
        if tickets.choose(len(devices), devices, rooms, ahead, locks.boot_ns(), self._collect_for_s) is not None:
            return True
        self._release([device for device in devices if not self._kept[device].running])
        return False

    def _try(self, count: int, wanted: Sequence[str], now: float) -> bool:
        """Lease more devices if they are available now."""
        if not (self._etiquette.has_room(len(self._kept), count) and self._etiquette.leaves_enough(self._place, count)):
            return False
        got = self._waiter.try_now(count, wanted)
        if got is None:
            return False
        self._waiter.leave()
        self._keep(got, now)
        return True

    def _stand(self, count: int, wanted: Sequence[str], now: float) -> bool:
        """Lease more devices, or wait in the line until a holder releases some."""
        if not self._etiquette.has_room(len(self._kept), count):
            return False
        if (self._waiter.is_waiting or self._is_held_back) and now < self._ask_at:
            return False
        self._is_held_back = not self._etiquette.leaves_enough(self._place, count)
        if self._is_held_back:
            self._hold_back(now)
            return False
        got = self._waiter.ask(count, wanted)
        if got is None:
            if not self._kept:
                self._waiter.check_left(count, wanted)
            self._ask_at = now + self._waiter.sleep_s
            return False
        self._keep(got, now)
        return True

    def _hold_back(self, now: float) -> None:
        """Leave the line for now. No event tells us when `keep_free` is satisfied, so check from time to time."""
        self._waiter.leave()
        self._ask_at = now + RETRY_S
        self._say_wait(())

    def _refused(self, now: float) -> None:
        """Delay the next attempt to lease unavailable devices; in the line an event wakes us instead."""
        if not self._waiter.has_ticket:
            self._ask_at = now + RETRY_S

    def _release(self, devices: Iterable[str]) -> None:
        gone = list(devices)
        for device in gone:
            self._fresh.discard(device)
        device_lease.release(self._place, [self._kept.pop(device).lease for device in gone])
        if gone:
            self._dropped(gone)


class _Line:
    """A cheap check whether the line is empty, without a system call per ticket for every command."""

    def __init__(self, place: Folder) -> None:
        self._place = place
        self._seen_ns = -1
        self._has_others = False

    def has_others(self) -> bool:
        """Return whether others may have tickets; the directory's modification time shows when to read it again."""
        changed_ns = os.stat(self._place.line_path).st_mtime_ns
        if changed_ns != self._seen_ns or self._has_others:
            # A second change in the same clock tick would not be noticed.
            is_settled = time.time_ns() - changed_ns > TICK_NS
            own = f"{tickets.TICKET}{os.geteuid()}-{os.getpid()}-"
            names = os.listdir(self._place.line_path)
            self._has_others = any(name.startswith(tickets.TICKET) and not name.startswith(own) for name in names)
            self._seen_ns = changed_ns if is_settled else -1
        return self._has_others


def move_up(lease: Lease) -> None:
    """Move the descriptors of a lease to high numbers, away from those on which a command sees them."""
    file_fd, socket_fd = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, KEPT_FD) for fd in lease.fds())
    lease.close()
    lease.file_fd, lease.socket_fd = file_fd, socket_fd


def key_of(text: str) -> str:
    """Return the lease key of a text that names no device: the text itself, or a checksum of it."""
    try:
        return holders.checked(text)
    except ValueError:
        import zlib

        return f"text-{zlib.crc32(text.encode(errors='surrogateescape')):08x}"
