"""Scripts that are stored with their text: detection, `#DIBS` and `#SBATCH` lines, interpreter.

Pure: the client reads the file, the engine writes it for an attempt.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dibs.errors import UserError

#: Maximum size of a script in bytes; the same limit as in Slurm.
LONGEST_BYTES = 4 * 1024 * 1024
LINE = re.compile(rb"#(DIBS|SBATCH)[ \t]+(.*)")


@dataclass(frozen=True, slots=True)
class Directive:
    """One option line of a script."""

    #: "DIBS" or "SBATCH".
    kind: str
    #: Counted from 1.
    number: int
    words: tuple[str, ...]


def check(body: bytes, name: str) -> None:
    """Refuse a file that cannot be a script."""
    if b"\0" in body:
        raise UserError(f"{name} is a binary file, not a script.", "Submit it as a command, without --script.")
    if not body.strip():
        raise UserError(f"{name} is empty; expected a script.")
    if len(body) > LONGEST_BYTES:
        raise UserError(f"{name} has {len(body):,} bytes; a script may have {LONGEST_BYTES:,}.")
    if b"\r\n" in body:
        raise UserError(f"{name} has Windows line endings.", f"Run `sed -i 's/\\r$//' {name}`.")


def is_script(body: bytes) -> bool:
    """Tell whether a file identifies itself as a script: by `#!` or by option lines."""
    return b"\0" not in body and (body.startswith(b"#!") or any(_lines(body)))


def directives(body: bytes, name: str) -> list[Directive]:
    """Return the option lines; as in Slurm they end at the first line that is neither blank nor a comment."""
    return [Directive(kind, number, _words(rest, f"{name}, line {number}")) for kind, number, rest in _lines(body)]


def _lines(body: bytes) -> list[tuple[str, int, bytes]]:
    found = []
    for number, line in enumerate(body.split(b"\n"), 1):
        bare = line.strip()
        if bare and not bare.startswith(b"#"):
            break
        if match := LINE.match(line):
            found.append((match[1].decode(), number, match[2]))
    return found


def _words(raw: bytes, where: str) -> tuple[str, ...]:
    """Split a line as a shell does; a word that starts with # starts a comment."""
    try:
        lexer = shlex.shlex(raw.decode(), posix=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words: list[str] = []
        while (word := lexer.get_token()) is not None and not word.startswith("#"):
            words.append(word)
    except UnicodeDecodeError:
        raise UserError(f"{where}: expected UTF-8 text, got other bytes.") from None
    except ValueError as error:
        raise UserError(f"{where}: expected options, got a line with {str(error).lower()}.") from None
    return tuple(words)


def interpreter(body: bytes, shell: str) -> tuple[str, ...]:
    """Return the interpreter of a script: from its `#!` line, parsed as the kernel does, else the shell."""
    first = body.partition(b"\n")[0]
    if not first.startswith(b"#!") or not first[2:].strip():
        return (shell,)
    # The kernel passes everything after the program as one argument.
    program, *rest = first[2:].decode("utf-8", "surrogateescape").strip().split(maxsplit=1)
    return program, *rest


def is_python(words: Sequence[str]) -> bool:
    """Tell whether an interpreter is Python, also if started through env."""
    names = (word.rsplit("/", 1)[-1] for part in words for word in part.split())
    return any(re.fullmatch(r"(python|pypy)[\d.]*", name) for name in names)
