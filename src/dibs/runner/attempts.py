"""The files of one attempt, through which runner and daemon communicate.

        started.S   the commit point of start S, created by link(): a runner's claim with room for its records, or the
                                tombstone of an abandoned start; the runner keeps it locked while it works on the start
        orders.S    lines from the daemon to the runner, append-only

The folder itself is locked while the runner, or any process of the command that kept its descriptors, lives.
`examine` is the only place that interprets these files together. The caller decides what to do about the result.
"""

from __future__ import annotations

import fcntl
import os

from dibs.runner import records
from dibs.system.crash_points import crash_point
from dibs.system.lean import record

TYPE_CHECKING = False

TOMBSTONE = "tombstone"

# -- the commit point -------------------------------------------------------------------------------------------


@record
class Tombstone:
    """This start was abandoned before the command ran; no runner can claim it any more."""


@record
class Shim:
    """A runner claimed this start. Pid 0: the file exists but is unreadable; the start must not be repeated either."""

    pid: int
    starttime: int
    boot: str


class Claim:
    """A complete and locked `started` file that is not yet linked to its final name."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def drop(self) -> None:
        """Discard the claim."""
        os.close(self.fd)
        os.unlink(self.path)


def prepare(folder: str, text: str, room: int = records.SIZE) -> Claim:
    """Create the claim file of a start. A full disk then prevents the start instead of losing the job.

    Nothing is synced: after a crash of our processes the kernel still has the data, and a power cut ends every runner.
    A start without a file after a power cut is unknown, not open; see `dispatch.recover`.
    """
    path = f"{folder}/.started.{os.getpid()}.{os.urandom(4).hex()}"
    claim = Claim(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    try:
        fcntl.flock(claim.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if room:
            os.posix_fallocate(claim.fd, 0, room)
        # A claim that lost its text in a power cut is still a claim.
        os.pwrite(claim.fd, text.encode() + b"\n", 0)
    except BaseException:
        claim.drop()
        raise
    crash_point("started:written")
    return claim


def decide(claim: Claim, folder: str, start: int) -> int | None:
    """Link the `started` file of a start; return its locked descriptor, or None if the start was already decided."""
    try:
        os.link(claim.path, f"{folder}/started.{start}")
    except BaseException as error:
        claim.drop()
        if isinstance(error, FileExistsError):
            return None
        raise
    crash_point("started:linked")
    os.unlink(claim.path)
    return claim.fd


def claim(folder: str, start: int, text: str) -> int | None:
    """Claim a start for the calling runner; return the same as `decide`."""
    return decide(prepare(folder, text), folder, start)


def bury(folder: str, start: int) -> bool:
    """Decide that a start never begins; return False if it was already decided."""
    fd = decide(prepare(folder, TOMBSTONE, room=0), folder, start)
    if fd is not None:
        os.close(fd)
    return fd is not None


def sync(folder: str, start: int) -> None:
    """Sync the records of a start to disk, so that a power cut cannot lose them. Do nothing without a claim."""
    try:
        fd = os.open(f"{folder}/started.{start}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def open_folder(folder: str) -> int:
    """Return a descriptor of the folder that children do not inherit by default."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def read_started(folder: str, start: int) -> Shim | Tombstone | None:
    """Return how this start was decided, or None if it is undecided."""
    fd = _open_started(folder, start)
    if fd is None:
        return None
    try:
        return _decision(os.pread(fd, 256, 0))
    finally:
        os.close(fd)


def _open_started(folder: str, start: int) -> int | None:
    try:
        return os.open(f"{folder}/started.{start}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _decision(content: bytes) -> Shim | Tombstone:
    words = content[:256].partition(b"\n")[0].decode("ascii", "replace").split()
    if words == [TOMBSTONE]:
        return Tombstone()
    try:
        kind, pid, starttime, boot = words
        return Shim(int(pid), int(starttime), boot) if kind == "shim" else Shim(0, 0, "")
    except ValueError:
        return Shim(0, 0, "")


def give_up(folder: str, start: int) -> bool:
    """Bury a start before it begins; return False if a runner claimed it first, which then needs an order."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return bury(folder, start) or isinstance(read_started(folder, start), Tombstone)


# -- orders -----------------------------------------------------------------------------------------------------


def append_order(folder: str, start: int, line: str) -> None:
    """Append a durable order for the runner of a start, which reads it on SIGUSR1.

    `stop GRACE_S`, `signal N`, `pause`, `resume`, `limit SECONDS` or `limit none`.
    """
    path = os.path.join(folder, f"orders.{start}")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # One write per order. The leading newline ends a line that a crash left incomplete.
        os.write(fd, f"\n{line}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)


class Orders:
    """The orders of one start; each is returned once."""

    __slots__ = ("_path", "_read_to")

    def __init__(self, folder: str, start: int) -> None:
        self._path = os.path.join(folder, f"orders.{start}")
        self._read_to = 0

    def new(self) -> list[list[str]]:
        """Return the words of each complete order line since the last call."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(self._read_to)
                lines = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        self._read_to += len(lines)
        return [words for line in lines.split(b"\n") if (words := line.decode("ascii", "replace").split())]


def orders_in_force(folder: str, start: int) -> tuple[bool, str | None]:
    """Return the effect of a start's orders: whether it is paused, and its new time limit as written."""
    is_paused, limit = False, None
    for verb, *words in Orders(folder, start).new():
        if verb in ("pause", "resume"):
            is_paused = verb == "pause"
        elif verb == "limit" and words:
            limit = words[0]
    return is_paused, limit


# -- locks ------------------------------------------------------------------------------------------------------


def lock_tree(folder: str) -> int | None:
    """Lock the folder for this tree; return the descriptor, or None if another process of the attempt holds it."""
    fd = open_folder(folder)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def has_tree(folder: str) -> bool:
    """Return whether the runner, or any process of the command that kept its descriptors, lives."""
    fd = open_folder(folder)
    try:
        return _is_locked(fd)
    finally:
        os.close(fd)


def has_runner(folder: str, start: int) -> bool:
    """Return whether the runner that claimed this start still works on it."""
    fd = os.open(f"{folder}/started.{start}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _is_locked(fd)
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
    """Return whether the lock is held exclusively; several processes may check at the same time."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    # Unlock explicitly: a fork in another thread may hold a copy until its exec.
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


# -- the verdict ------------------------------------------------------------------------------------------------


@record
class Alive:
    """The runner lives and works on this start."""

    shim: Shim
    running: records.RunningCommand | None


@record
class Ended:
    """The command ran and ended, or could not be started; `final` has the result."""

    final: records.Final


@record
class NoLease:
    """A lease was refused; the command did not run."""

    final: records.Final


@record
class Refused:
    """The machine refused the start; the command did not run."""

    final: records.Final


@record
class NeverStarted:
    """The command did not run, and this start never will."""


@record
class Orphaned:
    """The runner is dead; a process of the command lives and still holds its leases."""

    running: records.RunningCommand | None


@record
class Lost:
    """The runner died without a final record; whether and how the command ended is unknown."""

    running: records.RunningCommand | None


@record
class Missing:
    """The folder does not exist, so nothing can start any more and its records are lost.

    Only the caller knows whether the command ran: a start never seen running is `NeverStarted` (the folder is created
    after the decision to start), a start that ran is `Lost`.
    """


if TYPE_CHECKING:
    Verdict = Alive | Ended | NoLease | Refused | NeverStarted | Orphaned | Lost | Missing


def examine(folder: str, start: int) -> Verdict:
    """Return the state of a start and make it final: a start that has not begun by now never will."""
    crash_point("examine:begin")
    fd = _open_started(folder, start)
    if fd is None:
        # Write the tombstone before answering: a runner that is about to claim must find it and leave.
        try:
            if bury(folder, start):
                return NeverStarted()
        except (FileNotFoundError, NotADirectoryError):
            return Missing()
        fd = _open_started(folder, start)
    crash_point("examine:decided")
    if fd is None:
        return NeverStarted()
    try:
        return _examine_decided(folder, fd)
    finally:
        os.close(fd)


def _examine_decided(folder: str, fd: int) -> Verdict:
    started = _decision(os.pread(fd, 256, 0))
    if isinstance(started, Tombstone):
        return NeverStarted()
    is_at_work = _is_locked(fd)
    # Read after the check: a runner that has unlocked has written everything.
    content = os.pread(fd, records.SIZE, 0)
    if is_at_work:
        return Alive(started, records.running_in(content))
    final = records.final_in(content)
    if final is not None:
        if final.kind == "nolease":
            return NoLease(final)
        return Refused(final) if final.kind == "refused" else Ended(final)
    running = records.running_in(content)
    return Orphaned(running) if has_tree(folder) else Lost(running)
