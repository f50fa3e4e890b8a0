"""Job folders created in advance: by the daemon while it is idle, by a runner for its next start while a command runs.

    spares/PID.TIME.X/     becomes jobs/ID, by one rename
      1/.blank             becomes 1/started.S, by the link that decides; with room for the records
      1/log  log  checkpoint/

A start then renames two files instead of creating a tree. Nothing is decided here: a spare belongs to no job until it
is renamed, and to no start until it is linked. The next daemon removes the spares of dead processes.
"""

from __future__ import annotations

import fcntl
import os

from dibs.runner import attempts, records
from dibs.system import processes
from dibs.system.crash_points import crash_point

#: Their folder, next to that of all jobs.
FOLDER = "spares"
#: The claim in a spare.
BLANK = "1/.blank"
#: Our own log: private, append-only, never opened through a link.
LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW


class Spare:
    """A spare that became the folder of a job, with its claim and its log open."""

    __slots__ = ("claim", "log")

    def __init__(self, claim: attempts.Claim, log: int) -> None:
        self.claim = claim
        self.log = log


class Spares:
    """At most one spare, of one runner; `shim` identifies the runner in its claims."""

    __slots__ = ("_is_used_again", "_process", "_shim", "_spare")

    def __init__(self, shim: str) -> None:
        self._shim = shim
        self._process = ".".join(shim.split()[1:3])
        self._spare = ""
        self._is_used_again = False

    def take(self, spec: records.Spec) -> Spare | None:
        """Rename the spare of the start, or our own, to the job's folder; return None if there is none that fits."""
        path = spec.spare or self._spare
        if not path or not fits(spec):
            return None
        home = spec.folder.rpartition("/")[0]
        try:
            os.rename(path, home)
        except OSError:
            # The job has a folder already, or the spare is gone.
            if spec.spare:
                remove(path)
            return None
        if not spec.spare:
            self._spare = ""
        crash_point("spare:moved")
        try:
            return _opened(home, self._shim)
        except OSError:
            # Parts of it are gone, or no descriptor is left: the start creates what is missing, or reports that.
            return None

    def make(self, spec: records.Spec) -> None:
        """Create a spare for a start like this one; not during a runner's first start, which may be its only one."""
        if not self._spare and not spec.spare and self._is_used_again and fits(spec):
            try:
                self._spare = create(_place(spec), self._process)
            except OSError:
                # For example a full disk: the next start creates its own folder and reports the error.
                self._spare = ""
        self._is_used_again = True

    def drop(self) -> None:
        """Remove the spare, because no start follows."""
        if self._spare:
            remove(self._spare)
            self._spare = ""


def fits(spec: records.Spec) -> bool:
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


def process_name(pid: int) -> str:
    """Return what names a process in its spares: the pid, and when it started, because pids are used again."""
    return f"{pid}.{processes.identity(pid)}"


def create(place: str, process: str) -> str:
    """Create a spare of a process in the folder of spares; return its path."""
    path = f"{place}/{process}.{os.urandom(4).hex()}"
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        # Not the state folder itself: if somebody deleted it, that must be noticed.
        os.mkdir(place, 0o700)
        os.mkdir(path, 0o700)
    try:
        os.mkdir(f"{path}/1", 0o700)
        os.mkdir(f"{path}/checkpoint", 0o700)
        os.symlink("1/log", f"{path}/log")
        attempts.make_blank(f"{path}/{BLANK}")
        os.close(os.open(f"{path}/1/log", LOG_FLAGS, 0o600))
    except BaseException:
        remove(path)
        raise
    crash_point("spare:made")
    return path


def _opened(home: str, shim: str) -> Spare:
    """Return the spare in the folder of a job, signed by its runner."""
    claim = attempts.sign(f"{home}/{BLANK}", shim)
    try:
        return Spare(claim, above_standard(os.open(f"{home}/1/log", LOG_FLAGS, 0o600)))
    except BaseException:
        claim.drop()
        raise


def above_standard(fd: int) -> int:
    """Return a descriptor above 2, because the command gets its own 0, 1 and 2.

    Such low numbers are free only if our parent closed them.
    """
    return fd if fd > 2 else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def remove_dead(home: str) -> None:
    """Remove the spares of dead processes. (A living runner that loses its spare creates its next folder itself.)"""
    try:
        names = os.listdir(f"{home}/{FOLDER}")
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        pid = name.partition(".")[0]
        # Release 0.1 named them by the pid alone; its runners are gone when they have nothing to do.
        if not pid.isdecimal() or not name.startswith(f"{process_name(int(pid))}."):
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
