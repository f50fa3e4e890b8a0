"""The machine-wide line for devices: tickets, and whose turn it is.

A ticket is a file that its owner keeps locked, with a listening socket whose hang-up wakes those behind. A ticket never
changes: to ask for something else, its owner adds a new ticket and drops the old one. A freed device goes to the oldest
ticket of the user who was served least recently.
"""

from __future__ import annotations

import fcntl
import os

from dibs.leases import device_lease, holders
from dibs.model import units
from dibs.scheduling import choice
from dibs.scheduling.choice import Want
from dibs.system import locks, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dibs.scheduling.choice import Room, Terms
    from dibs.system.locks import Folder

#: Prefix of a ticket's file name; uid, pid and the boot-time ns of its creation follow, which makes it unique.
TICKET = ".dibs-ticket-"

#: Readable for all. The sticky bit keeps systemd-tmpfiles from deleting the ticket during a long wait.
TICKET_MODE = 0o1644

#: Seconds for which a ticket for several devices reserves free ones, before it lets others pass for the same time.
COLLECT_FOR_S = 3600.0

#: Listings of the folder before we accept a line that keeps changing.
TRIES = 5


class Ticket:
    """A place in the line, which all users can read."""

    __slots__ = ("count", "devices", "mib", "name", "pid", "since_ns", "uid", "user")

    def __init__(
        self,
        name: str,
        uid: int,
        user: str,
        pid: int,
        since_ns: int,
        count: int,
        devices: tuple[str, ...],
        mib: int = 0,
    ) -> None:
        #: `<uid>-<pid>-<ns>`: the end of the names of its file and its socket.
        self.name = name
        self.uid = uid
        self.user = user
        self.pid = pid
        #: Boot-time ns from which its age counts.
        self.since_ns = since_ns
        self.count = count
        #: Acceptable devices; of devices that are shared now, the first ones are emptied for it.
        self.devices = devices
        #: MiB of each device; 0: all of it.
        self.mib = mib

    def is_collecting(self, now_ns: int, collect_for_s: float) -> bool:
        """Return whether free devices are reserved for it now: always for one device, alternately for several."""
        return self.count <= 1 or self.is_emptying(now_ns, collect_for_s)

    def is_emptying(self, now_ns: int, collect_for_s: float) -> bool:
        """Return whether newcomers are kept off shared devices now: alternately, or GPUs would idle for days."""
        span_ns = int(collect_for_s * 1e9)
        return span_ns > 0 and max(0, now_ns - self.since_ns) // span_ns % 2 == 0


class OwnTicket:
    """The ticket of this process; it is in the line until it is closed or the process ends."""

    __slots__ = ("_file_fd", "_place", "_socket_fd", "ticket")

    def __init__(self, place: Folder, ticket: Ticket) -> None:
        self._place = place
        self.ticket = ticket
        self._file_fd, self._socket_fd = _put(place, ticket)

    def update(self, count: int, devices: Iterable[str], mib: int = 0) -> None:
        """Ask for other devices or another amount, at the same age."""
        wanted = tuple(devices)
        if (count, wanted, mib) != (self.ticket.count, self.ticket.devices, self.ticket.mib):
            self._replace(count, wanted, self.ticket.since_ns, mib)

    def cover(self, devices: Sequence[str]) -> None:
        """Make the ticket ask for all of these devices."""
        if len(devices) > self.ticket.count or not set(devices) <= set(self.ticket.devices):
            self._replace(len(devices), tuple(devices), self.ticket.since_ns, 0)

    def renew(self) -> None:
        """Move to the back of the line."""
        self._replace(self.ticket.count, self.ticket.devices, locks.boot_ns(), self.ticket.mib)

    def close(self) -> None:
        """Leave the line. Idempotent."""
        if self._file_fd < 0:
            return
        _unlink(_path(self._place, self.ticket.name))
        os.close(self._file_fd)
        # The socket closes last, because its hang-up wakes those behind.
        os.close(self._socket_fd)
        self._file_fd = self._socket_fd = -1

    def _replace(self, count: int, devices: tuple[str, ...], since_ns: int, mib: int) -> None:
        """Add the new ticket before dropping the old one, so that we never lose our place."""
        new = queue_up(self._place, count, devices, self.ticket.user, since_ns, mib)
        self.close()
        self.ticket, self._file_fd, self._socket_fd = new.ticket, new._file_fd, new._socket_fd


def queue_up(
    place: Folder, count: int, devices: Iterable[str], user: str = "", since_ns: int | None = None, mib: int = 0
) -> OwnTicket:
    """Add a ticket for `count` of `devices`, or `mib` of each; its age counts from `since_ns`, or from now."""
    wanted = checked(count, devices)
    uid, pid, now_ns = os.geteuid(), os.getpid(), locks.boot_ns()
    since_ns = now_ns if since_ns is None else since_ns
    return OwnTicket(place, Ticket(f"{uid}-{pid}-{now_ns}", uid, user, pid, since_ns, count, wanted, mib))


def checked(count: int, devices: Iterable[str]) -> tuple[str, ...]:
    """Return the devices without duplicates; raise ValueError if there are fewer than `count`."""
    wanted = tuple(dict.fromkeys(holders.checked(device) for device in devices))
    if not 1 <= count <= len(wanted):
        raise ValueError(f"expected a count from 1 to {len(wanted)} (the devices named), got {count}")
    return wanted


def _path(place: Folder, name: str) -> str:
    return place.file(TICKET + name)


def _put(place: Folder, ticket: Ticket) -> tuple[int, int]:
    """Write a ticket; return its locked file and its socket.

    The file appears when it is locked and its socket listens: a file with neither belongs to a dead ticket.
    """
    user = " ".join(ticket.user.split())
    # The amount is on its own line, which older readers ignore.
    amount = f"{ticket.mib} MiB\n" if ticket.mib else ""
    text = f"{ticket.since_ns} {ticket.count} {','.join(ticket.devices)} {user}\n{amount}"
    socket_fd = locks.bind(socket_name(place, ticket.name))
    if socket_fd is None:
        raise locks.Broken(f"somebody else listens as ticket {ticket.name}.", "Try again.")
    file_fd = None
    try:
        temporary, file_fd = locks.make_temporary(place)
        try:
            fcntl.flock(file_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(file_fd, text.encode("utf-8", "replace"), 0)
            os.fchmod(file_fd, TICKET_MODE)
            os.link(temporary, _path(place, ticket.name))
        except OSError as error:
            raise locks.unusable(place, "keep a ticket in", error) from error
        finally:
            os.unlink(temporary)
    except BaseException:
        os.close(socket_fd)
        if file_fd is not None:
            os.close(file_fd)
        raise
    return file_fd, socket_fd


def line(place: Folder) -> list[Ticket]:
    """Return the living tickets in serving order, and remove our own dead ones."""
    tickets = _living(place)
    turns = device_lease.served_of(place, {ticket.uid for ticket in tickets})
    return sorted(tickets, key=lambda ticket: _rank(ticket, turns))


def around(place: Folder, own: OwnTicket | None) -> tuple[list[Ticket], int]:
    """Return all other tickets in serving order, and how many of them come before ours or a new one."""
    name, since_ns = (own.ticket.name, own.ticket.since_ns) if own else ("", locks.boot_ns())
    me = Ticket(name, os.geteuid(), "", os.getpid(), since_ns, 0, ())
    others = _living(place, name)
    turns = device_lease.served_of(place, {me.uid, *(ticket.uid for ticket in others)})
    others.sort(key=lambda ticket: _rank(ticket, turns))
    return others, sum(_rank(ticket, turns) < _rank(me, turns) for ticket in others)


def _rank(ticket: Ticket, turns: dict[int, int]) -> tuple[int, int, str]:
    """Return the sort key of the line. A user who was never served comes first."""
    return turns.get(ticket.uid, 0), ticket.since_ns, ticket.name


def _living(place: Folder, besides: str = "") -> list[Ticket]:
    """Return all valid tickets except our own, in any order."""
    names = _names(place, besides)
    for _ in range(TRIES):
        # Read after the listing: every listed ticket was locked and listening by then.
        listening = set(locks.bound(place, "ticket")) if names else set()
        # Only needed for tickets that listen in another network namespace, or are dead.
        locked = {} if names <= listening else locks.flocked()
        tickets = [_read(place, name, listening, locked) for name in names]
        # A listing can miss a ticket that is being replaced, the old one as well as the new one.
        before, names = names, _names(place, besides)
        if names == before:
            break
    return [ticket for ticket in tickets if ticket is not None]


def _names(place: Folder, besides: str) -> set[str]:
    return {name[len(TICKET) :] for name in locks.names(place, TICKET)} - {besides}


def _read(place: Folder, name: str, listening: set[str], locked: Collection[str]) -> Ticket | None:
    """Return a ticket if it is valid: alive, not stopped, and well-formed."""
    path = _path(place, name)
    if name not in listening and locks.key_of(path) not in locked:
        _bury(path)
        return None
    record = locks.read_small(path)
    ticket = _parse(name, record[0].st_uid, record[1]) if record else None
    proc = processes.look(ticket.pid) if ticket else None
    # A suspended process must not block the line.
    return None if proc is not None and proc.is_stopped else ticket


def _parse(name: str, owner: int, text: str) -> Ticket | None:
    """Parse a ticket; return None if it is malformed or its uid is not the file's `owner`."""
    first, _, second = text.partition("\n")
    words, numbers, amount = first.split(None, 3), name.split("-"), second.split()
    if len(words) < 3 or len(numbers) != 3 or not all(map(units.is_whole, (*words[:2], *numbers, *amount[:1]))):
        return None
    uid, pid, since_ns, count = int(numbers[0]), int(numbers[1]), int(words[0]), int(words[1])
    try:
        # Refuse a count above the number of listed devices: every reader would iterate over it.
        devices = checked(count, words[2].split(","))
    except ValueError:
        return None
    user, mib = words[3].strip() if len(words) > 3 else "", int(amount[0]) if amount else 0
    return Ticket(name, uid, user, pid, since_ns, count, devices, mib) if uid == owner else None


def _bury(path: str) -> None:
    """Remove a dead ticket of ours. Its lock proves that it is dead: the tables may be out of date."""
    try:
        fd = os.open(path, os.O_RDONLY | locks.OPEN_FLAGS)
    except OSError:
        return
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _unlink(path)
    except BlockingIOError:
        return
    finally:
        os.close(fd)


def _unlink(path: str) -> None:
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
    collecting = collectors(ahead, now_ns, collect_for_s)
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
