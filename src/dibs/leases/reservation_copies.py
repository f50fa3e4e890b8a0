"""Copies of reservations that outlive a reboot, which empties the lease folder.

    STATE/reservations/PREFIX-ID           of a user, below the state folder; the user's daemon puts lost ones back
    /var/lib/dibs/.dibs-reserve-0-ID       of root; every process reads them there
    /var/lib/dibs/.dibs-cancelled-UID-ID   root cancelled this reservation of a user: it is not put back

What is in the lease folder counts. A copy is removed when its reservation is cancelled or over.
"""

from __future__ import annotations

import os
import time

from dibs.leases import reservations, served_records
from dibs.model import units
from dibs.system import locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.leases.reservations import Reservation
    from dibs.system.locks import Folder

#: The folder of a user's copies, below the state folder.
COPIES = "reservations"
#: Prefix of the name of root's note that a reservation of a user was cancelled; uid and number follow.
CANCELLED = ".dibs-cancelled-"
#: Seconds for which such a note is kept: no reservation of a user lasts longer.
NOTED_S = reservations.REPEATED_S + reservations.AHEAD_S + reservations.LONGEST_S


def keep(place: Folder, home: str, one: Reservation) -> None:
    """Write a copy of a reservation of ours; raise OSError if we cannot."""
    path = _copy_path(place, home, one.number)
    _make_folder(os.path.dirname(path))
    reservations.write(path, one)


def _copy_path(place: Folder, home: str, number: int) -> str:
    folder = reservations.roots_folder(place) if os.geteuid() == 0 else None
    if folder is not None:
        return f"{folder}/{reservations.RESERVE}0-{number}"
    return f"{home}/{COPIES}/{place.prefix}-{number}"


def _make_folder(path: str) -> None:
    """Make a folder that all may read, whatever the umask; a user's is below a private one."""
    if not os.path.isdir(path):
        os.makedirs(path)
        os.chmod(path, 0o755)


# -- putting back -----------------------------------------------------------------------------------------------------


def restore(place: Folder, home: str, now_s: float) -> list[int]:
    """Put back our reservations that the lease folder lost; forget copies of those that are over or cancelled.

    Return the numbers of those that were put back. A number that somebody else has got meanwhile is replaced.
    """
    copies = [_read(place, home, number) for number in _numbers(place, home)]
    return [number for one in copies if one is not None and (number := _restored(place, home, one, now_s))]


def _numbers(place: Folder, home: str) -> list[int]:
    try:
        names = os.listdir(f"{home}/{COPIES}")
    except OSError:
        return []
    words = [name.rpartition("-") for name in names]
    return sorted(int(number) for prefix, _, number in words if prefix == place.prefix and units.is_whole(number))


def _read(place: Folder, home: str, number: int) -> Reservation | None:
    found = locks.read_small(f"{home}/{COPIES}/{place.prefix}-{number}", size=reservations.MOST_BYTES)
    return None if found is None else reservations.parse(found[1], os.geteuid(), number)


def _restored(place: Folder, home: str, one: Reservation, now_s: float) -> int | None:
    """Put back one reservation if it is lost; return its number then."""
    copy = f"{home}/{COPIES}/{place.prefix}-{one.number}"
    if one.window(now_s) is None or _is_cancelled(place, one):
        _remove(copy)
        return None
    path = reservations.path_of(place, one.owner, one.number)
    if served_records.is_sound(path, one.owner):
        return None
    if one.number in reservations.used_numbers(place):
        _remove(copy)
        one.number = reservations.free_number(place)
        copy, path = f"{home}/{COPIES}/{place.prefix}-{one.number}", reservations.path_of(place, one.owner, one.number)
        reservations.write(copy, one)
    reservations.write(path, one)
    if not os.path.lexists(copy):
        # It was cancelled just now, before it was back.
        _remove(path)
        return None
    return one.number


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


# -- cancelling -------------------------------------------------------------------------------------------------------


def cancel(place: Folder, home: str, one: Reservation) -> None:
    """Cancel a reservation for good, of ours or as root of anybody; raise OSError if we may not."""
    if one.owner == os.geteuid():
        # Before its file in the lease folder, or our daemon could put it back.
        _remove(_copy_path(place, home, one.number))
    else:
        _note(place, one)
    reservations.cancel(place, one)


def _note(place: Folder, one: Reservation) -> None:
    """Note as root that a reservation of a user is cancelled: the copy is the user's. Remove old notes."""
    folder = _notes_folder(place)
    _make_folder(folder)
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if name.startswith(CANCELLED) and os.lstat(path).st_mtime < time.time() - NOTED_S:
            _remove(path)
    reservations.write(_note_path(place, one), one)


def _notes_folder(place: Folder) -> str:
    return reservations.roots_folder(place) or place.line_path


def _note_path(place: Folder, one: Reservation) -> str:
    return f"{_notes_folder(place)}/{CANCELLED}{one.owner}-{one.number}"


def _is_cancelled(place: Folder, one: Reservation) -> bool:
    """Return whether root cancelled this reservation, and not an earlier one with its number."""
    found = locks.read_small(_note_path(place, one), size=reservations.MOST_BYTES)
    if found is None or served_records.flaw(found[0], 0) is not None:
        return False
    noted = reservations.parse(found[1], one.owner, one.number)
    return noted is not None and noted.made_s == one.made_s
