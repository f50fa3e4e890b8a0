"""Marks that say which holders of a device are evictable, and bells that tell their daemons that somebody waits.

Both are listening abstract sockets, so the kernel names the user behind each, and they end with their process. A mark
belongs to the runner of the job: without a runner nobody could warn the job. A bell belongs to a daemon that has
evictable jobs; connecting to it makes the daemon look at the line.

Also loans: where root allows it, an evictable job uses a device whose lease is idle. It then has a lease of its own
under another name, beside that of the holder.
"""

from __future__ import annotations

import os

from dibs.system import locks, socket_owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.system.locks import Folder

#: Kinds of socket names.
MARK, BELL = "evictable", "bell"

#: What precedes the id of a device in the name of a loan.
LOAN = "idle-"

#: Bells that are rung for one ticket, those of one user, and those that are examined. Every user can bind any number
#: of them, under any name.
MOST_BELLS, MOST_OF_USER, MOST_EXAMINED = 64, 8, 256


def loan_of(device: str) -> str:
    """Return the name under which an evictable job leases a device beside its idle holder."""
    return f"{LOAN}{device}"


def lent_device(lease: str) -> str | None:
    """Return the device that a lease borrows; None: it is no loan."""
    return lease[len(LOAN) :] if lease.startswith(LOAN) else None


def put(place: Folder, devices: Iterable[str]) -> list[int]:
    """Mark our leases of these devices; return the descriptors that keep the marks.

    A name that is taken is left out: the job is then evictable for its own user only.
    """
    names = (place.socket(MARK, device.replace(".", "/")) for device in devices)
    return [fd for name in names if (fd := locks.bind(name)) is not None]


def marked(place: Folder, devices: Iterable[str], table: bytes | None = None) -> dict[str, int]:
    """Return the marked ones of `devices`, each with the user who marked it; it counts only for leases of that user."""
    found = {}
    marks = locks.bound(place, MARK, table)
    for device in devices if marks else ():
        rest = device.replace(".", "/")
        uid = socket_owners.listener_uid(place.socket(MARK, rest), marks.get(rest, ()))
        if uid is not None:
            found[device] = uid
    return found


def hang_bell(place: Folder) -> int | None:
    """Return a socket that becomes readable when somebody new waits in the line; None if its name is taken."""
    return locks.bind(place.socket(BELL, f"{os.geteuid()}-{os.getpid()}"))


def ring(place: Folder, devices: Iterable[str]) -> None:
    """Tell the daemons with evictable jobs that we wait for `devices` now; first those whose jobs have them."""
    table = locks.table()
    bells = locks.bound(place, BELL, table)
    if not bells:
        return
    first = {f"{uid}" for uid in marked(place, devices, table).values()}
    rung: dict[str, int] = {}
    for rest in sorted(bells, key=lambda rest: _owner(rest) not in first)[:MOST_EXAMINED]:
        owner, name = _owner(rest), place.socket(BELL, rest)
        # The kernel names nobody before Linux 5.3.
        if rung.get(owner, 0) < MOST_OF_USER and f"{socket_owners.listener_uid(name, bells[rest])}" in (owner, "None"):
            rung[owner] = rung.get(owner, 0) + 1
            fd = locks.connect(name)
            if fd is not None:
                os.close(fd)
        if sum(rung.values()) == MOST_BELLS:
            return


def _owner(rest: str) -> str:
    """Return the uid in the name of a bell, which anybody may have chosen."""
    return rest.partition("-")[0]
