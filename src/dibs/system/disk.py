"""The disk of the queue's state: its free space, the warning when it is low, a reserve, and where new files go."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from dibs.model import units
from dibs.system.lean import closing_fd

#: Bytes. Enough for the queue to continue for a long time, but low enough for a warning: logs grow.
LITTLE_BYTES = 500 * 1024**2
#: Files. A job needs about ten.
LITTLE_FILES = 5000
#: Bytes of the reserve: room for hundreds of records about jobs that end or are stopped.
BALLAST_BYTES = 2 * 1024**2

#: Requests to the kernel to read and set the flags of a file (FS_IOC_GETFLAGS, FS_IOC_SETFLAGS): the size of a C long
#: is part of their number, but the flags are an int.
_LONG_BYTES = struct.calcsize("l")
GET_FLAGS, SET_FLAGS = 0x80006601 | _LONG_BYTES << 16, 0x40006602 | _LONG_BYTES << 16
#: The flag of a folder whose subfolders have nothing to do with each other (FS_TOPDIR_FL, `chattr +T`).
TOP = 0x20000


@dataclass(frozen=True)
class Room:
    """Free space of a disk for unprivileged users; `free_files` is None if the disk does not count files."""

    free: int
    total: int
    free_files: int | None


def room(path: Path) -> Room:
    """Return the free space of the disk that `path` is on; raise OSError if it is unknown."""
    found = os.statvfs(path)
    files = found.f_favail if found.f_files else None
    return Room(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, files)


def warning(path: Path, left: Room) -> str | None:
    """Return a warning if a disk is nearly full, else None."""
    what = f"{units.format_size(left.free)} free" if left.free < LITTLE_BYTES else ""
    if not what and left.free_files is not None and left.free_files < LITTLE_FILES:
        what = f"room for {left.free_files} files"
    return f"the disk of {path} is nearly full ({what}); no job can start when it is full" if what else None


def spread(folder: Path) -> bool:
    """Put each subfolder in a place of its own, if that is an ext4 file system without a journal; return whether it is.

    Such a one leaves the inode of a deleted file alone for minutes, and looks at all of those in a block group whenever
    a file is made there. With all jobs in one group, each of their files would cost half a millisecond after some
    thousand deletions. With a journal there is no such wait, and one group is better.
    """
    try:
        with closing_fd(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
            if not _lacks_journal(os.fstat(fd).st_dev):
                return False
            flags = int.from_bytes(fcntl.ioctl(fd, GET_FLAGS, bytes(_LONG_BYTES))[:4], sys.byteorder)
            if not flags & TOP:
                fcntl.ioctl(fd, SET_FLAGS, (flags | TOP).to_bytes(4, sys.byteorder).ljust(_LONG_BYTES, b"\0"))
    except OSError:
        # We are only slower.
        return False
    return True


def _lacks_journal(device: int) -> bool:
    """Tell whether a device holds an ext4 file system without a journal; False if that is not known."""
    try:
        name = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
        return Path(f"/sys/fs/ext4/{name}/journal_task").read_text().strip() == "<none>"
    except OSError:
        return False


class Ballast:
    """A file that only takes space, so that there is some to release when the disk is full."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def fill(self) -> None:
        """Make the file unless it exists or the disk is nearly full itself."""
        if self._path.exists() or room(self._path.parent).free < 2 * BALLAST_BYTES:
            return
        fd = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, BALLAST_BYTES)
        except OSError:
            self._path.unlink()
            raise
        finally:
            os.close(fd)

    def release(self) -> bool:
        """Give the space back to the disk; tell whether there was any."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True
