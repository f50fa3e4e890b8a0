"""How much room is left where the queue lives, and what to say when it is little."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dibs.model import units

#: Bytes. Enough for the queue to go on for long, and little enough to be worth a warning: logs grow.
LITTLE_BYTES = 500 * 1024**2
#: Files. A job needs about ten.
LITTLE_FILES = 5000


@dataclass(frozen=True)
class Room:
    """What is left of a disk for people without privileges; `free_files` None: it does not count files."""

    free: int
    total: int
    free_files: int | None


def room(path: Path) -> Room:
    """Return the room of the disk that `path` is on; OSError if it does not tell."""
    found = os.statvfs(path)
    files = found.f_favail if found.f_files else None
    return Room(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, files)


def warning(path: Path, left: Room) -> str | None:
    """Say that a disk is nearly full; None while it is not."""
    what = f"{units.format_size(left.free)} free" if left.free < LITTLE_BYTES else ""
    if not what and left.free_files is not None and left.free_files < LITTLE_FILES:
        what = f"room for {left.free_files} files"
    return f"the disk of {path} is nearly full ({what}); jobs fail when it is" if what else None
