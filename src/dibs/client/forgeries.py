"""Tickets, records and reservations that do not count, because their owner did not make them; for `dibs doctor`."""

from __future__ import annotations

from dibs.leases import reservations, served_records, tickets, usage_records
from dibs.model import units
from dibs.system import locks, socket_owners, users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.system.locks import Folder

#: Prefixes of the names of files that belong to one user, whose uid follows.
RECORDS = (served_records.SERVED, usage_records.USAGE, usage_records.SEEN, reservations.RESERVE)


def find(place: Folder) -> dict[str, str]:
    """Return the paths of all tickets, records and reservations that do not count, each with the reason."""
    listening, locked = locks.bound(place, "ticket"), locks.flocked()
    found: dict[str, str | None] = {}
    for kind in RECORDS:
        for name in sorted(locks.names(place, kind)):
            uid = name[len(kind) :].partition("-")[0]
            found[place.line_file(name)] = _flaw(place.line_file(name), int(uid)) if units.is_whole(uid) else None
    for name in sorted(locks.names(place, tickets.TICKET)):
        ticket = name[len(tickets.TICKET) :]
        if numbers := tickets.numbers_of(ticket):
            path = tickets.path_of(place, ticket)
            found[path] = _flaw(path, numbers[0]) or _actor(place, ticket, numbers[0], listening, locked)
    return {path: problem for path, problem in found.items() if problem is not None}


def _flaw(path: str, uid: int) -> str | None:
    status = locks.status_of(path)
    problem = None if status is None else served_records.flaw(status, uid)
    if status is None or problem is None or status.st_uid == uid:
        return problem
    return f"{users.name(status.st_uid)} made it in the name of {users.name(uid)}"


def _actor(
    place: Folder, name: str, uid: int, listening: Mapping[str, list[int]], locked: Mapping[str, list[int]]
) -> str | None:
    """Return who listens or holds the lock for a ticket of another user; None if nobody but the user does."""
    whose = users.name(uid)
    listener = socket_owners.listener_uid(tickets.socket_name(place, name), listening.get(name, ()))
    if listener is not None and listener != uid:
        return f"{users.name(listener)} listens in the name of {whose}"
    for pid in locked.get(locks.key_of(tickets.path_of(place, name)) or "", ()):
        holder = locks.uid_of(pid)
        if holder is not None and holder != uid:
            return f"{users.name(holder)} (pid {pid}) holds its lock in the name of {whose}"
    return None
