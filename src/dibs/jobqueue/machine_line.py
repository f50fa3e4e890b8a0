"""The daemon in the machine-wide line: leases of others, the order of tickets, and the ticket of our first waiting job.

`scheduling` decides what to start. This module translates the machine's state for it, and watches obstacles through
the reactor.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dibs.leases import (
    allowances,
    blockers,
    evictable_marks,
    fair_shares,
    holders,
    reservation_copies,
    reservations,
    rules_file,
    tickets,
    usage_records,
    waiters,
)
from dibs.leases.allowances import Bound
from dibs.leases.lease_observer import LeaseObserver
from dibs.leases.line import LinePlace
from dibs.model import devices
from dibs.model.devices import Closure, DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.model.lab_rules import Quota
from dibs.scheduling.views import Active, Collector, Occupant, Policy, Position
from dibs.system import locks, users

#: Seconds for which we expect another user's evictable job to yield; then one of ours does.
OVERDUE_S = 120.0

#: Seconds until the next look while something in our way cannot be watched.
BLIND_S = 0.5

#: Connections to our bell that are accepted at a time.
MOST_RINGS = 1000

#: Seconds between two looks at who holds what, for the record of device time.
OBSERVE_S = 5.0


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
    #: Root's quotas, and what of them is used.
    bounds: Sequence[Bound] = ()
    #: Devices that are lent to evictable jobs.
    lent: frozenset[DeviceId] = frozenset()


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
        #: They count as held.
        self._refused = blockers.RefusedDevices(folder)
        #: Something in our way cannot be watched.
        self._is_blind = False
        self._looks_at = 0.0
        #: When we look again because of a refused device.
        self._retries_at: float | None = None
        #: Since when each device of another user's evictable job is expected to be given up.
        self._expected: dict[DeviceId, float] = {}
        self._bell: int | None = None
        self._yield_s = waiters.YIELD_S
        self._observer = LeaseObserver(folder)
        self._observes_at = 0.0

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
        held |= self._evictable(elsewhere, table)
        held |= {device: Occupant("somebody") for device in self._shunned(elsewhere, table) if device not in ours}
        self._is_alone = not self._place.listening(table)
        names = frozenset(socket.name for socket in shares if DeviceId(socket.device) in sharers)
        lent = frozenset(DeviceId(socket.device) for socket in seen if socket.is_loan)
        bounds = allowances.bounds(self.folder, self._place.rules, table)
        if self._is_alone:
            return Outlook(held, sharers=sharers, shares=names, bounds=bounds, lent=lent)
        others, before = self._place.around({*inventory.ids})
        # Only explanations need names, and the lookup of a name may take time.
        collectors, ahead = self._collectors(others, before, str)
        tickets_seen = frozenset(ticket.name for ticket in others)
        return Outlook(held, collectors, ahead, tickets_seen, sharers, names, bounds, lent)

    @property
    def idle_after_s(self) -> float | None:
        """Return after how many seconds root lends a device whose lease is idle; None: never. From any thread."""
        rules = self._place.rules.now()
        return rules.idle_after_s if rules.lends_idle else None

    def apart(self, active: Sequence[Active]) -> list[Active]:
        """Return our jobs, those on lent devices without them: these belong to their holders."""
        devices = {device for job in active if job.is_evictable for device in job.devices}
        if not devices:
            return list(active)
        lent = {socket.device for socket in holders.sockets(self.folder, devices) if socket.is_loan}
        return [job.apart() if job.is_evictable and not lent.isdisjoint(job.devices) else job for job in active]

    def _evictable(self, devices: Sequence[DeviceId], table: bytes) -> dict[DeviceId, Occupant]:
        """Return the evictable holders of devices, except those who did not yield when it was their turn."""
        named = [*map(DeviceId, evictable_marks.marked(self.folder, devices, table))]
        if not named:
            return {}
        now = time.monotonic()
        found = {}
        for device, who in holders.survey(self.folder, named, table).items():
            late = now - self._expected.get(DeviceId(device), now) > OVERDUE_S
            if len(who) == 1 and who[0].is_evictable and who[0].since is not None and not late:
                since, by = int(who[0].since * 1000), who[0].evicted_by
                occupant = Occupant(str(who[0].uid), who[0].pid, is_evictable=True, evicted_by=by, started_at=since)
                found[DeviceId(device)] = occupant
        return found

    def expect(self, devices: Iterable[DeviceId]) -> None:
        """Note that other users' evictable jobs are to give up these devices: we wait for them for a while."""
        now = time.monotonic()
        kept = {device: at for device, at in self._expected.items() if now - at > OVERDUE_S}
        self._expected = {device: self._expected.get(device, now) for device in devices} | kept

    def listen(self, wake: Callable[[], None]) -> None:
        """Hang up a bell, once, that others ring when they begin to wait: we have evictable jobs."""
        if self._bell is None:
            self._bell = evictable_marks.hang_bell(self.folder)
            if self._bell is not None:
                self._watch(self._bell, lambda: self._rung(wake))

    def _rung(self, wake: Callable[[], None]) -> None:
        assert self._bell is not None
        bell = socket.socket(fileno=self._bell)
        try:
            # Not all of them: who rings without pause would keep us here.
            for _ in range(MOST_RINGS):
                bell.accept()[0].close()
        except OSError:
            # Nobody else rings now.
            pass
        bell.detach()
        wake()

    def listen_again(self, wake: Callable[[], None]) -> None:
        """Watch the bell again after it rang."""
        if self._bell is not None:
            self._watch(self._bell, lambda: self._rung(wake))

    def _shunned(self, devices: Sequence[DeviceId], table: bytes) -> Sequence[DeviceId]:
        """Return the devices that we leave alone, those included that somebody blocks now."""
        now = time.monotonic()
        # An honest process binds a socket just before it listens on it.
        self._refused.avoid(blockers.deaf_devices(self.folder, devices, table), now)
        return [*map(DeviceId, self._refused.now(now))]

    def observe(self) -> bool:
        """Count who holds what, at most every `OBSERVE_S`; return whether it was written down."""
        now = time.monotonic()
        if now < self._observes_at:
            return False
        self._observes_at = now + OBSERVE_S
        return self._observer.look()

    def people_days(self) -> list[tuple[int, int, float]]:
        """Return the device time of all users today and yesterday: the day, the uid, and milliseconds."""
        today = int(time.time() // usage_records.DAY_S)
        found = usage_records.days_of_users(self.folder, usage_records.known_users(self.folder))
        return [(day, uid, ms) for uid, days in found.items() for day, ms in days.items() if day >= today - 1]

    def restore(self, people: Sequence[tuple[int, int, float]]) -> None:
        """Write back our own device time of earlier days, if a reboot removed the record of it."""
        own = {day: ms for day, uid, ms in people if uid == os.geteuid()}
        if own:
            with usage_records.OwnRecord(self.folder) as record:
                record.restore(own)

    def restore_reservations(self, home: Path) -> None:
        """Put back our reservations that the lease folder lost in a reboot."""
        reservation_copies.restore(self.folder, str(home), time.time())

    def positions(self, line: Sequence[Collector]) -> dict[str, Position]:
        """Return where we, under an empty name, and those in the line stand in the order between users."""
        if not line:
            return {}
        me = os.geteuid()
        uids = {me, *(ticket.uid for ticket in tickets.line(self.folder))}
        found = fair_shares.of_users(self.folder, self._place.rules, uids)
        return {"" if uid == me else users.name(uid): Position(one.used_s, one.share) for uid, one in found.items()}

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
            Collector(name_of(ticket.uid), ticket.count, ticket.devices, ticket.mib, is_emptying, ticket.is_evictable)
            for ticket, is_emptying in (*ahead, *behind)
        )
        return tuple(found), len(ahead)

    def with_reservations(self, inventory: Inventory, assumed_s: float, now: int) -> tuple[Inventory, int | None]:
        """Return the inventory with what is reserved, and when that changes next; None: nothing is."""
        now_s, unused_for_s = now / 1000, self._place.rules.now().unused_for_s
        found = reservations.read_all(self.folder, now_s)
        if not found:
            return inventory, None
        kept = reservations.kept(self.folder, found, inventory.ids, now_s, unused_for_s)
        closed = reservations.closures(kept, os.geteuid(), now_s)
        marks = {DeviceId(device): _closure(one, assumed_s, now) for device, one in closed.items()}
        change_s = reservations.next_change_s(found, now_s, unused_for_s)
        return devices.with_closures(inventory, marks), None if change_s is None else int(change_s * 1000) + 1

    def quotas(self) -> Sequence[tuple[str, Quota]]:
        """Return root's quotas for this user, each with what it is called."""
        return rules_file.quotas(self._place.rules.now())

    def project_quotas(self, own: Mapping[str, Quota]) -> dict[str, Quota]:
        """Return the quotas of projects: our own, and root's as they are now, which count first."""
        return {**own, **self._place.rules.now().project}

    def bounds(self) -> Sequence[Bound]:
        """Return root's quotas, and what of them is used."""
        return allowances.bounds(self.folder, self._place.rules)

    def used_at(self, inventory: Inventory) -> dict[DeviceId, float]:
        """Return when each device was last taken."""
        return {DeviceId(device): at for device, at in holders.used_at(self.folder, inventory.ids).items()}

    def shun(self, device: DeviceId) -> float:
        """Note that a device was refused and no holder is visible; return for how many seconds it counts as held."""
        return self._refused.refuse(device, time.monotonic())

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
            self._place.join(request.gpus, wanted, request.mib, request.is_evictable)

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
        shunned = self._refused.now(time.monotonic())
        unseen = [device for device in outlook.held if device in obstacles.hidden and device not in shunned]
        is_gone = len(holders.held(self.folder, unseen)) < len(unseen) or not outlook.tickets <= listening
        return bool(new) or is_gone or not outlook.shares <= obstacles.names

    def look_again_s(self, now: float, is_yielding: bool = False) -> float | None:
        """Return the seconds after which to look again; None if an event or an earlier answer of this does it.

        `is_yielding`: we leave a free device to a ticket ahead, which may leave it to us: the order of users changes
        with time, and each may have looked at another moment.
        """
        retry_at, is_new = self._refused.retry_at, self._refused.retry_at != self._retries_at
        self._retries_at = retry_at
        if retry_at is not None and is_new:
            return max(0.0, retry_at - time.monotonic())
        if now < self._looks_at:
            return None
        if self._is_blind:
            self._looks_at = now + BLIND_S
            return BLIND_S
        if retry_at is not None:
            return None
        if not is_yielding:
            self._yield_s = waiters.YIELD_S
            return None
        span_s = self._yield_s
        self._yield_s = min(2 * span_s, waiters.LONGEST_S)
        self._looks_at = now + span_s
        return span_s

    def _hung_up(self, fd: int, wake: Callable[[], None]) -> None:
        self._place.drop_hung_up((fd,))
        wake()


def _closure(one: reservations.Closure, assumed_s: float, now: int) -> Closure:
    return Closure(int(one.at_s * 1000), int(one.until_s * 1000), reservations.text(one), assumed_s, now)


def within_quotas(policy: Policy, bounds: Sequence[Bound], active: Sequence[Active]) -> Policy:
    """Return the policy with the most devices that our jobs may use now, because of what we hold otherwise too."""
    ours = {device for job in active for device in job.devices}
    for bound in bounds:
        most = bound.most - len(bound.held - ours)
        if policy.max_gpus is None or most < policy.max_gpus:
            policy = replace(policy, max_gpus=most, quota=bound.why)
    return policy


def _sharers(shares: Sequence[holders.Socket], active: Sequence[Active]) -> dict[DeviceId, list[Occupant]]:
    """Return the shares that our own jobs do not hold.

    Ours are recognised only by their amount, which is exactly what the job declared. While a job of ours does not hold
    its share yet, an equal share of another user counts as ours; the runner is then refused and tries again.
    """
    ours = Counter((device, job.mib) for job in active if job.mib for device in job.devices)
    found: dict[DeviceId, list[Occupant]] = {}
    for share in shares:
        device, mib = DeviceId(share.device), share.mib or 0
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
    if not others:
        return {}, {}
    table, locked = locks.table(), locks.LockTable()
    for device, found in holders.survey(folder, others, table, locked).items():
        for who in found:
            if who.uid == os.geteuid() and (DeviceId(device), who.job) in ours and not who.is_loan:
                continue
            occupant = Occupant(
                who.user or "somebody", who.pid, who.job or None, who.mib or 0, is_evictable=who.is_evictable
            )
            if who.is_loan and DeviceId(device) in held:
                # The holder is before the borrower.
                lent_to = f"{occupant.user}'s job {occupant.job}" if occupant.job else occupant.user
                held[DeviceId(device)] = replace(held[DeviceId(device)], lent_to=lent_to)
            elif who.mib is None:
                held.setdefault(DeviceId(device), occupant)
            else:
                sharers.setdefault(DeviceId(device), []).append(occupant)
    for device, blocker in blockers.find(folder, others, table, locked).items():
        held.setdefault(DeviceId(device), _blocked_by(blocker))
    return held, sharers


def _blocked_by(blocker: blockers.Blocker) -> Occupant:
    """Return who blocks a device, for explanations."""
    return Occupant(blocker.user or "somebody", blocker.pid, note=blocker.text, cure=blocker.cure)
