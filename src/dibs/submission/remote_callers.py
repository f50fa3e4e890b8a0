"""The process that sent a command line to another one: how its words are packed, and which files it sees."""

from __future__ import annotations

import os

from dibs.errors import UserError


def file_system() -> str:
    """Return an identifier of the files that this process sees: its mount namespace and its root."""
    root = os.stat("/")
    return f"{os.readlink('/proc/self/ns/mnt')} {root.st_dev} {root.st_ino}"


def unpack(packed: str) -> list[str]:
    """Return the strings that `fast_add.packed` packed."""
    try:
        return [os.fsdecode(word) for word in packed.encode("latin-1").split(b"\0")[:-1]]
    except ValueError:
        raise UserError("expected one character for each byte, up to U+00FF.") from None
