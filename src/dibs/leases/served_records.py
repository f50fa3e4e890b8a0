"""When each user was last given a device: one small file per user, which decides whose turn it is.

The file's owner is the user, and only a file that nobody else can have written counts.
"""

from __future__ import annotations

import os
import stat
import time

from dibs.system import locks, processes
from dibs.system.lean import closing_fd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.system.locks import Folder

#: Prefix of the file's name; the uid follows.
SERVED = ".dibs-served-"

#: Digits of the boot-time ns in that file, always this many.
BOOT_NS_DIGITS = 20

#: Bytes of such a file that are read.
MOST_BYTES = 128

#: How much earlier than its file's change time a record or ticket may say it is, in ns: the time is read before the
#: file is written, and change times are coarse.
LATE_NS = 1_000_000_000


def mark(place: Folder) -> None:
    """Record that the calling user was just given a device."""
    uid = os.geteuid()
    path = place.line_file(f"{SERVED}{uid}")
    try:
        # Fixed length and written in place, so that no reader sees a mix of the old and the new record.
        line = f"{processes.boot_id()} {locks.boot_ns():0{BOOT_NS_DIGITS}d}\n".encode("ascii")
        try:
            fd = os.open(path, os.O_WRONLY | locks.OPEN_FLAGS)
        except FileNotFoundError:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | locks.OPEN_FLAGS, 0o600)
            os.fchmod(fd, 0o644)
        with closing_fd(fd):
            # A second name or another owner: planted, perhaps to make us overwrite one of our own files.
            if flaw(os.fstat(fd), uid) is None:
                os.pwrite(fd, line, 0)
    except OSError:
        # On a full disk or with a planted file, this user's turn is not recorded; the device must still be given.
        return


def of_users(place: Folder, uids: Iterable[int]) -> dict[int, int]:
    """Return when each user was last given a device, in boot-time ns; users not served since boot are left out."""
    boot_id = processes.boot_id()
    found = {}
    for uid in uids:
        record = locks.read_small(place.line_file(f"{SERVED}{uid}"), size=MOST_BYTES)
        if record is None or flaw(record[0], uid) is not None:
            continue
        words = record[1].partition("\n")[0].split()
        if len(words) == 2 and words[0] == boot_id and words[1].isdecimal() and len(words[1]) == BOOT_NS_DIGITS:
            found[uid] = not_before_change(int(words[1]), record[0])
    return found


def flaw(status: os.stat_result, uid: int) -> str | None:
    """Return why a ticket or record of a user does not count, whatever it says; None if only they can have made it."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid != uid:
        return f"it belongs to uid {status.st_uid}"
    if status.st_nlink != 1:
        return f"it has {status.st_nlink} links"
    return "others can write to it" if status.st_mode & 0o022 else None


def is_sound(path: str, uid: int) -> bool:
    """Return whether a file is there that only this user can have made. Cheaper than reading it."""
    status = locks.status_of(path)
    return status is not None and flaw(status, uid) is None


def not_before_change(boot_ns: int, status: os.stat_result) -> int:
    """Return a time that a file names, but not before its change time, which nobody can set, and not in the future."""
    now_ns = locks.boot_ns()
    changed_ns = status.st_ctime_ns - (time.time_ns() - now_ns)
    return min(now_ns, max(boot_ns, changed_ns - LATE_NS))
