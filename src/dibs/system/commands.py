"""A command as typed, and the words that actually run.

Several words reach the program unchanged. A single string is for the shell, but runs without one if nothing in it needs
a shell: one process less between dibs and the program.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from dibs.errors import UserError

#: Characters that may have a meaning in a shell.
SHELL_CHARACTERS = frozenset("|&;<>()$`\\\"'*?[]#~=%{}!^\n\r\t")
#: Only a shell can run these: as the first of several words they have no effect, even if a program has that name.
BUILTINS = frozenset(
    (".", ":", "alias", "bg", "builtin", "cd", "declare", "disown", "eval", "exec", "exit", "export", "fg", "local",
     "popd", "pushd", "readonly", "set", "shift", "shopt", "source", "trap", "typeset", "ulimit", "umask", "unalias",
     "unset")
)  # fmt: skip
#: Bytes of a Python file that are read.
LOOKED_AT = 256 * 1024
#: Words of a command among which its Python file is searched.
MOST_WORDS = 16
#: Programs that are also shell builtins with different behaviour: /bin/sh and /bin/echo disagree about -e.
TWICE = frozenset(("[", "echo", "kill", "printf", "pwd", "test"))
#: Programs that, without arguments, wait for terminal input.
INTERACTIVE = frozenset(
    ("bash", "csh", "dash", "fish", "ipython", "ipython3", "julia", "ksh", "pdb", "python", "python3", "R", "sh",
     "tcsh", "zsh")
)  # fmt: skip
#: The kernel's limit on one argv string (MAX_ARG_STRLEN): longer ones cannot be run.
LONGEST_BYTES = 128 * 1024 - 1


def needs_shell(command: str) -> bool:
    """Return whether a one-string command needs a shell."""
    # A shell splits words at blanks; str.split() also splits at other white space, which would change the command.
    has_odd_blanks = "".join(command.split()) != command.replace(" ", "")
    return has_odd_blanks or not SHELL_CHARACTERS.isdisjoint(command) or not command.strip()


def is_string(words: Sequence[str]) -> bool:
    """Return whether the typed text is one quoted command, not the words of one."""
    return len(words) == 1 and (needs_shell(words[0]) or len(words[0].split()) > 1)


def is_assignment(word: str) -> bool:
    """Return whether a shell takes the word before a program as a variable for it."""
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isascii() and name.isidentifier()


def words(command: str, argv: Sequence[str] | None, shell: str, path: str, cwd: str) -> tuple[str, ...]:
    """Return the words to run. A plain string goes to the shell if its program is a builtin or is not found."""
    if argv is not None:
        return tuple(argv)
    split = () if needs_shell(command) else tuple(command.split())
    if split and split[0] not in TWICE and split[0] not in BUILTINS and is_found(split[0], path, cwd):
        return split
    return (shell, "-c", command)


def is_found(program: str, path: str, cwd: str) -> bool:
    """Return whether a program of that name can be started in that folder."""
    last = _first_found(program, path, cwd)
    return (last is not None and _is_program(last)) or any(map(_is_program, _candidates(program, path, cwd)))


# A PATH has many folders, and jobs run the same programs: first look where the program was before.
@functools.lru_cache(maxsize=256)
def _first_found(program: str, path: str, cwd: str) -> str | None:
    return next(filter(_is_program, _candidates(program, path, cwd)), None)


def _candidates(program: str, path: str, cwd: str) -> list[str]:
    folders = [""] if "/" in program else path.split(":")
    return [os.path.join(cwd, folder, program) for folder in folders]


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)


def check_text(text: str, what: str = "a command, name or folder") -> None:
    """Raise an error for a text that cannot be stored or run: not UTF-8, with a NUL, or too long for the kernel."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UserError(f"{what}: expected UTF-8 text, got other bytes.") from None
    if "\0" in text:
        raise UserError(f"{what}: cannot contain a NUL byte.")
    if size > LONGEST_BYTES:
        raise UserError(
            f"{what}: expected at most {LONGEST_BYTES:,} bytes, got {size:,}.",
            "Put it into a script and submit that with --script.",
        )


def python_file(words: Sequence[str], cwd: str) -> str | None:
    """Return the Python file that a command runs, if its words name one."""
    named = next((word for word in words[:MOST_WORDS] if word.endswith(".py")), None)
    return None if named is None else os.path.join(cwd, named)


def beginning(path: str) -> bytes:
    """Return the beginning of a file; empty if it cannot be read."""
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
