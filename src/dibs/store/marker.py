"""The file `queue` beside the database: which state the database was left in, and which ids may have been given.

A database that was deleted, emptied, cut short or replaced by an older copy cannot say so itself. The marker is written
when a daemon begins and ends, and once per thousand ids, so no commit waits for it. Only the number of the last event,
at its end, is written after each commit, and the kernel may take its time to put it on the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from dibs.system.lean import closing_fd

NAME = "queue"
#: One sector, so that a power cut cannot tear it; it keeps its length, so that a full disk cannot refuse it.
SIZE = 512
#: The digits of the number of the last event, before the line break at the end.
EVENT_DIGITS = 20
#: Ids that are reserved at a time.
BLOCK = 1000
_END = SIZE - 1 - EVENT_DIGITS


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
    #: The number of the last event. After a power cut it may be too small.
    events: int = 0
    #: The boot of the machine in which the session began.
    boot: str = ""


def read(home: Path) -> Mark | None:
    """Return the marker; None if there is none. An unreadable one says only that a queue existed."""
    try:
        text = (home / NAME).read_bytes()
    except FileNotFoundError:
        return None
    body, last = text[:_END], text[_END:].strip()
    try:
        return Mark(**{**json.loads(body), **({"events": int(last)} if last else {})})
    except (ValueError, TypeError):
        return Mark()


def write(home: Path, mark: Mark) -> None:
    """Write the marker in place; it is on the disk when this returns."""
    fd = os.open(home / NAME, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with contextlib.closing(os.fdopen(fd, "wb", buffering=0)) as file:
        is_new = os.fstat(fd).st_size == 0
        file.write(json.dumps(asdict(mark)).encode().ljust(_END) + _last(mark.events))
        os.fdatasync(fd)
    if is_new:
        sync_folder(home)


def _last(events: int) -> bytes:
    return b"%*d\n" % (EVENT_DIGITS, events)


def count(path: str, events: int) -> None:
    """Write only the number of the last event into a marker, without waiting for the disk."""
    # It only tells more about a database whose log is missed, so a disk that refuses it stops nothing.
    with contextlib.suppress(OSError), closing_fd(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)) as fd:
        os.pwrite(fd, _last(events), _END)


def sync_folder(folder: Path) -> None:
    """Sync a folder to the disk, so that a power cut cannot forget the names in it."""
    with closing_fd(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        os.fsync(fd)
