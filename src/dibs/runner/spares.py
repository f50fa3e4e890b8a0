"""Job folders created in advance: while a command runs, its runner creates the folder for its next start.

    spares/PID.X/          becomes jobs/ID, by one rename
      1/.started.PID.X     becomes 1/started.S, by the link that decides; locked, with room for the records
      1/log  log  checkpoint/

A start then renames two files instead of creating a tree. Nothing is decided here: a spare belongs to no job until it
is renamed, and to no start until it is linked. The next daemon removes the spares of dead runners.
"""

from __future__ import annotations

import fcntl
import os

from dibs.runner import attempts, records
from dibs.system.crash_points import crash_point

#: Their folder, next to that of all jobs.
FOLDER = "spares"
#: Our own log: private, append-only, never opened through a link.
LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW


class Spare:
    """A folder in reserve for a job, with its claim and its log open."""

    __slots__ = ("claim", "log", "path")

    def __init__(self, path: str, claim: attempts.Claim, log: int) -> None:
        self.path = path
        self.claim = claim
        self.log = log


class Spares:
    """At most one spare, of one runner; `shim` identifies the runner in its claims."""

    __slots__ = ("_is_used_again", "_shim", "_spare")

    def __init__(self, shim: str) -> None:
        self._shim = shim
        self._spare: Spare | None = None
        self._is_used_again = False

    def take(self, spec: records.Spec) -> Spare | None:
        """Rename the spare to the job's folder; return None if there is no spare or the job already has a folder."""
        spare = self._spare
        if spare is None or not _fits(spec):
            return None
        home = spec.folder.rpartition("/")[0]
        try:
            os.rename(spare.path, home)
        except OSError:
            return None
        self._spare = None
        spare.claim.path = f"{spec.folder}/{spare.claim.path.rpartition('/')[2]}"
        crash_point("spare:moved")
        return spare

    def make(self, spec: records.Spec) -> None:
        """Create a spare for a start like this one; not during a runner's first start, which may be its only one."""
        if self._spare is None and self._is_used_again and _fits(spec):
            try:
                self._spare = _make(_place(spec), self._shim)
            except OSError:
                # For example a full disk: the next start creates its own folder and reports the error.
                self._spare = None
        self._is_used_again = True

    def drop(self) -> None:
        """Remove the spare, because no start follows."""
        if self._spare is not None:
            os.close(self._spare.claim.fd)
            os.close(self._spare.log)
            remove(self._spare.path)
            self._spare = None


def _fits(spec: records.Spec) -> bool:
    """Return whether a start has all its files at the default places of a first attempt."""
    home = spec.folder.rpartition("/")[0]
    raw = os.fsencode(home)
    return (
        spec.folder == f"{home}/1"
        and spec.folders == (raw + b"/checkpoint",)
        and (spec.output, spec.output_mode, spec.latest) == (raw + b"/1/log", None, raw + b"/log")
    )


def _place(spec: records.Spec) -> str:
    """Return the folder of spares, next to the folder of all jobs."""
    return f"{spec.folder.rsplit('/', 3)[0]}/{FOLDER}"


def _make(place: str, shim: str) -> Spare:
    path = f"{place}/{os.getpid()}.{os.urandom(4).hex()}"
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        os.makedirs(path, 0o700)
    try:
        os.mkdir(f"{path}/1", 0o700)
        os.mkdir(f"{path}/checkpoint", 0o700)
        os.symlink("1/log", f"{path}/log")
        claim = attempts.prepare(f"{path}/1", shim)
        try:
            log = above_standard(os.open(f"{path}/1/log", LOG_FLAGS, 0o600))
        except BaseException:
            claim.drop()
            raise
    except BaseException:
        remove(path)
        raise
    crash_point("spare:made")
    return Spare(path, claim, log)


def above_standard(fd: int) -> int:
    """Return a descriptor above 2, because the command gets its own 0, 1 and 2.

    Such low numbers are free only if our parent closed them.
    """
    return fd if fd > 2 else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def remove_dead(home: str) -> None:
    """Remove the spares of dead runners. (A living runner that loses its spare creates its next folder itself.)"""
    try:
        names = os.listdir(f"{home}/{FOLDER}")
    except FileNotFoundError:
        return
    for name in names:
        if not os.path.exists(f"/proc/{name.partition('.')[0]}"):
            remove(f"{home}/{FOLDER}/{name}")


def remove(path: str) -> None:
    """Remove a spare, or the parts of it that exist."""
    for folder in (f"{path}/1", f"{path}/checkpoint", path):
        try:
            for name in os.listdir(folder):
                os.unlink(f"{folder}/{name}")
            os.rmdir(folder)
        except OSError:
            # Missing, or it contains a folder that is not ours: leave it.
            continue
