"""The state folder: open and verify the database, copy it in time, keep the ballast, close it.

`custody` and `copies` decide; this module says when.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from pathlib import Path

from dibs.daemon.service import Daemon
from dibs.errors import Conflict, DibsError
from dibs.jobqueue import dispatch, rediscovery
from dibs.jobqueue.remote import dispatch as remote_dispatch
from dibs.jobqueue.thread import QueueThread
from dibs.jobqueue.turns import RESTORED, Turn
from dibs.store import copies, custody, marker
from dibs.store.database import DatabaseError
from dibs.store.writer import Reader, Store
from dibs.system import paths, processes
from dibs.system.disk import Ballast

log = logging.getLogger("dibs.daemon.state_folder")

#: Seconds for the copy at the end of a daemon.
LAST_COPY_S = 20.0
#: Seconds that the child of a dead daemon may need until its exec on a loaded machine, and between checks of it.
EXEC_FOR_S = 10.0
LOOK_EVERY_S = 0.01


class HomeLock:
    """The lock that makes this process the only daemon of this home, until it ends."""

    def __init__(self, home: Path) -> None:
        self.fd = os.open(paths.daemon_lock(home), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        give_up_at = time.monotonic() + EXEC_FOR_S
        while not self._try():
            pid = os.pread(self.fd, 64, 0).decode(errors="replace").strip()
            if not _is_gone(pid) or time.monotonic() > give_up_at:
                raise Conflict(
                    f"a daemon is already running (pid {pid or '?'}, socket {paths.socket_path(home)}).",
                    "If its socket is gone: dibs daemon restart.",
                )
            time.sleep(LOOK_EVERY_S)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, f"{os.getpid()}\n".encode(), 0)

    def _try(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _is_gone(pid: str) -> bool:
    """Tell whether a process is dead. A child that it was forking may keep its lock until the exec."""
    if not pid.isdecimal():
        return False
    found = processes.look(int(pid))
    return found is None or found.is_dead


def open_store(path: Path, boot: str, highest_id: int) -> Store:
    """Open the database; refuse if a queue existed and this is not it."""
    custody.require_queue(path, highest_id)
    try:
        return Store.open(path, boot)
    except (DibsError, OSError):
        custody.note_closed(path)
        raise


async def begin(queue: QueueThread, boot: str) -> None:
    """Settle what the last daemon left, catch up with the folders after a loss, and begin a session."""
    session = os.urandom(8).hex()
    await asyncio.wrap_future(queue.ask(lambda turn: _recover(turn, boot, session)))
    await asyncio.wrap_future(queue.ask(lambda turn: _begin(turn.store, session)))


def _begin(store: Store, session: str) -> None:
    store.custody.begin(session, store.last_id(), store.last_event())


def _recover(turn: Turn, boot: str, session: str) -> None:
    store = turn.store
    mark = marker.read(store.custody.path.parent)
    stored = store.fact(copies.SESSION)
    is_older = custody.is_older(mark, stored, store.last_event())
    store.custody.announce(session, None if is_older else stored)
    dispatch.recover(turn, boot)
    remote_dispatch.recover(turn)
    if is_older:
        rediscovery.catch_up(turn, mark.ids if mark else 0)
        log.warning("recovery: the queue was %s", store.fact(RESTORED))
    store.set_fact(copies.SESSION, session)


async def tend(daemon: Daemon, path: Path) -> None:
    """Make a copy if one is due, remake the ballast, and notice a deleted log or folder."""
    daemon.tell(lambda turn: turn.store.custody.require_log())
    events = await daemon.ask(Reader.last_event)
    # In a thread that may hang: the disk may be frozen.
    await asyncio.get_running_loop().run_in_executor(daemon.remover, _tend, path, events)


def _tend(path: Path, events: int) -> None:
    if copies.is_due(path, time.time()):
        if copies.is_current(path, events):
            # Nothing happened: only its age changes.
            os.utime(copies.numbered(path)[-1])
        else:
            copies.make(path)
    Ballast(path.parent).fill()


async def copy_last(daemon: Daemon, store: Store) -> None:
    """Copy the database at a clean stop, if something happened since the last copy; a deleted one is already saved."""
    if store.custody.gone is not None:
        return
    # In the thread that may just be making one; if the disk hangs, the daemon ends without a copy.
    copied = asyncio.get_running_loop().run_in_executor(
        daemon.remover, _copy_changes, store.custody.path, store.last_event()
    )
    try:
        await asyncio.wait_for(copied, LAST_COPY_S)
    except (OSError, DatabaseError) as error:
        log.error("no copy was made at the end: %s", error)


def _copy_changes(path: Path, events: int) -> None:
    if not copies.is_current(path, events):
        copies.make(path)


def close(store: Store) -> None:
    """Close the database, after a note beside it that it is complete without its log."""
    if store.custody.gone is not None:
        # Closing it would remove the log of a file that somebody put in its place.
        return
    try:
        store.custody.end(store.last_id(), store.last_event())
    except (OSError, DatabaseError) as error:
        # Without the note, the log must stay: the next daemon would miss it.
        log.error("the database is left open: %s", error)
        return
    store.close()
