"""Free disk space for the queue's state, and the warning when it is low."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dibs.model import units

#: Bytes. Enough for the queue to continue for a long time, but low enough for a warning: logs grow.
LITTLE_BYTES = 500 * 1024**2
#: Files. A job needs about ten.
LITTLE_FILES = 5000


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
