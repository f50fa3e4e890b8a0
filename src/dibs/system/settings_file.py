"""Change settings in a configuration file. Comments and layout stay; an invalid result is never written."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dibs import errors
from dibs.system import settings
from dibs.system.settings import Setting

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def set_value(path: Path, setting: Setting, text: str, environ: Mapping[str, str]) -> None:
    """Set one setting to the value that `text` spells; raise if the value, or the file as it is, is invalid."""
    if not setting.is_in_files:
        raise errors.UserError(settings.not_in_files(setting), f"Set {setting.variable} instead.")
    value = setting.kind.from_text(text)
    settings.checked(setting, value, setting.name, environ)
    document = _document(path, environ)
    document[setting.name] = value
    replace(path, document.as_string(), environ)


def unset(path: Path, setting: Setting, environ: Mapping[str, str]) -> bool:
    """Remove one setting from the file, so that its default applies; return False if the file does not set it."""
    document = _document(path, environ)
    if setting.name not in document:
        return False
    del document[setting.name]
    replace(path, document.as_string(), environ)
    return True


def replace(path: Path, text: str, environ: Mapping[str, str]) -> None:
    """Write the text of a configuration file, unless it is invalid. A crash leaves the old file or the new one."""
    settings.check_text(path, text, environ)
    # A file that is a link, as managers of dotfiles make them, stays one.
    target = os.path.realpath(path)
    fresh = ""
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
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


def _document(path: Path, environ: Mapping[str, str]) -> TOMLDocument:
    import tomlkit

    text = settings.text_of(path, is_required=False) or ""
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
        return errors.NotAllowed(f"{path}: you may not write it.", "Settings of the whole machine need root: sudo.")
    return errors.MachineError(f"{path} cannot be written: {error.strerror}.", "Nothing was changed.")
