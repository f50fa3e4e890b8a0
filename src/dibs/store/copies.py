"""Copies of the database in the folder `backups` beside it: when one is due, which are kept, and how one is put back.

A copy says that it is one (`COPY`), so that a daemon that finds it in the database's place knows that it may be older
than the jobs. The only exception is the copy of a database that was deleted while in use: it is complete.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from dibs.store import marker

FOLDER = "backups"
#: Seconds between automatic copies.
EVERY_S = 3600.0
#: Number of automatic copies to keep.
KEPT = 3
#: The fact with the session of the last daemon that used a database; and its value in a copy.
SESSION = "session"
COPY = "copy"
#: The end of the name of a complete copy.
SAVED = "saved"


@dataclass(frozen=True, slots=True)
class Glance:
    """What tells one copy from another."""

    path: Path
    session: str | None
    #: The number of the last event, which grows with every change.
    events: int
    last_id: int
    jobs: int


def read_only(path: Path, more: str = "") -> str:
    """Return the address of a file for a read-only connection."""
    quoted = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode=ro{more}"


def make(path: Path, *, is_pruned: bool = True) -> Path:
    """Copy the database through a separate connection; delete copies that are no longer needed."""
    folder = _folder(path)
    old = numbered(path)
    number = int(old[-1].suffix[1:]) + 1 if old else 1
    target = folder / f"{path.name}.{number}"
    with contextlib.closing(sqlite3.connect(read_only(path), uri=True, timeout=5)) as reader:
        _write(reader, target, COPY)
    for superfluous in _superfluous([*old, target]) if is_pruned else ():
        superfluous.unlink()
    return target


def save(connection: sqlite3.Connection, path: Path) -> Path:
    """Copy a database whose file was deleted; the connection still reads it."""
    target = _folder(path) / f"{path.name}.{SAVED}"
    _write(connection, target, None)
    return target


def saved(path: Path) -> Path:
    """Return the path of the complete copy of a deleted database."""
    return path.parent / FOLDER / f"{path.name}.{SAVED}"


def _folder(path: Path) -> Path:
    folder = path.parent / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _write(source: sqlite3.Connection, target: Path, session: str | None) -> None:
    # Renamed when complete: a partial file left by a crash never counts as a copy.
    partial = target.with_name(f"{target.stem}.partial")
    try:
        for leftover in target.parent.glob(f"{partial.name}*"):
            leftover.unlink()
        with contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            partial.chmod(0o600)
            source.backup(copy)
            # One file: a copy must not need a log.
            copy.execute("PRAGMA journal_mode = DELETE")
            if session is not None:
                copy.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (SESSION, session))
        partial.rename(target)
        marker.sync_folder(target.parent)
    except BaseException:
        # Half a copy on a full disk would take the space that others need.
        for leftover in target.parent.glob(f"{partial.name}*"):
            leftover.unlink()
        raise


def numbered(path: Path) -> list[Path]:
    """Return the automatic copies, the oldest first."""
    found = [old for old in (path.parent / FOLDER).glob(f"{path.name}.*") if old.suffix[1:].isdecimal()]
    return sorted(found, key=lambda old: int(old.suffix[1:]))


def _superfluous(made: list[Path]) -> list[Path]:
    """Return the copies to delete: of two within an hour the older one, then the oldest."""
    kept = list(made)
    while len(kept) > KEPT:
        second, third = kept[-2].stat().st_mtime, kept[-3].stat().st_mtime
        kept.pop(-2 if 0 <= second - third < EVERY_S else 0)
    return [copy for copy in made if copy not in kept]


def is_due(path: Path, now: float) -> bool:
    """Tell whether the last copy is an hour old, or from the future because the clock was wrong."""
    made = numbered(path)
    return not made or not 0 <= now - made[-1].stat().st_mtime < EVERY_S


def is_current(path: Path, events: int) -> bool:
    """Tell whether nothing happened to any job since the last copy."""
    made = numbered(path)
    last = look(made[-1]) if made else None
    return last is not None and last.events == events


def look(path: Path) -> Glance | None:
    """Return what a copy contains; None if it is no readable database of ours. A log beside it is not read."""
    try:
        with contextlib.closing(sqlite3.connect(read_only(path, "&immutable=1"), uri=True)) as reader:
            (session,) = reader.execute("SELECT max(value) FROM facts WHERE name = ?", (SESSION,)).fetchone()
            numbers = dict(reader.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
            (jobs,) = reader.execute("SELECT count(*) FROM jobs").fetchone()
            if reader.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                return None
    except sqlite3.Error:
        return None
    return Glance(path, session, numbers.get("events", 0), numbers.get("jobs", 0), jobs)


def best(path: Path) -> Glance | None:
    """Return the copy that knows most, the database itself included if it can be read; None if there is none.

    A complete copy comes first, even if a new queue was used for longer.
    """
    with contextlib.suppress(sqlite3.Error, OSError):
        if path.exists() and path.stat().st_size:
            make(path, is_pruned=False)
    if (complete := look(saved(path))) is not None:
        return complete
    found = [glance for copy in numbered(path) if (glance := look(copy)) is not None]
    return max(found, key=lambda glance: (glance.events, glance.path.stat().st_mtime), default=None)


def put_back(copy: Path, path: Path, also: str = "") -> Path | None:
    """Put a copy in the database's place; return the folder with the files that were there, `also` among them."""
    aside = set_aside(path, also)
    partial = path.with_name(f"{path.name}.partial")
    shutil.copyfile(copy, partial)
    partial.chmod(0o600)
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.rename(path)
    marker.sync_folder(path.parent)
    return aside


def set_aside(path: Path, also: str = "") -> Path | None:
    """Move the files of a database into a new folder beside the copies; return it, or None if there are none."""
    names = [path.name + end for end in ("", "-wal", "-shm", "-suspect")] + ([also] if also else [])
    there = [file for name in names if (file := path.with_name(name)).exists()]
    if not there:
        return None
    number = 1 + max((int(old.suffix[1:]) for old in _folder(path).glob("replaced.*")), default=0)
    aside = _folder(path) / f"replaced.{number}"
    aside.mkdir(mode=0o700)
    for file in there:
        file.rename(aside / file.name)
    return aside
