"""Notice that the database is lost: deleted or replaced while in use, or missing, emptied or cut short since.

Uses the marker beside the database (`marker`) and the copies of it (`copies`). What happens to jobs after a loss is in
`rediscovery`.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

from dibs.errors import MachineError
from dibs.store import copies, database, marker
from dibs.store.marker import Mark

REPAIR = "`dibs doctor --repair` restores it from a copy and from the folders of the jobs."


class FileGone(MachineError):
    """The database was deleted or replaced while it was in use; nothing more is stored in it."""


class Custody:
    """Watches over the file of an open database, and keeps the marker beside it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        #: Set when the file was deleted or replaced; then nothing is stored any more. Read from any thread.
        self.gone: FileGone | None = None
        self._connection = connection
        # As text: turning a path into it takes longer than the system call.
        self._names = str(path), str(database.log_of(path))
        self._file, self._log = map(_file_at, self._names)
        #: None until a session begins: then no ids are reserved.
        self._mark: Mark | None = None

    def require_file(self) -> None:
        """Raise if the name no longer leads to the file that was opened. Costs one system call."""
        if self.gone is not None or _file_at(self._names[0]) != self._file:
            raise self._lost()

    def require_log(self) -> None:
        """Raise if the log was deleted; without it, the file is older than what was stored."""
        if self.gone is not None or _file_at(self._names[1]) != self._log:
            raise self._lost()

    def _lost(self) -> FileGone:
        """Return the error for a lost file; save everything in a copy first."""
        if self.gone is None or not copies.saved(self.path).exists():
            self.gone = self._save()
        return self.gone

    def _save(self) -> FileGone:
        what = f"nothing was changed: {self.path} or its log was deleted or replaced while the daemon used it"
        try:
            copy = copies.save(self._connection, self.path)
        except (OSError, sqlite3.Error) as error:
            return FileGone(f"{what}, and the jobs cannot be saved ({error}).", "Make room; the daemon tries again.")
        return FileGone(f"{what}. All jobs are saved in {copy}.", "`dibs daemon restart` brings them back.")

    def announce(self, session: str, stored: str | None) -> None:
        """Note the session that is about to be stored in the database. Call `begin` after the commit.

        `stored` is the one in it now, or None if it is an older copy: the last daemon may have died before its `begin`.
        """
        mark = marker.read(self.path.parent) or Mark()
        marker.write(self.path.parent, replace(mark, session=stored or mark.session, next=session))

    def begin(self, session: str, last_id: int) -> None:
        """Note that the database is in use, and that no id above `last_id` was given."""
        self._write(Mark(session, is_open=True, ids=last_id))

    def reserve(self, last_id: int) -> None:
        """Note that ids up to `last_id` are given: they must not be given again if the database is lost."""
        if self._mark is not None and last_id > self._mark.ids:
            self._write(replace(self._mark, ids=last_id + marker.BLOCK))

    def end(self, last_id: int, events: int) -> None:
        """Note that the database is complete without its log, because it is closed next."""
        mark = self._mark or marker.read(self.path.parent)
        if mark is not None and self.gone is None:
            self._write(replace(mark, is_open=False, ids=max(last_id, 0 if self._mark else mark.ids), events=events))

    def _write(self, mark: Mark) -> None:
        marker.write(self.path.parent, mark)
        self._mark = mark


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def require_queue(path: Path, highest_id: int) -> None:
    """Raise if there was a queue and it is missed; `highest_id` is that of the jobs with a folder.

    Put a complete copy back that a daemon made when the database was deleted under it.
    """
    mark = marker.read(path.parent)
    why = missing(path, mark, highest_id)
    if why is not None and not _put_saved_back(path, mark):
        raise MachineError(f"the queue is missing: {why}.", REPAIR)


def missing(path: Path, mark: Mark | None, highest_id: int) -> str | None:
    """Return what is wrong with the database; None if nothing is, or if there never was a queue."""
    log = database.log_of(path)
    size = path.stat().st_size if path.exists() else None
    if not size:
        existed = highest_id or (mark and mark.ids) or copies.numbered(path) or copies.saved(path).exists()
        return f"{path} {'is gone' if size is None else 'is empty'}, but jobs were submitted" if existed else None
    if mark is None or not mark.is_open or database.has_entries(log):
        return None
    there = copies.look(path)
    if there is not None and there.session == copies.COPY:
        # Somebody put a copy in its place, which needs no log.
        return None
    return f"{log} is gone, and with it what was recorded last"


def _put_saved_back(path: Path, mark: Mark | None) -> bool:
    saved = copies.look(copies.saved(path))
    if saved is None or mark is None or saved.session not in (mark.session, mark.next):
        return False
    put_back(saved, mark)
    saved.path.unlink()
    return True


def put_back(copy: copies.Glance, mark: Mark | None) -> Path | None:
    """Put a copy in the place of the database and mark it so; return the folder with what was there."""
    path = copy.path.parent.parent / copy.path.stem
    aside = copies.put_back(copy.path, path)
    ids = max(copy.last_id, mark.ids if mark else 0)
    marker.write(path.parent, Mark(copy.session or "", ids=ids, events=copy.events))
    return aside


def rebuild(path: Path, mark: Mark | None) -> Path | None:
    """Make an empty database where there is no copy; the next daemon fills it from the folders of the jobs."""
    aside = copies.set_aside(path)
    connection, _ = database.open_writer(path)
    connection.execute("INSERT INTO facts (name, value) VALUES (?, ?)", (copies.SESSION, copies.COPY))
    connection.close()
    marker.write(path.parent, Mark(copies.COPY, ids=mark.ids if mark else 0))
    return aside


def note_closed(path: Path) -> None:
    """Note that a database that could not be used was closed, whereby SQLite copied its log into it."""
    mark = marker.read(path.parent)
    if mark is not None and mark.is_open and not database.has_entries(database.log_of(path)):
        marker.write(path.parent, replace(mark, is_open=False))


def is_older(mark: Mark | None, session: str | None, events: int) -> bool:
    """Tell whether an opened database is a copy, or older than what the marker says of it."""
    if session == copies.COPY:
        return True
    if mark is None or not mark.session:
        return False
    return session not in (mark.session, mark.next) or (not mark.is_open and events < mark.events)
