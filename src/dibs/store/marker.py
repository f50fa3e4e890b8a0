"""The file `queue` beside the database: which state the database was left in, and which ids may have been given.

A database that was deleted, emptied, cut short or replaced by an older copy cannot say so itself. The marker is written
when a daemon begins and ends, and once per thousand ids, so no commit waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "queue"
#: One sector, so that a power cut cannot tear it; it keeps its length, so that a full disk cannot refuse it.
SIZE = 512
#: Ids that are reserved at a time.
BLOCK = 1000


@dataclass(frozen=True, slots=True)
class Mark:
    """What the last daemon left behind."""

    #: The session of the last daemon, which is also a fact in the database; and the one that just begins, because the
    #: marker is written before the commit.
    session: str = ""
    next: str = ""
    #: Whether the database is in use, so that its log must have entries. False after a clean stop.
    is_open: bool = False
    #: No id above this one was ever given.
    ids: int = 0
    #: The number of the last event at a clean stop.
    events: int = 0


def read(home: Path) -> Mark | None:
    """Return the marker; None if there is none. An unreadable one says only that a queue existed."""
    try:
        text = (home / NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Mark(**json.loads(text))
    except (ValueError, TypeError):
        return Mark()


def write(home: Path, mark: Mark) -> None:
    """Write the marker in place; it is on the disk when this returns."""
    fd = os.open(home / NAME, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with contextlib.closing(os.fdopen(fd, "wb", buffering=0)) as file:
        is_new = os.fstat(fd).st_size == 0
        file.write(json.dumps(asdict(mark)).encode().ljust(SIZE - 1) + b"\n")
        os.fdatasync(fd)
    if is_new:
        sync_folder(home)


def sync_folder(folder: Path) -> None:
    """Sync a folder to the disk, so that a power cut cannot forget the names in it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
