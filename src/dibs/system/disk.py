"""Free disk space for the queue's state, the warning when it is low, and a reserve for when it is used up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dibs.model import units

#: Bytes. Enough for the queue to continue for a long time, but low enough for a warning: logs grow.
LITTLE_BYTES = 500 * 1024**2
#: Files. A job needs about ten.
LITTLE_FILES = 5000
#: Bytes of the reserve: room for hundreds of records about jobs that end or are stopped.
BALLAST_BYTES = 2 * 1024**2


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
    return f"the disk of {path} is nearly full ({what}); jobs fail when it is" if what else None


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
