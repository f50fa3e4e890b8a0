"""The machine-wide line for devices: tickets, and whose turn it is.

A ticket is a file that its owner keeps locked, with a listening socket whose hang-up wakes those behind. A ticket never
changes: to ask for something else, its owner adds a new ticket and drops the old one. A freed device goes to the oldest
ticket of the user who used the least device time for their share (`fair_shares`).

Nothing that a ticket says about its user counts: the kernel names the owner of the file, of the socket and of the lock.
"""

from __future__ import annotations

import fcntl
import os

from dibs.leases import fair_shares, holders, rules_file, served_records
from dibs.model import units
from dibs.scheduling import choice
from dibs.scheduling.choice import Want
from dibs.system import locks, processes, socket_owners, users
from dibs.system.lean import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dibs.leases.fair_shares import Position
    from dibs.leases.rules_file import RulesFile
    from dibs.scheduling.choice import Room, Terms
    from dibs.system.locks import Folder

#: Prefix of a ticket's file name; uid, pid and the boot-time ns of its creation follow, which makes it unique.
TICKET = ".dibs-ticket-"

#: The word before the amount in the ticket of an evictable job. Versions that do not know it ignore such a ticket.
EVICTABLE = "evictable"

#: Seconds for which a ticket for several devices reserves free ones, before it lets others pass for the same time.
COLLECT_FOR_S = 3600.0

#: Listings of the folder before we accept a line that keeps changing.
TRIES = 5

#: Bytes of a ticket that are read, devices of it that count, and tickets of one user that count: nobody can make others
#: read for long.
MOST_BYTES = 4096
MOST_DEVICES = 128
MOST_OF_USER = 16


@record
class Ticket:
    """A place in the line, which all users can read."""

    #: `<uid>-<pid>-<ns>`: the end of the names of its file and its socket.
    name: str
    uid: int
    pid: int
    #: Boot-time ns from which its age counts.
    since_ns: int
    count: int
    #: Acceptable devices; of devices that are shared now, the first ones are emptied for it.
    devices: tuple[str, ...]
    #: MiB of each device; 0: all of it.
    mib: int = 0
    #: Whether it waits with an evictable job, which claims nothing from others.
    is_evictable: bool = False

    @property
    def user(self) -> str:
        """Return the name of its user. The lookup may take time."""
        return users.name(self.uid)

    @property
    def origin(self) -> str:
        """Return the name of the first ticket of its process with this age; the file of that name proves the age."""
        return f"{self.uid}-{self.pid}-{self.since_ns}"

    def is_collecting(self, now_ns: int, collect_for_s: float) -> bool:
        """Return whether free devices are reserved for it now: always for one device, alternately for several."""
        return self.count <= 1 or self.is_emptying(now_ns, collect_for_s)

    def is_emptying(self, now_ns: int, collect_for_s: float) -> bool:
        """Return whether newcomers are kept off shared devices now: alternately, or GPUs would idle for days."""
        span_ns = int(collect_for_s * 1e9)
        return span_ns > 0 and max(0, now_ns - self.since_ns) // span_ns % 2 == 0


def checked(count: int, devices: Iterable[str]) -> tuple[str, ...]:
    """Return the devices without duplicates; raise ValueError if there are fewer than `count`."""
    wanted = tuple(dict.fromkeys(holders.checked(device) for device in devices))
    if not 1 <= count <= len(wanted):
        raise ValueError(f"expected a count from 1 to {len(wanted)} (the devices named), got {count}")
    return wanted


def path_of(place: Folder, name: str) -> str:
    """Return the path of the ticket of this name."""
    return place.line_file(TICKET + name)


def line(place: Folder, known: Collection[str] | None = None) -> list[Ticket]:
    """Return the living tickets in serving order, and remove our own dead ones; see `around` for `known`."""
    tickets = _living(place, "", known)
    turns = _positions(place, rules_file.rules_of_folder(place), {ticket.uid for ticket in tickets})
    return sorted(tickets, key=lambda ticket: _rank(ticket, turns))


def around(
    place: Folder, own: Ticket | None, known: Collection[str] | None = None, rules: RulesFile | None = None
) -> tuple[list[Ticket], int]:
    """Return all other tickets in serving order, and how many of them come before ours or a new one.

    Devices that are not `known` to the reader are left out of them. `rules` has the shares of users.
    """
    name, since_ns = (own.name, own.since_ns) if own else ("", locks.boot_ns())
    me = Ticket(name, os.geteuid(), os.getpid(), since_ns, 0, ())
    others = _living(place, name, known)
    turns = _positions(place, rules or rules_file.rules_of_folder(place), {me.uid, *(ticket.uid for ticket in others)})
    others.sort(key=lambda ticket: _rank(ticket, turns))
    return others, sum(_rank(ticket, turns) < _rank(me, turns) for ticket in others)


def _positions(place: Folder, rules: RulesFile, uids: Collection[int]) -> dict[int, Position]:
    """Return where users stand; between tickets of one user it does not matter."""
    return fair_shares.of_users(place, rules, uids) if len(uids) > 1 else {}


def _rank(ticket: Ticket, positions: dict[int, Position]) -> tuple[tuple[float, int], int, str]:
    """Return the sort key of the line. A user who was never served comes first."""
    return positions.get(ticket.uid, fair_shares.NEW).key, ticket.since_ns, ticket.name


def _living(place: Folder, own: str, known: Collection[str] | None) -> list[Ticket]:
    """Return all valid tickets except our `own`, in any order."""
    names = _names(place)
    for _ in range(TRIES):
        reading = _Reading(place, known)
        reading.read(names - {own})
        # A listing can miss a ticket that is being replaced, the old one as well as the new one.
        before, names = names, _names(place)
        if names == before:
            reading.bury()
            break
    return reading.tickets


def _names(place: Folder) -> set[str]:
    return {name[len(TICKET) :] for name in locks.names(place, TICKET)}


def numbers_of(name: str) -> tuple[int, int, int] | None:
    """Return the uid, pid and time in the name of a ticket; None if it is not one."""
    words = name.split("-")
    return (
        (int(words[0]), int(words[1]), int(words[2])) if len(words) == 3 and all(map(units.is_whole, words)) else None
    )


class _Reading:
    """One reading of the line. The cheapest checks come first: anybody can add files and sockets without end."""

    def __init__(self, place: Folder, known: Collection[str] | None) -> None:
        self._place = place
        self._known = known
        #: How many tickets of each user were examined.
        self._counts: dict[int, int] = {}
        #: Files that only prove the age of a ticket (see `Ticket.origin`), and dead tickets of ours.
        self._origins: set[str] = set()
        self._dead: list[str] = []
        self.tickets: list[Ticket] = []

    def read(self, names: Collection[str]) -> None:
        """Read the tickets with these names, the oldest ones first."""
        # Read after the listing: every listed ticket was locked and listening by then.
        listening = locks.bound(self._place, "ticket") if names else {}
        ordered = sorted((numbers, name) for name in names if (numbers := numbers_of(name)) is not None)
        files = [_TicketFile(self._place, name, *numbers) for numbers, name in ordered]
        sound = [file for file in files if file.is_sound]
        for file in sound:
            if file.name in listening and self._may_examine(file.uid) and file.is_heard(listening[file.name]):
                self._add(file)
        silent = [file for file in sound if file.name not in self._origins and not file.is_alive]
        # Only needed for tickets that listen in another network namespace, or are dead or forged.
        locked = locks.flocked() if silent else {}
        for file in silent:
            pids = locked.get(file.key, ())
            if pids and self._may_examine(file.uid) and file.is_locked(pids):
                self._add(file)
            elif not pids and file.uid == os.geteuid():
                self._dead.append(file.path)

    def _may_examine(self, uid: int) -> bool:
        """Count one more ticket of a user; return whether it may still count."""
        self._counts[uid] = self._counts.get(uid, 0) + 1
        return self._counts[uid] <= MOST_OF_USER

    def _add(self, file: _TicketFile) -> None:
        """Keep a ticket that is alive, if it is valid and its process not stopped."""
        ticket = file.ticket(self._known)
        if ticket is None:
            return
        self._origins.add(ticket.origin)
        ticket.since_ns = file.proven_since(ticket)
        proc = processes.look(ticket.pid)
        # A suspended process must not block the line.
        if proc is None or not proc.is_stopped:
            self.tickets.append(ticket)

    def bury(self) -> None:
        """Remove our dead tickets."""
        for path in self._dead:
            _bury(path)


class _TicketFile:
    """The file of a ticket, and who is behind it as the kernel says."""

    def __init__(self, place: Folder, name: str, uid: int, pid: int, _: int) -> None:
        self._place = place
        self.name = name
        self.uid = uid
        self.pid = pid
        self.path = path_of(place, name)
        #: Its user has it, as the kernel confirmed.
        self.is_alive = False
        self._status = locks.status_of(self.path)

    @property
    def is_sound(self) -> bool:
        """Return whether only its user can have made it."""
        return self._status is not None and served_records.flaw(self._status, self.uid) is None

    @property
    def key(self) -> str:
        """Return its name in the table of locks."""
        return "" if self._status is None else locks.key(self._status)

    def is_heard(self, inodes: Iterable[int]) -> bool:
        """Return whether its user listens on its socket."""
        self.is_alive = socket_owners.listener_uid(socket_name(self._place, self.name), inodes) == self.uid
        return self.is_alive

    def is_locked(self, pids: Iterable[int]) -> bool:
        """Return whether its user is among those who hold its lock."""
        self.is_alive = any(locks.uid_of(pid) == self.uid for pid in pids)
        return self.is_alive

    def ticket(self, known: Collection[str] | None) -> Ticket | None:
        """Return what it says; None if it is no valid ticket."""
        record = locks.read_small(self.path, size=MOST_BYTES)
        if record is None or served_records.flaw(record[0], self.uid) is not None:
            return None
        self._status = record[0]
        return _parse(self.name, self.uid, self.pid, record[1], known)

    def proven_since(self, ticket: Ticket) -> int:
        """Return the age of a ticket, but none before the change time of its file, or of its user's first one."""
        assert self._status is not None
        since_ns = served_records.not_before_change(ticket.since_ns, self._status)
        first = locks.status_of(path_of(self._place, ticket.origin)) if since_ns > ticket.since_ns else None
        if first is None or served_records.flaw(first, self.uid) is not None:
            return since_ns
        return served_records.not_before_change(ticket.since_ns, first)


def _parse(name: str, uid: int, pid: int, text: str, known: Collection[str] | None) -> Ticket | None:
    """Parse a ticket; return None if it is malformed, or asks for no device that the reader knows."""
    first, _, second = text.partition("\n")
    words, amount = first.split(None, 3), second.split()
    is_evictable = amount[:1] == [EVICTABLE]
    amount = amount[is_evictable:]
    if len(words) < 3 or not all(map(units.is_whole, (*words[:2], *amount[:1]))):
        return None
    since_ns, count = int(words[0]), int(words[1])
    listed = words[2].split(",", MOST_DEVICES)[:MOST_DEVICES]
    try:
        # Refuse a count above the number of listed devices: every reader would iterate over it.
        devices = checked(count, listed)
    except ValueError:
        return None
    if known is not None:
        devices = tuple(device for device in devices if device in known)
    mib = int(amount[0]) if amount else 0
    return Ticket(name, uid, pid, since_ns, count, devices, mib, is_evictable) if devices else None


def _bury(path: str) -> None:
    """Remove a dead ticket of ours. Its lock proves that it is dead: the tables may be out of date."""
    try:
        fd = os.open(path, os.O_RDONLY | locks.OPEN_FLAGS)
    except OSError:
        return
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlink(path)
    except BlockingIOError:
        return
    finally:
        os.close(fd)


def unlink(path: str) -> None:
    """Remove a file of the line, such as a ticket, if it is there and we may."""
    try:
        os.unlink(path)
    except OSError:
        # Already removed, or in a folder where only root may remove files: a ticket without its lock is ignored.
        return


def choose(
    count: int,
    wanted: Sequence[str],
    rooms: Mapping[str, Room],
    ahead: Iterable[Ticket],
    now_ns: int,
    collect_for_s: float = COLLECT_FOR_S,
    terms: Terms = choice.ALONE,
) -> tuple[str, ...] | None:
    """Return `count` devices of `wanted` whose use takes nothing from the tickets ahead; None if there are none."""
    collecting = collectors((ticket for ticket in ahead if not ticket.is_evictable), now_ns, collect_for_s)
    wants = [Want(ticket.count, ticket.devices, ticket.mib, is_emptying) for ticket, is_emptying in collecting]
    return choice.choose(count, wanted, rooms, wants, terms)


def collectors(line: Iterable[Ticket], now_ns: int, collect_for_s: float) -> list[tuple[Ticket, bool]]:
    """Return the tickets for which free devices are reserved now, each with whether shared ones are emptied for it."""
    return [
        (ticket, ticket.is_emptying(now_ns, collect_for_s))
        for ticket in line
        if ticket.is_collecting(now_ns, collect_for_s)
    ]


def socket_name(place: Folder, name: str) -> bytes:
    """Return the name, for `locks.connect`, of the socket that hangs up when the ticket of this name is dropped."""
    return place.socket("ticket", name)
