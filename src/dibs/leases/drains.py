"""Drained devices, on which nothing new may start: by root for all users, or by a user for their own jobs.

Root's marks are files in a folder that only root can write. `device_lease.take` obeys them, and so does every program
that takes a device. A user's own drains are in the store.
"""

from __future__ import annotations

import os

from dibs.leases import holders
from dibs.system import locks
from dibs.system.lean import closing_fd, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.system.locks import Folder

#: Maximum bytes of a reason.
LONGEST_BYTES = 800
STANDARD = ("/tmp", "/run/dibs")


def folder(place: Folder) -> str:
    """Return the folder of root's marks: on /run, which a boot clears, or in a test next to its leases."""
    return "/run/dibs/drained" if place.path in STANDARD else f"{place.path}/drained"


def _is_trusted(place: Folder, found: os.stat_result) -> bool:
    """Return whether root created it; files that other users plant are ignored."""
    is_ours = place.path not in STANDARD and found.st_uid == os.geteuid()
    return (found.st_uid == 0 or is_ours) and not found.st_mode & 0o022


def reason(place: Folder, device: str) -> str | None:
    """Return why root drained a device, possibly an empty text; None if it is not drained."""
    where = folder(place)
    path = f"{where}/{holders.checked(device)}"
    try:
        found = locks.read_small(path, size=LONGEST_BYTES) if _is_trusted(place, os.lstat(where)) else None
    except OSError:
        return None
    return found[1].strip() if found is not None and _is_trusted(place, found[0]) else None


def marks(place: Folder) -> dict[str, str]:
    """Return the devices that root drained, each with the reason."""
    try:
        names = os.listdir(folder(place))
    except OSError:
        return {}
    wanted = (name for name in names if holders.ID_CHARS.issuperset(name) and not name.startswith("."))
    return {name: why for name in wanted if (why := reason(place, name)) is not None}


def mark(place: Folder, device: str, why: str) -> None:
    """Drain a device for all users; only root can."""
    where = folder(place)
    for path in (os.path.dirname(where), where):
        if not os.path.isdir(path):
            os.mkdir(path)
            # Regardless of the umask: all programs must be able to read it. A lease folder on /run has another mode, so
            # this one is not mistaken for it.
            os.chmod(path, 0o755)
    temporary = f"{where}/.{holders.checked(device)}.{os.getpid()}"
    with closing_fd(
        os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    ) as fd:
        os.fchmod(fd, 0o644)
        os.write(fd, why.encode()[:LONGEST_BYTES])
    os.rename(temporary, f"{where}/{device}")


def unmark(place: Folder, device: str) -> bool:
    """Let all users use a device again; return whether it was drained."""
    try:
        os.unlink(f"{folder(place)}/{holders.checked(device)}")
    except FileNotFoundError:
        return False
    return True


@record
class Drains:
    """The drained devices of one user, as text: root's marks, read each time, and the user's own drains."""

    place: Folder
    #: Replaced as a whole when it changes, because other threads read it.
    own: dict[str, str]

    def add_own(self, device: str, why: str) -> None:
        """Drain a device for this user's jobs."""
        self.own = {**self.own, device: why}

    def remove_own(self, device: str) -> None:
        """Let this user's jobs use a device again."""
        self.own = {own: why for own, why in self.own.items() if own != device}

    def now(self) -> dict[str, str]:
        """Return the drained devices, each with who drained it and why."""
        told = {device: _told("you", why) for device, why in self.own.items()}
        return told | {device: _told("root", why) for device, why in marks(self.place).items()}


def _told(who: str, why: str) -> str:
    return f"drained by {who}" + (f": {why}" if why else "")
