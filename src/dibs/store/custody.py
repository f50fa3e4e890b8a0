"""Notice that the database is lost: deleted or replaced while in use, or missing, emptied or cut short since.

Uses the marker beside the database (`marker`) and the copies of it (`copies`). What happens to jobs after a loss is in
`rediscovery`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

from dibs.errors import DibsError, MachineError
from dibs.store import copies, database, marker
from dibs.store.marker import Mark
from dibs.system import paths, processes

REPAIR = "`dibs doctor --repair` restores it from a copy and from the folders of the jobs."


class FileGone(MachineError):
    """The database is not in its place; nothing is stored in it."""

    def __init__(self, message: str, hint: str, *, is_final: bool = False, is_folder: bool = False) -> None:
        super().__init__(f"nothing was changed: {message}", hint)
        #: Whether it cannot come back: it was deleted, or others changed it. Otherwise it is out of reach.
        self.is_final = is_final
        #: Whether the whole state folder was deleted, so that no client finds this daemon any more.
        self.is_folder = is_folder


class Custody:
    """Watches over the file of an open database, and keeps the marker beside it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        #: Set while the file is not in its place; then nothing is stored. Read from any thread.
        self.gone: FileGone | None = None
        self._connection = connection
        # As text: turning a path into it takes longer than the system call.
        self._names = str(path), str(database.log_of(path))
        self._marker = str(path.parent / marker.NAME)
        self._files = tuple(map(_file_at, self._names))
        # They tell whether a file was deleted. Only descriptors of this kind can be closed without releasing the locks
        # of SQLite.
        self._descriptors = [os.open(name, os.O_PATH | os.O_CLOEXEC) for name in self._names]
        self._version = self._data_version()
        #: None until a session begins: then no ids are reserved.
        self._mark: Mark | None = None
        #: The number of the last event, which changes with every commit.
        self._counted = 0

    def close(self) -> None:
        """Release the descriptors."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def require_file(self) -> None:
        """Raise if the name no longer leads to the file that was opened. Costs one system call."""
        if self.gone is not None or _file_at(self._names[0]) != self._files[0]:
            self._require_return()

    def require_log(self) -> None:
        """Raise if the log was deleted; without it, the file is older than what was stored."""
        if self.gone is not None or _file_at(self._names[1]) != self._files[1]:
            self._require_return()

    def _require_return(self) -> None:
        """Raise, unless file and log were only out of reach and are back as they were."""
        is_final = self.gone is not None and self.gone.is_final
        if is_final or not self._is_in_place() or self._data_version() != self._version:
            self.gone = self._loss()
            raise self.gone
        # Otherwise it would look like the copy of a deleted database.
        copies.saved(self.path).unlink(missing_ok=True)
        self.gone = None

    def _is_in_place(self) -> bool:
        return tuple(map(_file_at, self._names)) == self._files

    def _data_version(self) -> int:
        """Return a number that changes when another connection changes the content."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _loss(self) -> FileGone:
        """Return the error for a file that is not in its place; save everything in a copy first."""
        if self._is_in_place():
            what = f"another program changed {self.path} while it was out of reach."
            return FileGone(what, "`dibs daemon restart` reads it again.", is_final=True)
        is_deleted = any(map(_is_deleted, self._descriptors))
        if self.gone is not None and self.gone.is_final == is_deleted and copies.saved(self.path).exists():
            return self.gone
        return self._save_deleted() if is_deleted else self._save_unreachable()

    def _save_deleted(self) -> FileGone:
        home, mark = self.path.parent, None
        what = f"{self.path} or its log was deleted or replaced while the daemon used it"
        try:
            mark = marker.read(home)
            if not home.exists():
                paths.prepare(home)
            copy = copies.save(self._connection, self.path)
            if mark is None and self._mark is not None:
                marker.write(home, replace(self._mark, events=self._counted))
        except (OSError, sqlite3.Error, DibsError) as error:
            why = f"{what}, and the jobs cannot be saved ({error})."
            return FileGone(why, "Make room; the daemon tries again.", is_final=True)
        is_other_queue = mark is not None and not self._is_ours(mark)
        cure = "`dibs doctor --repair`" if is_other_queue else "`dibs daemon restart`"
        what, hint = f"{what}. All jobs are saved in {copy}.", f"{cure} brings them back."
        return FileGone(what, hint, is_final=True, is_folder=mark is None or is_other_queue)

    def _save_unreachable(self) -> FileGone:
        what = f"{self.path} or its log is out of reach: it was moved, or its disk does not answer."
        hint = "It is used again as soon as it is back"
        with contextlib.suppress(OSError, sqlite3.Error):
            mark = marker.read(self.path.parent)
            if mark is not None and self._is_ours(mark):
                what = f"{what} All jobs are saved in {copies.save(self._connection, self.path)}."
                hint = f"{hint}; otherwise `dibs daemon restart` restores them"
        return FileGone(what, f"{hint}.")

    def _is_ours(self, mark: Mark) -> bool:
        return self._mark is not None and mark.session == self._mark.session

    def announce(self, session: str, stored: str | None) -> None:
        """Note the session that is about to be stored in the database. Call `begin` after the commit.

        `stored` is the one in it now, or None if it is an older copy: the last daemon may have died before its `begin`.
        """
        mark = marker.read(self.path.parent) or Mark()
        marker.write(self.path.parent, replace(mark, session=stored or mark.session, next=session))

    def begin(self, session: str, last_id: int, events: int) -> None:
        """Note that the database is in use, that no id above `last_id` was given, and the number of the last event."""
        self._write(Mark(session, is_open=True, ids=last_id, events=events, boot=processes.boot_id()))

    def reserve(self, last_id: int) -> None:
        """Note that ids up to `last_id` are given: they must not be given again if the database is lost."""
        if self._mark is not None and last_id > self._mark.ids:
            self._write(replace(self._mark, ids=last_id + marker.BLOCK, events=self._counted))

    def count(self, events: int) -> None:
        """Note the number of the last event after a commit. This does not wait for the disk."""
        if self._mark is not None and events != self._counted:
            self._counted = events
            marker.count(self._marker, events)

    def end(self, last_id: int, events: int) -> None:
        """Note that the database is complete without its log, because it is closed next."""
        mark = self._mark or marker.read(self.path.parent)
        if mark is not None and self.gone is None:
            self._write(replace(mark, is_open=False, ids=max(last_id, 0 if self._mark else mark.ids), events=events))

    def _write(self, mark: Mark) -> None:
        marker.write(self.path.parent, mark)
        self._mark, self._counted = mark, mark.events


def _is_deleted(descriptor: int) -> bool:
    try:
        return os.fstat(descriptor).st_nlink == 0
    except OSError:
        # The disk does not answer; it may do so later.
        return False


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
    if there is not None and (there.session == copies.COPY or _is_complete(there, mark)):
        # Somebody put a copy in its place, or opened it with SQLite, which then copied the log into it.
        return None
    return f"{log} is gone, and with it the newest records"


def _is_complete(there: copies.Glance, mark: Mark) -> bool:
    """Tell whether a database has all that was stored. After a power cut the marker may have missed the last events."""
    is_ours = there.session in (mark.session, mark.next)
    return is_ours and mark.boot == processes.boot_id() and there.events >= mark.events


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
    is_saved = copy.path == copies.saved(path)
    # Folders of another queue, which began after the state folder was deleted, belong to other jobs with these ids.
    is_other_queue = is_saved and mark is not None and copy.session not in (mark.session, mark.next)
    aside = copies.put_back(copy.path, path, "jobs" if is_other_queue else "")
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
    """Note that a database that could not be used was closed, and that SQLite copied its log into it."""
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
