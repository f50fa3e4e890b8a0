"""A job's folder made in advance: while its command runs, a runner makes what its next start will need.

    spares/PID.X/          becomes jobs/ID, by one rename
      1/.started.PID.X     becomes 1/started.S, by the link that decides; locked, with room for the records
      1/log  log  checkpoint/

A start then renames two files instead of making a tree of them. Nothing is decided here: a spare belongs to no job
until it is renamed, and to no start until it is linked. One whose runner died is removed by the next
daemon. Runs under `python -I -S`, so only modules that cost nothing are imported.
"""

from __future__ import annotations

import fcntl
import os

from dibs.runner import attempts, records
from dibs.system.crash_points import crash_point

#: Our own log: private, only ever appended to, never reached by a link.
LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW


class Spare:
    """A folder that waits for its job, with its claim and its log open."""

    __slots__ = ("claim", "log", "path")

    def __init__(self, path: str, claim: attempts.Claim, log: int) -> None:
        self.path = path
        self.claim = claim
        self.log = log


class Spares:
    """At most one spare, of one runner; `shim` names it in its claims."""

    __slots__ = ("_is_used_again", "_shim", "_spare")

    def __init__(self, shim: str) -> None:
        self._shim = shim
        self._spare: Spare | None = None
        self._is_used_again = False

    def take(self, spec: records.Spec) -> Spare | None:
        """Make the spare the folder of this start's job; None if there is no spare, or the job has a folder already."""
        spare = self._spare
        if spare is None or not _fits(spec):
            return None
        home = os.path.dirname(spec.folder)
        try:
            os.rename(spare.path, home)
        except OSError:
            return None
        self._spare = None
        spare.claim.path = f"{spec.folder}/{os.path.basename(spare.claim.path)}"
        crash_point("spare:moved")
        return spare

    def make(self, spec: records.Spec) -> None:
        """Make a spare for a start like this one; not for a runner's first, which may be its only one."""
        if self._spare is None and self._is_used_again and _fits(spec):
            try:
                self._spare = _make(_place(spec), self._shim)
            except OSError:
                # A full disk, say: the next start makes its own folder, and says what is wrong.
                self._spare = None
        self._is_used_again = True

    def drop(self) -> None:
        """Remove the spare: no start will come."""
        if self._spare is not None:
            os.close(self._spare.claim.fd)
            os.close(self._spare.log)
            remove(self._spare.path)
            self._spare = None


def _fits(spec: records.Spec) -> bool:
    """Tell whether a start has all its files where a first attempt usually has them."""
    home = os.path.dirname(spec.folder)
    raw = os.fsencode(home)
    return (
        spec.folder == f"{home}/1"
        and spec.folders == (raw + b"/checkpoint",)
        and (spec.output, spec.output_mode, spec.latest) == (raw + b"/1/log", None, raw + b"/log")
    )


def _place(spec: records.Spec) -> str:
    """Return the folder of spares beside that of all jobs."""
    return f"{os.path.dirname(os.path.dirname(os.path.dirname(spec.folder)))}/spares"


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
    """Return a descriptor that is none of 0, 1 and 2: the command gets its own.

    Such low numbers are free only if our parent closed them.
    """
    return fd if fd > 2 else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def remove_dead(home: str) -> None:
    """Remove the spares of runners that are gone. (One that lives without it makes its next folder itself.)"""
    try:
        names = os.listdir(f"{home}/spares")
    except FileNotFoundError:
        return
    for name in names:
        if not os.path.exists(f"/proc/{name.partition('.')[0]}"):
            remove(f"{home}/spares/{name}")


def remove(path: str) -> None:
    """Remove a spare, or as much of it as there is."""
    for folder in (f"{path}/1", f"{path}/checkpoint", path):
        try:
            for name in os.listdir(folder):
                os.unlink(f"{folder}/{name}")
            os.rmdir(folder)
        except OSError:
            # Not there, or it contains a folder that is not ours: leave it.
            continue
