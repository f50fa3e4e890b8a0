"""The text of a configuration file: read only if no other user can have written it, and parsed as TOML."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dibs import errors


def read(path: Path, is_required: bool) -> str | None:
    """Read a file that only we or root can have written; return None if it does not exist and is not required."""
    try:
        # Non-blocking, so that a planted pipe cannot block us.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            _check_owner(path, os.fstat(file.fileno()))
            return decode(path, file.read())
    except (FileNotFoundError, NotADirectoryError):
        if is_required:
            raise errors.UserError(f"DIBS_CONFIG expected a file, but {path} does not exist.", "Unset it.") from None
        return None
    except OSError as error:
        raise errors.UserError(f"{path}: expected a file that you can read, got: {error.strerror}.") from error


def decode(path: Path, data: bytes) -> str:
    """Return the text of a configuration file."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise errors.UserError(f"{path}: expected UTF-8 text, got other bytes at offset {error.start}.") from error


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Raise an error if another user could have written the file: its `shell` would run with our rights."""
    if not stat.S_ISREG(found.st_mode):
        raise errors.UserError(f"{path}: expected a regular file, but it is something else.", "Move it away.")
    if found.st_uid not in (0, os.geteuid()):
        raise errors.UserError(
            f"{path}: expected a file of yours or of root, but it belongs to user {found.st_uid}.",
            "Copy it, or remove it.",
        )
    if found.st_mode & 0o022:
        raise errors.UserError(
            f"{path}: expected a file that only its owner can write, but its mode is"
            f" {stat.S_IMODE(found.st_mode):04o}.",
            f"Run: chmod go-w {path}",
        )


def parsed(path: Path, text: str) -> dict[str, object]:
    """Return the table that a text describes; errors name `path` and the line."""
    # The import takes several milliseconds, and most users have no file.
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _broken(path, text, str(error)) from error


def _broken(path: Path, text: str, complaint: str) -> errors.UserError:
    """Return the error for a file that is not valid TOML; the parser names the line or says that it is the last."""
    what, _, place = complaint.partition(" (at ")
    words = place.replace(",", " ").split()
    number = words[1] if words[:1] == ["line"] else str(len(text.splitlines()))
    return errors.UserError(f"{path}, line {number}: expected TOML such as devices = '0,1', got an error: {what}.")


def line_of(name: str, text: str) -> str:
    """Return ", line 3" for the line that sets `name`; empty if it is written in an unusual way."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.partition("=")[0].strip(" \t\"'[]") == name:
            return f", line {number}"
    return ""
