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
from dibs.system.lean import closing_fd, record

TYPE_CHECKING = False

TOMBSTONE = "tombstone"
#: A new file that only we can open.
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

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


def prepare(folder: str, text: str, room: int = records.SIZE, *, is_shared: bool = False) -> Claim:
    """Create the claim file of a start. A full disk then prevents the start instead of losing the job.

    In a folder that several machines share it is not locked: a network file system may have no locks, or keep them to
    one machine.

    Nothing is synced: after a crash of our processes the kernel still has the data, and a power cut ends every runner.
    A start without a file after a power cut is unknown, not open; see `dispatch.recover`.
    """
    path = f"{folder}/.started.{os.getpid()}.{os.urandom(4).hex()}"
    claim = Claim(path, os.open(path, CREATE, 0o600))
    try:
        if room:
            os.posix_fallocate(claim.fd, 0, room)
        _sign(claim.fd, text, is_shared=is_shared)
    except BaseException:
        claim.drop()
        raise
    crash_point("started:written")
    return claim


def make_blank(path: str) -> None:
    """Create a claim of nobody, with its room, for a runner that signs it later."""
    with closing_fd(os.open(path, CREATE, 0o600)) as fd:
        os.posix_fallocate(fd, 0, records.SIZE)


def sign(path: str, text: str) -> Claim:
    """Turn a blank claim into that of the calling runner."""
    claim = Claim(path, os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    try:
        _sign(claim.fd, text)
    except BaseException:
        claim.drop()
        raise
    crash_point("started:written")
    return claim


def _sign(fd: int, text: str, *, is_shared: bool = False) -> None:
    if not is_shared:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # A claim that lost its text in a power cut is still a claim.
    os.pwrite(fd, text.encode() + b"\n", 0)
    if is_shared:
        show(fd)


def show(fd: int) -> None:
    """Let other machines see what was written to an open file of a shared folder; on a local disk this does nothing.

    NFS sends what was written when a descriptor is closed, any one of the file; else up to half a minute later.
    """
    os.close(os.dup(fd))


def decide(claim: Claim, folder: str, start: int) -> int | None:
    """Link the `started` file of a start; return its locked descriptor, or None if the start was already decided."""
    try:
        os.link(claim.path, f"{folder}/started.{start}")
    except BaseException as error:
        # The server of a network file system may do what it was asked twice, and report the second time.
        is_ours = isinstance(error, FileExistsError) and os.fstat(claim.fd).st_nlink > 1
        if not is_ours:
            claim.drop()
            if isinstance(error, FileExistsError):
                return None
            raise
    crash_point("started:linked")
    os.unlink(claim.path)
    return claim.fd


def claim(folder: str, start: int, text: str, *, is_shared: bool = False) -> int | None:
    """Claim a start for the calling runner; return the same as `decide`."""
    return decide(prepare(folder, text, is_shared=is_shared), folder, start)


def bury(folder: str, start: int, *, is_shared: bool = False) -> bool:
    """Decide that a start never begins; return False if it was already decided."""
    fd = decide(prepare(folder, TOMBSTONE, room=0, is_shared=is_shared), folder, start)
    if fd is not None:
        os.close(fd)
    return fd is not None


def sync(folder: str, start: int) -> None:
    """Sync the records of a start to disk, so that a power cut cannot lose them. Do nothing without a claim."""
    try:
        fd = os.open(f"{folder}/started.{start}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    with closing_fd(fd):
        os.fdatasync(fd)


def open_folder(folder: str) -> int:
    """Return a descriptor of the folder that children do not inherit by default."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def read_started(folder: str, start: int) -> Shim | Tombstone | None:
    """Return how this start was decided, or None if it is undecided."""
    found = read_records(folder, start)
    return None if found is None else found.decision


@record
class Records:
    """What the file of a decided start says."""

    decision: Shim | Tombstone
    running: records.RunningCommand | None = None
    final: records.Final | None = None


def read_records(folder: str, start: int) -> Records | None:
    """Return the records of a start; None if it is undecided."""
    fd = _open_started(folder, start)
    if fd is None:
        return None
    with closing_fd(fd):
        return _records(fd)


def _records(fd: int) -> Records:
    content = os.pread(fd, records.SIZE, 0)
    return Records(_decision(content), records.running_in(content), records.final_in(content))


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


def give_up(folder: str, start: int, *, is_shared: bool = False) -> bool:
    """Bury a start before it begins; return False if a runner claimed it first, which then needs an order."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return bury(folder, start, is_shared=is_shared) or isinstance(read_started(folder, start), Tombstone)


# -- orders -----------------------------------------------------------------------------------------------------


def append_order(folder: str, start: int, line: str) -> None:
    """Append a durable order for the runner of a start, which reads it on SIGUSR1.

    `stop GRACE_S`, `stop GRACE_S warn` (its warning signal comes first), `signal N`, `pause`, `resume`,
    `limit SECONDS`, `limit none`, or `evictable` (let others see that it is).
    """
    path = os.path.join(folder, f"orders.{start}")
    with closing_fd(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)) as fd:
        # One write per order. The leading newline ends a line that a crash left incomplete.
        os.write(fd, f"\n{line}\n".encode())
        os.fsync(fd)


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
    with closing_fd(open_folder(folder)) as fd:
        return _is_locked(fd)


def has_runner(folder: str, start: int) -> bool:
    """Return whether the runner that claimed this start still works on it."""
    with closing_fd(os.open(f"{folder}/started.{start}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)) as fd:
        return _is_locked(fd)


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
    #: What is known about it; empty: nothing.
    why: str = ""


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
    with closing_fd(fd):
        return _examine_decided(folder, fd)


def _examine_decided(folder: str, fd: int) -> Verdict:
    is_at_work = _is_locked(fd)
    # Read after the check: a runner that has unlocked has written everything.
    found = _records(fd)
    if is_at_work and isinstance(found.decision, Shim):
        return Alive(found.decision, found.running)
    settled = settle(found)
    if settled is not None:
        return settled
    return Orphaned(found.running) if has_tree(folder) else Lost(found.running)


def settle(found: Records) -> Verdict | None:
    """Return what the records of a decided start say by themselves; None if that depends on whether a runner lives."""
    if isinstance(found.decision, Tombstone):
        return NeverStarted()
    return None if found.final is None else judge(found.final, found.running)


def judge(final: records.Final, running: records.RunningCommand | None = None) -> Verdict:
    """Return what a final record says about its start."""
    if final.kind == "lost":
        return Lost(running, final.why)
    if final.kind == "nolease":
        return NoLease(final)
    return Refused(final) if final.kind == "refused" else Ended(final)
