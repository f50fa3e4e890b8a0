"""The state file of the old tool: how many GPUs there are, which were set aside by hand, and who runs what.

Any user may write it, so it is never trusted: it only informs people and the old tool.
Whether a GPU is free is decided by its lease. Only the file can say that a GPU must not be used.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from dibs.errors import MachineError
from dibs.foreground import machine

DEFAULT_PATH = "/tmp/gpu_scheduler_info"

#: The old tool's mode: every user of the machine writes into the same file.
MODE = 0o777

#: Most GPUs a file may name, and most bytes that are read of it.
MOST_GPUS = 1024
MOST_BYTES = 1 << 20

#: How often a file that was replaced while we locked it is opened again.
TRIES = 50

#: Seconds to wait for the lock, which is held for microseconds, and between looks at it.
LOCK_S = 2.0
LOCK_PAUSE_S = 0.0005

#: The old tool's time format: local time.
MOMENT = "%Y-%m-%d %H:%M:%S"

#: Seconds by which a task may have started later than its entry says. A process that has got its pid since is younger.
SAME_START_S = 120.0


@dataclass(frozen=True)
class Entry:
    """One GPU. Not available and without a pid: set aside by hand."""

    avail: bool = True
    gpu_name: str | None = None
    task: tuple[str, ...] | None = None
    task_pid: int | None = None
    task_start: str | None = None
    user: str | None = None


FREE = Entry()
SET_ASIDE = Entry(avail=False)

Entries = tuple[Entry, ...]

HINT = "DIBS_COMPAT_STATE names another."


class Unusable(MachineError):
    """The state file cannot be used; the text says why."""


def fresh(count: int, set_aside: Sequence[int] = ()) -> Entries:
    """Return the entries of `count` GPUs of which some are set aside."""
    return tuple(SET_ASIDE if number in set_aside else FREE for number in range(count))


def is_alive(entry: Entry) -> bool:
    """Tell whether the process that an entry names still is the one it was written for."""
    ran_for_s = None if entry.task_pid is None else machine.running_for_s(entry.task_pid)
    if ran_for_s is None:
        return False
    try:
        said = time.mktime(time.strptime(entry.task_start or "", MOMENT))
    except (ValueError, OverflowError):
        return True
    return time.time() - ran_for_s <= said + SAME_START_S


class State:
    """The state file of this call. If it cannot be used, we warn once and continue without it."""

    def __init__(self, path: str, complain: Callable[[str], None]) -> None:
        self.path = path
        self._complain = complain
        self._known: Entries | None = None
        self._has_complained = False

    def update(self, edit: Callable[[Entries | None], Entries | None]) -> Entries | None:
        """Let `edit` turn what the file says into what it shall say (None: there is none, and never was)."""
        known = self._known
        try:
            self._known = self.write(lambda entries: edit(known if entries is None else entries))
        except Unusable as error:
            seen = machine.read_shared(self.path, MOST_BYTES)
            readable = None if seen is None else parse(seen.encode())
            self._known = edit(self._known if readable is None else readable)
            if not self._has_complained:
                self._complain(f"{error.message} Continuing without it. {error.hint}")
                self._has_complained = True
        return self._known

    def write(self, edit: Callable[[Entries | None], Entries | None]) -> Entries | None:
        """Do as `update`, but raise `Unusable` if the file cannot be read and written."""
        try:
            for _ in range(TRIES):
                is_done, entries = self._try(edit)
                if is_done:
                    return entries
        except OSError as error:
            raise self._unusable(error.strerror) from error
        raise self._unusable("it is deleted repeatedly")

    def _try(self, edit: Callable[[Entries | None], Entries | None]) -> tuple[bool, Entries | None]:
        """Edit the file that is there, or create it; False if another process was faster."""
        try:
            # Never through a link.
            fd = os.open(self.path, os.O_RDWR | machine.OPEN_FLAGS)
        except FileNotFoundError:
            made = edit(None)
            return made is None or self._create(made), made
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise self._unusable("expected a regular file with one name")
            self._lock(fd)
            if not machine.is_same(fd, self.path):
                return False, None
            before = parse(os.pread(fd, MOST_BYTES, 0))
            after = edit(before)
            if after is not None and after != before:
                self._write(fd, text(after))
            return True, after
        finally:
            os.close(fd)

    def _create(self, entries: Entries) -> bool:
        """Create the file atomically with its content; False if it exists."""
        temporary = f"{self.path}.{os.urandom(8).hex()}"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | machine.OPEN_FLAGS, 0o600)
        try:
            self._write(fd, text(entries))
            os.fchmod(fd, MODE)
            os.link(temporary, self.path)
        except FileExistsError:
            return False
        finally:
            os.close(fd)
            os.unlink(temporary)
        return True

    def _lock(self, fd: int) -> None:
        """Lock it as the old tool does. Any process may hold that lock forever, so the wait is limited."""
        until = time.monotonic() + LOCK_S
        while True:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise self._unusable("another process keeps it locked") from None
                time.sleep(LOCK_PAUSE_S)

    def _write(self, fd: int, data: bytes) -> None:
        """Write in place: in /tmp nobody may replace a file of another user."""
        written = os.pwrite(fd, data, 0)
        os.ftruncate(fd, written)
        if written < len(data):
            raise self._unusable("no space left on the disk")

    def _unusable(self, problem: str | None) -> Unusable:
        try:
            found = os.lstat(self.path)
            link = "a symbolic link, " if stat.S_ISLNK(found.st_mode) else ""
            about = f" ({link}owner: uid {found.st_uid})"
        except OSError:
            about = ""
        return Unusable(f"cannot use the state file {self.path}: {problem}{about}.", HINT)


def text(entries: Entries) -> bytes:
    """Return the file as the old tool writes it: six lists, by GPU."""
    rows = [asdict(entry) for entry in entries]
    columns = {name: [row[name] for row in rows] for name in asdict(FREE)}
    return json.dumps(columns, indent=4, sort_keys=True).encode("ascii")


def parse(data: bytes) -> Entries | None:
    """Return what a file says, None if it is not a state file; details that cannot be true are left out."""
    try:
        columns = json.loads(data)
    except (ValueError, RecursionError):
        return None
    avail = columns.get("avail") if isinstance(columns, dict) else None
    if not isinstance(avail, list) or len(avail) > MOST_GPUS or not all(isinstance(value, bool) for value in avail):
        return None
    return tuple(_entry(columns, number, value) for number, value in enumerate(avail))


def _entry(columns: dict[str, object], number: int, avail: bool) -> Entry:
    if avail:
        return FREE

    def cell(name: str) -> object:
        column = columns.get(name)
        return column[number] if isinstance(column, list) and number < len(column) else None

    gpu, start, user = (cell(name) for name in ("gpu_name", "task_start", "user"))
    task, pid = cell("task"), cell("task_pid")
    return Entry(
        False,
        gpu if isinstance(gpu, str) else None,
        tuple(task) if isinstance(task, list) and all(isinstance(word, str) for word in task) else None,
        pid if type(pid) is int and 0 < pid < 2**31 else None,
        start if isinstance(start, str) else None,
        user if isinstance(user, str) else None,
    )
