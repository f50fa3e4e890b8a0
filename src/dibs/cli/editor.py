"""Let the user change a text in $VISUAL or $EDITOR."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dibs.errors import DibsError, UserError
from dibs.submission import options

T = TypeVar("T")

#: Used when neither variable is set.
USUAL = "vi"


def edit(text: str, name: str, use: Callable[[bytes], T], instead: str) -> T:
    """Return what `use` makes of the edited text. If it raises, the file is kept and the error names it.

    `name` begins the name of the file; `instead` is the hint for a call without a terminal.
    """
    if not sys.stdin.isatty():
        raise UserError("an editor needs a terminal.", instead)
    fd, path = tempfile.mkstemp(prefix=name, suffix=".toml")
    with open(fd, "w") as file:
        file.write(text)
    try:
        _open(path)
        result = use(_read(path))
    except DibsError as error:
        kept = f"Nothing was changed; your text is {path}"
        error.reword(f"{error.message.rstrip('.')}.", f"{error.hint} {kept}".strip())
        raise
    os.unlink(path)
    return result


def _open(path: str) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or USUAL
    try:
        code = subprocess.run([*shlex.split(editor), path], check=False).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f'cannot start the editor "{options.shown(editor)}": {why}.', "Set EDITOR.") from None
    if code:
        raise UserError(f'the editor "{options.shown(editor)}" exited with {code}.')


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the text back: {error.strerror}.") from None
