"""A command as typed, and the words that are really run.

Several words reach the program as they are. One string is for the shell, but runs without one when nothing in it needs
a shell: one process less between dibs and the program.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from dibs.errors import UserError

#: Anything here may mean something to a shell.
SHELL_CHARACTERS = frozenset("|&;<>()$`\\\"'*?[]#~=%{}!^\n\r\t")
#: What only a shell can do: as the first of several words it would change nothing, also where a program is named so.
BUILTINS = frozenset(
    (".", ":", "alias", "bg", "builtin", "cd", "declare", "disown", "eval", "exec", "export", "fg", "local", "popd",
     "pushd", "readonly", "set", "shift", "shopt", "source", "trap", "typeset", "ulimit", "umask", "unalias", "unset")
)  # fmt: skip
#: Bytes of a Python file that are looked at.
LOOKED_AT = 256 * 1024
#: Words of a command among which its Python file is looked for.
MOST_WORDS = 16
#: Programs that a shell has built in too, and understands in its own way: /bin/sh and /bin/echo disagree about -e.
TWICE = frozenset(("[", "echo", "kill", "printf", "pwd", "test"))
#: Programs that, without arguments, wait for terminal input.
INTERACTIVE = frozenset(
    ("bash", "csh", "dash", "fish", "ipython", "ipython3", "julia", "ksh", "pdb", "python", "python3", "R", "sh",
     "tcsh", "zsh")
)  # fmt: skip
#: The kernel's limit on one string of argv (MAX_ARG_STRLEN): longer ones cannot be run at all.
LONGEST_BYTES = 128 * 1024 - 1


def needs_shell(command: str) -> bool:
    """Return whether a one-string command has to be given to a shell."""
    # A shell parts words at blanks; str.split() does so at other white space too, which would be another command.
    has_odd_blanks = "".join(command.split()) != command.replace(" ", "")
    return has_odd_blanks or not SHELL_CHARACTERS.isdisjoint(command) or not command.strip()


def is_string(words: Sequence[str]) -> bool:
    """Return whether what was typed is one quoted command, and not the words of one."""
    return len(words) == 1 and (needs_shell(words[0]) or len(words[0].split()) > 1)


def words(command: str, argv: Sequence[str] | None, shell: str, path: str, cwd: str) -> tuple[str, ...]:
    """Return what is really run. A plain string whose program is not found, or built in, goes to the shell."""
    if argv is not None:
        return tuple(argv)
    split = () if needs_shell(command) else tuple(command.split())
    if split and split[0] not in TWICE and split[0] not in BUILTINS and is_found(split[0], path, cwd):
        return split
    return (shell, "-c", command)


def is_found(program: str, path: str, cwd: str) -> bool:
    """Return whether a program can be started by that name in that folder."""
    folders = [""] if "/" in program else path.split(":")
    candidates = (os.path.join(cwd, folder, program) for folder in folders)
    return any(os.access(candidate, os.X_OK) and os.path.isfile(candidate) for candidate in candidates)


def check_text(text: str, what: str = "a command, name or folder") -> None:
    """Refuse a text that cannot be kept or started: not UTF-8, with a NUL in it, or longer than the kernel takes."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UserError(f"{what}: expected UTF-8 text, got other bytes.") from None
    if "\0" in text:
        raise UserError(f"{what}: cannot contain a NUL byte.")
    if size > LONGEST_BYTES:
        raise UserError(
            f"{what}: one text may have {LONGEST_BYTES:,} bytes, this one has {size:,}.",
            "Keep it in a script file and queue that with --script.",
        )


def python_file(words: Sequence[str], cwd: str) -> str | None:
    """Return the Python file that a command runs, where its words name one."""
    named = next((word for word in words[:MOST_WORDS] if word.endswith(".py")), None)
    return None if named is None else os.path.join(cwd, named)


def beginning(path: str) -> bytes:
    """Return the beginning of a file; nothing if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, LOOKED_AT)
    except OSError:
        return b""
    finally:
        os.close(fd)
