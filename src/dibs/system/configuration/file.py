"""Change settings in a configuration file. Comments and layout stay; an invalid result is never written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dibs import errors
from dibs.system import commands, settings
from dibs.system.configuration import texts
from dibs.system.configuration.entries import Entry
from dibs.system.settings import Setting

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

#: Seconds to wait for another program that changes the same file. Any user may lock a folder that he can read, so
#: after that we continue without the lock.
PATIENCE_S = 5.0
POLL_S = 0.02


def set_value(path: Path, one: Setting | Entry, text: str, environ: Mapping[str, str]) -> None:
    """Set a setting to the value that `text` spells; raise if the value, or the file as it is, is invalid."""
    import tomlkit

    commands.check_text(text, one.name)
    if isinstance(one, Entry):
        value = one.key.kind.from_text(text)
    else:
        if not one.is_in_files:
            raise errors.UserError(settings.not_in_files(one), f"Set {one.variable} instead.")
        value = one.kind.from_text(text)
        one.kind.checked(value, one.name, environ)
    _make_folder(path)
    with turn(path):
        document = _document(path, environ)
        table: Any = document
        for depth, name in enumerate(one.keys[:-1]):
            table = table.setdefault(name, tomlkit.table(is_super_table=depth == 0))
        table[one.keys[-1]] = value
        replace(path, document.as_string(), environ)


def unset(path: Path, one: Setting | Entry, environ: Mapping[str, str]) -> bool:
    """Remove a setting, and with the last key of a table the table; return False if the file does not set it."""
    with turn(path):
        document = _document(path, environ)
        tables: list[Any] = [document]
        for name in one.keys[:-1]:
            tables.append(tables[-1].get(name, {}))
        if one.keys[-1] not in tables[-1]:
            return False
        del tables[-1][one.keys[-1]]
        if len(tables) > 1 and not tables[-1]:
            del tables[-2][one.keys[-2]]
        replace(path, document.as_string(), environ)
        return True


@contextlib.contextmanager
def turn(path: Path) -> Iterator[None]:
    """Read and write a configuration file while no other program does, because each writes the whole file."""
    try:
        # The file itself is replaced at every change, so the lock is on its folder.
        fd = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        # Missing or closed: reading or writing the file says why.
        yield
        return
    try:
        _lock(fd)
        yield
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(POLL_S)
        except OSError:
            # A file system without locks.
            return


def replace(path: Path, text: str, environ: Mapping[str, str]) -> None:
    """Write the text of a configuration file, unless it is invalid. A crash leaves the old file or the new one."""
    settings.check_text(path, text, environ)
    # A file that is a link, as managers of dotfiles make them, stays one.
    target = os.path.realpath(path)
    fresh = ""
    _make_folder(path)
    try:
        fd, fresh = tempfile.mkstemp(prefix=".config-", dir=os.path.dirname(target))
        with open(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, _mode(target, path))
            file.write(text)
            file.flush()
            os.fsync(fd)
        os.replace(fresh, target)
    except OSError as error:
        if fresh and os.path.lexists(fresh):
            os.unlink(fresh)
        raise _cannot_write(path, error) from error


def _make_folder(path: Path) -> None:
    try:
        os.makedirs(os.path.dirname(os.path.realpath(path)), exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _document(path: Path, environ: Mapping[str, str]) -> TOMLDocument:
    import tomlkit

    text = texts.read(path, is_required=False) or ""
    # An error here names the line of the file that is already wrong.
    settings.check_text(path, text, environ)
    return tomlkit.parse(text)


def _mode(target: str, path: Path) -> int:
    """Keep the mode of a file; a new one of the machine is readable by all, a user's own by that user alone."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode)
    except FileNotFoundError:
        return 0o644 if path == settings.SITE_CONFIG else 0o600


def _cannot_write(path: Path, error: OSError) -> errors.DibsError:
    if isinstance(error, PermissionError):
        return errors.NotAllowed(
            f"{path}: you have no permission to write it.", "Machine-wide settings need root: use sudo."
        )
    return errors.MachineError(f"{path} cannot be written: {error.strerror}.", "Nothing was changed.")
