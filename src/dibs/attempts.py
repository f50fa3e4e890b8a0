"""The files of one attempt: how runner and daemon tell each other what is asked and what became of it.

    spec.S      what to run; written by the daemon before start S
    started.S   the commit point of start S, made by link(): a runner's claim, or the tombstone of a start given up
    status.S    room for two records: running, and how it ended
    orders.S    lines from the daemon to the runner, only ever appended
    run.lock    locked while a runner lives, or while somebody decides about a dead one
    tree.lock   locked while the runner or anything of the command that kept its descriptors lives

`examine` is the one place that says what these files mean together. What to do about it is not decided here.
"""

from __future__ import annotations

import fcntl
import os
import time

from dibs import records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dibs.records import record

RUN_LOCK = "run.lock"
TREE_LOCK = "tree.lock"
TOMBSTONE = "tombstone"

_ARMED = "DIBS_CRASH" in os.environ or "DIBS_DELAY" in os.environ


def crash_point(name: str) -> None:
    """Die by SIGKILL, or dawdle, if the environment asks for it at this point; tests only.

    `DIBS_CRASH=name` dies at the first pass, `name:3` at the third. `DIBS_DELAY=name:250` waits 250 ms at each.
    """
    if not _ARMED:
        return
    delayed, _, ms = os.environ.get("DIBS_DELAY", "").rpartition(":")
    if delayed == name:
        time.sleep(int(ms) / 1000)
    wanted = os.environ.get("DIBS_CRASH", "")
    if wanted in (name, f"{name}:1"):
        os.kill(os.getpid(), 9)
    if wanted.rpartition(":")[0] == name:
        os.environ["DIBS_CRASH"] = f"{name}:{int(wanted.rpartition(':')[2]) - 1}"


# -- the commit point -------------------------------------------------------------------------------------------


@record
class Tombstone:
    """This start was given up before the command ran; no runner can claim it any more."""


@record
class Shim:
    """A runner claimed this start. Pid 0: the file is there but unreadable, which also means: never start again."""

    pid: int
    starttime: int
    boot: str


def link_started(folder: str, start: int, text: str) -> bool:
    """Decide start `start` by linking its `started` file; False if it was decided before.

    The folder is synced before anything is done on the strength of the link: a power cut that forgot it would
    let the job run twice.
    """
    temporary = os.path.join(folder, f".started.{start}.{os.getpid()}.{os.urandom(4).hex()}")
    # The content need not be synced: a claim that lost its text in a power cut is still a claim.
    records.write_new(temporary, text.encode() + b"\n")
    crash_point("started:written")
    try:
        os.link(temporary, os.path.join(folder, f"started.{start}"))
    except FileExistsError:
        return False
    finally:
        crash_point("started:linked")
        os.unlink(temporary)
    _fsync_folder(folder)
    return True


def _fsync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_started(folder: str, start: int) -> Shim | Tombstone | None:
    """Return how this start was decided, or None if it is open."""
    try:
        with open(os.path.join(folder, f"started.{start}"), "rb") as file:
            words = file.read(256).decode("ascii", "replace").split()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if words == [TOMBSTONE]:
        return Tombstone()
    try:
        kind, pid, starttime, boot = words
        return Shim(int(pid), int(starttime), boot) if kind == "shim" else Shim(0, 0, "")
    except ValueError:
        return Shim(0, 0, "")


def give_up(folder: str, start: int) -> bool:
    """Bury a start before it began; False if a runner claimed it first, which then needs an order."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return link_started(folder, start, TOMBSTONE) or isinstance(read_started(folder, start), Tombstone)


# -- orders -----------------------------------------------------------------------------------------------------


def append_order(folder: str, start: int, line: str) -> None:
    """Leave a durable order for the runner of a start; it reads it when it gets SIGUSR1.

    `stop GRACE_S`, `signal N`, `pause`, `resume`, `limit SECONDS` or `limit none`.
    """
    path = os.path.join(folder, f"orders.{start}")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # One write each, and a leading newline closes what a crash may have left half written.
        os.write(fd, f"\n{line}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)


class Orders:
    """The orders of one start, each handed out once."""

    __slots__ = ("_path", "_read_to")

    def __init__(self, folder: str, start: int) -> None:
        self._path = os.path.join(folder, f"orders.{start}")
        self._read_to = 0

    def new(self) -> list[list[str]]:
        """Return the words of each order that came since the last call, whole lines only."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(self._read_to)
                lines = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        self._read_to += len(lines)
        return [words for line in lines.split(b"\n") if (words := line.decode("ascii", "replace").split())]


# -- locks ------------------------------------------------------------------------------------------------------


def try_lock(folder: str, name: str) -> int | None:
    """Return the descriptor of a lock that is now ours, or None if it is held; it is never inherited by itself."""
    fd = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def unlock(fd: int) -> None:
    """Give a lock back. Said aloud, for a fork in another thread may hold a copy until its exec."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def is_locked(folder: str, name: str) -> bool:
    """Tell whether a lock is held, by taking it for a moment."""
    fd = try_lock(folder, name)
    if fd is not None:
        unlock(fd)
    return fd is None


# -- the verdict ------------------------------------------------------------------------------------------------


@record
class Alive:
    """Its runner lives. Without a shim the runner is about to decide, or somebody else is: look again soon."""

    shim: Shim | None
    running: records.Running | None


@record
class Ended:
    """The command ran and ended, or could not be started, as `final` says."""

    final: records.Final


@record
class NoLease:
    """A device was refused; the command did not run."""

    final: records.Final


@record
class NeverStarted:
    """The command did not run, and for this start it never will."""


@record
class Orphaned:
    """The runner is dead; something of the command lives and still holds its leases."""

    running: records.Running | None


@record
class Lost:
    """The runner died without a record; whether and how the command ended nobody knows."""

    running: records.Running | None


@record
class Missing:
    """There is no folder, so nothing can start any more; what it knew is gone.

    Only the caller knows whether it ran: for a start that nobody saw running this is `NeverStarted` (the folder is
    made after the start was decided on), for one that ran it is `Lost`.
    """


if TYPE_CHECKING:
    Verdict = Alive | Ended | NoLease | NeverStarted | Orphaned | Lost | Missing


def examine(folder: str, start: int) -> Verdict:
    """Say what became of a start, and make it final: whatever did not begin until now will not begin any more."""
    crash_point("examine:begin")
    if isinstance(read_started(folder, start), Tombstone):
        return NeverStarted()
    try:
        lock = try_lock(folder, RUN_LOCK)
    except (FileNotFoundError, NotADirectoryError):
        return Missing()
    if lock is None:
        return _examine_living(folder, start)
    try:
        crash_point("examine:locked")
        return _examine_dead(folder, start)
    finally:
        crash_point("examine:decided")
        unlock(lock)


def _examine_living(folder: str, start: int) -> Alive | NeverStarted:
    started = read_started(folder, start)
    if isinstance(started, Tombstone):
        return NeverStarted()
    return Alive(started, records.read_running(folder, start))


def _examine_dead(folder: str, start: int) -> Ended | NoLease | NeverStarted | Orphaned | Lost:
    """Decide while run.lock is ours, so that no runner can begin in between."""
    final = records.read_final(folder, start)
    if final is not None:
        return NoLease(final) if final.kind == "nolease" else Ended(final)
    # The tombstone before the answer: a runner still on its way must find it and leave.
    if read_started(folder, start) is None and link_started(folder, start, TOMBSTONE):
        return NeverStarted()
    if isinstance(read_started(folder, start), Tombstone):
        return NeverStarted()
    running = records.read_running(folder, start)
    return Orphaned(running) if is_locked(folder, TREE_LOCK) else Lost(running)
