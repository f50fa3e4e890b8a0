"""`dibs doctor --repair`: put the best copy of a lost or damaged database in its place, after asking.

The daemon that starts next finds the jobs of the time since in their folders (`rediscovery`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from dibs.cli import screen
from dibs.cli.verbs import daemon
from dibs.client import daemon_process, queries
from dibs.client.connection import Client
from dibs.daemon.state_folder import HomeLock
from dibs.engines.job_files import JobFiles
from dibs.errors import MachineError, UserError
from dibs.jobqueue.turns import RESTORED
from dibs.store import copies, custody, marker
from dibs.store.copies import Glance
from dibs.store.reader import Reader
from dibs.store.writer import Store
from dibs.submission.options import Args
from dibs.system import paths


def main(queue: Client, *, is_agreed: bool) -> int:
    """Say what is wrong and what would be done, ask, do it, and start the daemon."""
    path = paths.database(queue.home)
    if not queue.home.exists() or (why := _trouble(queue, path)) is None:
        print("nothing to repair")
        return 0
    if queries.identity(queue) is not None or daemon_process.lock_holder(queue.home) is not None:
        daemon.stop(queue, Args())
    lock = HomeLock(queue.home)
    try:
        copy = copies.best(path)
        if not is_agreed and not _is_wanted(why, copy):
            screen.say("nothing was changed.")
            return 130
        mark = marker.read(queue.home)
        aside = custody.put_back(copy, mark) if copy else custody.rebuild(path, mark)
        if copy is not None and copy.path == copies.saved(path):
            copy.path.unlink()
    finally:
        os.close(lock.fd)
    if aside is not None:
        print(f"the previous files are now in {aside}")
    queue.start()
    with contextlib.closing(Reader.open(path)) as reader:
        print(reader.fact(RESTORED) or f"restored {sum(reader.counts().values())} jobs")
    return 0


def _trouble(queue: Client, path: Path) -> str | None:
    """Return what is wrong with the database; None if nothing is."""
    if copies.saved(path).exists():
        return f"{path} was deleted or replaced while in use"
    files = JobFiles(queue.home, queue.home)
    if why := custody.missing(path, marker.read(queue.home), files.highest_id()):
        return why
    if not path.exists() or daemon_process.lock_holder(queue.home) is not None:
        # There never was a queue, or a daemon uses it.
        return None
    try:
        Store.open(path).close()
    except MachineError as error:
        return error.message
    finally:
        custody.note_closed(path)
    return None


def _is_wanted(why: str, copy: Glance | None) -> bool:
    screen.say(why)
    if copy is None:
        text = "create a new queue from the job folders?"
    else:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(copy.path.stat().st_mtime))
        text = f"restore {copy.jobs} jobs from {copy.path} ({made}), and newer ones from their folders?"
    if not sys.stdin.isatty():
        raise UserError(f"doctor --repair asks first: {text}", "-y answers yes.")
    return screen.confirm(text)
