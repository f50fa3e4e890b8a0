"""The lease folder that root prepares: users can lock the files of a device, but not remove, replace or change them.

    /run/dibs             root, 0755: only root can add or remove files
      .dibs-lease-UUID    root, 1666: every user can lock it
      .dibs-gate-UUID     the same
      tickets/            root, 1777: tickets, and the records of who was served

/run is empty after a boot, so `systemd-tmpfiles` makes it all again from a file in /etc. Everything here is for root.
"""

from __future__ import annotations

import os
import stat

from dibs import errors
from dibs.leases import holders
from dibs.system import locks
from dibs.system.lean import closing_fd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.system.locks import Folder

FOLDER = "/run/dibs"
TMPFILES = "/etc/tmpfiles.d/dibs.conf"
MARK = "# Written by `dibs machine init`; `dibs machine undo` removes it.\n"
#: The line that earlier releases told administrators to write.
OLD_LINE = "d /run/dibs 1777 root root -"
#: Why a device cannot be used in a prepared folder.
MISSING = "no lease file prepared"


def missing(place: Folder, devices: Iterable[str]) -> list[str]:
    """Return the devices that cannot be leased because a prepared folder has no files for them."""
    if not place.is_prepared:
        return []
    return [device for device in devices if not all(map(os.path.lexists, _files(place, device)))]


def _files(place: Folder, device: str) -> tuple[str, str]:
    return holders.gate_file(place, device), holders.file(place, device)


def prepared_devices(path: str) -> list[str]:
    """Return the devices that have files in this folder."""
    try:
        names = os.listdir(path)
    except OSError:
        return []
    return sorted({name[len(kind) :] for kind in (locks.LEASE, locks.GATE) for name in names if name.startswith(kind)})


def prepare(root: str, devices: Iterable[str]) -> list[str]:
    """Make the folder and the files of these devices below `root`, or complete them; return what was new."""
    path = root + FOLDER
    _check_tmpfiles(root)
    _make_folder(path, 0o755)
    _make_folder(f"{path}/{locks.TICKETS}", 0o1777)
    # Devices that the driver does not show now may come back.
    everything = sorted({*prepared_devices(path), *map(holders.checked, devices)})
    files = {device: [f"{path}/{kind}{device}" for kind in (locks.GATE, locks.LEASE)] for device in everything}
    _remove_planted([file for both in files.values() for file in both])
    made = {device: [_make_file(file) for file in both] for device, both in files.items()}
    _write(root + TMPFILES, tmpfiles(everything))
    return [device for device, both in made.items() if any(both)]


def _make_folder(path: str, mode: int) -> None:
    """Make a folder of root with this mode, or give one that is there owner and mode."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.mkdir(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise errors.UserError(f"{path} is not a folder.", "Remove it, then try again.") from None
    os.chown(path, 0, 0)
    os.chmod(path, mode)


def _remove_planted(files: Iterable[str]) -> None:
    """Remove what users planted: only a regular file with one name can be taken over."""
    found = {file: os.lstat(file) for file in files if os.path.lexists(file)}
    for file, status in found.items():
        if stat.S_ISDIR(status.st_mode):
            raise errors.UserError(f"{file} is a folder.", "Remove it, then try again.")
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            os.unlink(file)


def _make_file(path: str) -> bool:
    """Make a file that every user can lock, or take over that of a user, with its locks; return whether it is new."""
    is_new = not os.path.lexists(path)
    with closing_fd(os.open(path, os.O_RDWR | os.O_CREAT | locks.OPEN_FLAGS, 0o600)) as fd:
        os.fchown(fd, 0, 0)
        os.fchmod(fd, locks.SHARED_MODE)
    return is_new


def tmpfiles(devices: Iterable[str]) -> str:
    """Return the text from which `systemd-tmpfiles` makes the folder at boot."""
    lines = [f"d {FOLDER} 0755 root root -", f"d {FOLDER}/{locks.TICKETS} 1777 root root -"]
    lines += [
        f"f {FOLDER}/{kind}{device} {locks.SHARED_MODE:04o} root root -"
        for device in devices
        for kind in (locks.GATE, locks.LEASE)
    ]
    return MARK + "".join(f"{line}\n" for line in lines)


def _check_tmpfiles(root: str) -> None:
    """Refuse to replace a file that dibs did not write."""
    text = read_tmpfiles(root)
    if text is not None and not text.startswith(MARK) and text.strip() != OLD_LINE:
        told = f"{root}{TMPFILES} was not written by dibs and was not changed."
        raise errors.UserError(told, "Move it away, then try again.")


def read_tmpfiles(root: str) -> str | None:
    """Return the text for `systemd-tmpfiles`; None if there is none."""
    try:
        with open(root + TMPFILES, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(text)
    os.rename(temporary, path)


def undo(root: str) -> bool:
    """Remove what `prepare` made; return whether there was anything."""
    path = root + FOLDER
    devices = prepared_devices(path)
    if locks.is_prepared(path) and (held := holders.held(locks.Folder(path), devices)):
        raise errors.Busy(
            f"{', '.join(sorted(held))} leased now.", "Undo it when they are free; `dibs gpus` shows who."
        )
    _check_tmpfiles(root)
    is_there = read_tmpfiles(root) is not None or locks.is_prepared(path)
    if read_tmpfiles(root) is not None:
        os.unlink(root + TMPFILES)
    if locks.is_prepared(path):
        _remove(path, devices)
    return is_there


def _remove(path: str, devices: Iterable[str]) -> None:
    import shutil

    # Users may have added anything there; it follows no links.
    shutil.rmtree(f"{path}/{locks.TICKETS}")
    for device in devices:
        for kind in (locks.GATE, locks.LEASE):
            _unlink(f"{path}/{kind}{device}")
    # What root drained stays.
    if not os.listdir(path):
        os.rmdir(path)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
