"""The ticket of this process in the machine-wide line: to add one, change it, and leave."""

from __future__ import annotations

import fcntl
import os

from dibs.leases import evictable_marks, tickets
from dibs.leases.tickets import Ticket
from dibs.system import locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dibs.system.locks import Folder

#: Readable for all. The sticky bit keeps systemd-tmpfiles from deleting the ticket during a long wait.
TICKET_MODE = 0o1644


class OwnTicket:
    """The ticket of this process; it is in the line until it is closed or the process ends.

    The file of the first ticket of its age stays until then: a newer file cannot prove that we wait for longer.
    """

    def __init__(self, place: Folder, ticket: Ticket) -> None:
        self._place = place
        self.ticket = ticket
        self._file_fd, self._socket_fd = _put(place, ticket)

    def update(self, count: int, devices: Iterable[str], mib: int = 0, is_evictable: bool = False) -> None:
        """Ask for other devices or another amount, at the same age."""
        wanted, own = tuple(devices), self.ticket
        if (count, wanted, mib, is_evictable) != (own.count, own.devices, own.mib, own.is_evictable):
            self._replace(count, wanted, own.since_ns, mib, is_evictable)

    def cover(self, devices: Sequence[str]) -> None:
        """Make the ticket ask for all of these devices."""
        if len(devices) > self.ticket.count or not set(devices) <= set(self.ticket.devices):
            self._replace(len(devices), tuple(devices), self.ticket.since_ns, 0, self.ticket.is_evictable)

    def renew(self) -> None:
        """Move to the back of the line."""
        self._replace(self.ticket.count, self.ticket.devices, None, self.ticket.mib, self.ticket.is_evictable)

    def close(self) -> None:
        """Leave the line. Idempotent."""
        self._drop({self.ticket.name, self.ticket.origin})

    def _drop(self, names: Iterable[str]) -> None:
        if self._file_fd < 0:
            return
        for name in names:
            tickets.unlink(tickets.path_of(self._place, name))
        os.close(self._file_fd)
        # The socket closes last, because its hang-up wakes those behind.
        os.close(self._socket_fd)
        self._file_fd = self._socket_fd = -1

    def _replace(
        self, count: int, devices: tuple[str, ...], since_ns: int | None, mib: int, is_evictable: bool
    ) -> None:
        """Add the new ticket before dropping the old one, so that we never lose our place."""
        new = queue_up(self._place, count, devices, since_ns, mib, is_evictable)
        self._drop({self.ticket.name, self.ticket.origin} - {new.ticket.origin})
        self.ticket, self._file_fd, self._socket_fd = new.ticket, new._file_fd, new._socket_fd


def queue_up(
    place: Folder,
    count: int,
    devices: Iterable[str],
    since_ns: int | None = None,
    mib: int = 0,
    is_evictable: bool = False,
) -> OwnTicket:
    """Add a ticket for `count` of `devices`, or `mib` of each; its age counts from `since_ns`, or from now."""
    wanted = tickets.checked(count, devices)
    uid, pid, now_ns = os.geteuid(), os.getpid(), locks.boot_ns()
    since_ns = now_ns if since_ns is None else since_ns
    return OwnTicket(place, Ticket(f"{uid}-{pid}-{now_ns}", uid, pid, since_ns, count, wanted, mib, is_evictable))


def _put(place: Folder, ticket: Ticket) -> tuple[int, int]:
    """Write a ticket; return its locked file and its socket.

    The file appears when it is locked and its socket listens: a file with neither belongs to a dead ticket.
    """
    # The amount is on its own line, which older readers ignore.
    amount = f"{ticket.mib} MiB\n" if ticket.mib else ""
    if ticket.is_evictable:
        amount = f"{tickets.EVICTABLE} {amount}".rstrip() + "\n"
    text = f"{ticket.since_ns} {ticket.count} {','.join(ticket.devices)}\n{amount}"
    socket_fd = locks.bind(tickets.socket_name(place, ticket.name))
    if socket_fd is None:
        raise locks.Broken(f"somebody else listens as ticket {ticket.name}.", "Try again.")
    file_fd = None
    try:
        temporary, file_fd = locks.make_temporary(place, place.line_path)
        try:
            fcntl.flock(file_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(file_fd, text.encode("ascii"), 0)
            os.fchmod(file_fd, TICKET_MODE)
            # Not a link, which would give it two names for a moment: such a ticket does not count.
            os.rename(temporary, tickets.path_of(place, ticket.name))
            if not ticket.is_evictable:
                evictable_marks.ring(place, ticket.devices)
        except OSError as error:
            tickets.unlink(temporary)
            raise locks.unusable(place, "keep a ticket in", error) from error
    except BaseException:
        os.close(socket_fd)
        if file_fd is not None:
            os.close(file_fd)
        raise
    return file_fd, socket_fd
