"""Checks of the lease folder that all users of the machine share, and of who misuses it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from dibs.client.checks import storage
from dibs.client.checks.findings import OK, PROBLEM, WARNING, Finding, Patient
from dibs.leases import blockers, reservations, served_records, tickets, usage_records
from dibs.model import units
from dibs.system import locks, socket_owners, users
from dibs.system.locks import Folder

#: Forged tickets and records that are listed.
MOST_FORGED = 10
#: Prefixes of the names of files that belong to one user, whose uid follows.
RECORDS = (served_records.SERVED, usage_records.USAGE, usage_records.SEEN, reservations.RESERVE)


def lease_folder(patient: Patient) -> list[Finding]:
    """Check the lease folder that all users of the machine share, and who misuses it."""
    place = Folder(patient.place)
    path = place.line_path
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        fix = "It must exist and be writable for all users: chmod 1777."
        return [Finding("leases", PROBLEM, f"{path} cannot be used", fix)]
    return [_lease_mode(patient, place), *_blocked(place), *_forged(place)]


def _lease_mode(patient: Patient, place: Folder) -> Finding:
    mode = stat.S_IMODE(os.stat(place.line_path).st_mode)
    if patient.values.lease_dir is not None:
        fix = "Unset DIBS_LEASE_DIR: it is for tests."
        return Finding("leases", WARNING, f"{place.path} is not the lease folder of other users", fix)
    if mode & 0o1777 != 0o1777:
        fix = f"As root: chmod 1777 {place.path}"
        return Finding("leases", WARNING, f"{place.path} is not open to all users ({mode:04o})", fix)
    if place.is_prepared:
        return Finding("leases", OK, f"in {place.path}, prepared by root")
    fix = "`sudo dibs machine init` protects the files from other users."
    return Finding("leases", OK, f"in {place.path}, shared by all users", fix)


def _blocked(place: Folder) -> list[Finding]:
    found = blockers.find(place, blockers.all_devices(place))
    return [Finding("leases", PROBLEM, f"{device} is {who.text}", who.cure) for device, who in found.items()]


def _forged(place: Folder) -> list[Finding]:
    found = forgeries(place)
    told = [
        Finding("leases", WARNING, f"{path} is ignored: {why}", f"`sudo rm {path}` removes it.")
        for path, why in list(found.items())[:MOST_FORGED]
    ]
    if len(found) > MOST_FORGED:
        told.append(
            Finding("leases", WARNING, f"{len(found) - MOST_FORGED} more tickets, records or reservations are ignored")
        )
    return told


def lease_disk(patient: Patient) -> list[Finding]:
    """Check the disk of the lease folder: a lease that cannot be written is not taken."""
    place = Path(patient.place)
    return storage.room(place, "Free some space: without it no GPU can be leased.") if place.is_dir() else []


def forgeries(place: Folder) -> dict[str, str]:
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
