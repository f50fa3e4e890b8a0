"""Options: one table per verb, used for parsing and help.

Errors are one exact line. The words of a user's command are not parsed. Imports are kept cheap for quick verbs. The
meaning of an option is defined elsewhere.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, Generic, TypeVar, cast

from dibs.errors import UserError
from dibs.model import units

if TYPE_CHECKING:
    from dibs.system.settings import Settings

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: Maximum length of quoted input in an error, so that it stays on one line.
LONGEST_SHOWN = 80
#: Maximum size of a file read on behalf of another process; a larger one would block the daemon.
LARGEST_REMOTE = 2**20


# Options are looked up many times for each command line: by identity, not by all their fields.
@dataclass(frozen=True, eq=False)
class Kind(Generic[T_co]):
    """A kind of value: the expectation named in errors, and the parser."""

    expected: str
    #: Raises ValueError, or a UserError that starts with "expected" and is more precise.
    read: Callable[[str], T_co]


@dataclass(frozen=True, eq=False)
class Option(Generic[T_co]):
    """One option; without a kind it is a flag."""

    names: tuple[str, ...]
    help: str
    kind: Kind[T_co] | None = None
    #: Placeholder for the value in help.
    metavar: str = ""
    is_repeatable: bool = False
    #: The value is optional (None); if given, it is attached: `-w2` or `--watch=2`, never the next word.
    is_bare: bool = False
    #: Of a bare option: the next word is its value if it is one of these.
    bare_words: tuple[str, ...] = ()
    #: Takes all words up to the next option as one tuple; only one word if that contains "=".
    is_greedy: bool = False
    #: Spellings from other tools that users type by habit.
    habits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Caller:
    """The process that typed the words: paths, programs and settings are resolved for it. Default: this process."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    #: Its working directory; empty: that of this process.
    cwd: str = ""
    #: None: that of this process.
    umask: int | None = None
    #: Whether it is another process: its stdin, pipes and large files are then left to it.
    is_remote: bool = False

    @cached_property
    def settings(self) -> Settings:
        """Return its settings, read when they are first needed."""
        from dibs.system import settings

        return settings.load(self.environ)

    def path(self, name: str) -> str:
        """Return a path that is valid in this process."""
        return os.path.join(self.cwd, name)

    def folder(self) -> str:
        """Return the working directory."""
        try:
            return self.cwd or os.getcwd()
        except FileNotFoundError:
            raise UserError("the current folder no longer exists.", "Change to another folder: cd ~") from None

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file for reading; "-" is stdin."""
        if self.is_remote:
            # Check before opening: data read from a pipe would be lost, and its writer would be killed.
            found = None if name == "-" else os.stat(self.path(name))
            if found is None or not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_REMOTE:
                raise UserError("only the process that names this file can read it.")
        return nullcontext(sys.stdin.buffer) if name == "-" else open(self.path(name), "rb")


@dataclass(frozen=True)
class Args:
    """The parsed words after a verb."""

    words: tuple[str, ...] = ()
    given: dict[Option[object], tuple[object, ...]] = field(default_factory=dict)
    #: Number of words before `--`; None: there was none.
    before_dashes: int | None = None
    caller: Caller = field(default_factory=Caller)

    def has(self, option: Option[object]) -> bool:
        """Tell whether an option was given."""
        return option in self.given

    def get(self, option: Option[T]) -> T | None:
        """Return the value of an option; the last one if it was given several times."""
        return cast("T", self.given[option][-1]) if option in self.given else None

    def all(self, option: Option[T]) -> tuple[T, ...]:
        """Return all values of an option in the order in which they were given."""
        return cast("tuple[T, ...]", self.given.get(option, ()))


#: Seconds; the maximum of the HTTP API.
LONGEST_S = 1e9
#: Nine digits are enough here, and all JSON parsers agree on them.
MOST = 999_999_999


def whole(least: int, most: int = MOST) -> Kind[int]:
    """Return the kind of whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
            raise ValueError
        return int(text)

    return Kind(f"a whole number from {least} {'up' if most == MOST else f'to {most}'}", read)


def one_of(*words: str) -> Kind[str]:
    """Return the kind that accepts one of a few words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Kind(f"{', '.join(words[:-1])} or {words[-1]}", read)


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _read_positive_duration(text: str) -> float:
    seconds = units.parse_duration(text)
    if not 0 < seconds < LONGEST_S:
        raise UserError(f'expected a time above 0 and below 30 years such as 90m, 2h or 1d12h, got "{text}".')
    return seconds


TEXT = Kind("a text", _filled)
PATH = Kind("a path", _filled)
DURATION = Kind(units.TIME_EXAMPLE, units.parse_duration)
POSITIVE_DURATION = Kind(units.TIME_EXAMPLE, _read_positive_duration)
SIZE = Kind(units.SIZE_EXAMPLE, units.parse_size)

HELP: Option[bool] = Option(("-h", "--help"), "Show this help.")
DEBUG: Option[bool] = Option(("--debug",), "Show a traceback for errors.")
COLOR = Option(
    ("--color",), "Use colour: auto means only on a terminal.", one_of("auto", "always", "never"), "auto|always|never"
)
#: Accepted by every verb, and also before the verb.
COMMON: tuple[Option[object], ...] = (COLOR, DEBUG, HELP)

JSON: Option[bool] = Option(("--json",), "Print one JSON document.")
QUIET: Option[bool] = Option(("-q", "--quiet"), "Print only ids.")
YES: Option[bool] = Option(("-y", "--yes"), "Do not ask for confirmation.")


def parse(
    verb: str,
    table: Sequence[Option[object]],
    words: Sequence[str],
    *,
    takes_command: bool = False,
    caller: Caller | None = None,
) -> Args:
    """Parse the words after `verb`. With `takes_command` options end at the first word that is not one."""
    known = {name: option for option in (*table, *COMMON) for name in (*option.names, *option.habits)}
    given: dict[Option[object], tuple[object, ...]] = {}
    plain: list[str] = []
    before_dashes: int | None = None
    left = list(reversed(words))
    for word in words:
        if "\0" in word:
            raise UserError(f'{verb}: a word cannot contain a NUL byte, got "{shown(word)}".')
    while left:
        word = left.pop()
        if _is_option(word):
            option, name, value = _take(verb, known, word, left)
            found = _many(value, left) if option.is_greedy else read(option, name, value)
            given[option] = (*given.get(option, ()), found)
            continue
        before_dashes = len(plain) if word == "--" else None
        plain += [] if word == "--" else [word]
        if word == "--" or takes_command:
            plain += reversed(left)
            break
    for word in plain[:before_dashes] if not takes_command else ():
        _check_utf8(word, verb)
    return Args(tuple(plain), given, before_dashes, caller or Caller())


def _check_utf8(text: str, what: str) -> None:
    """Refuse bytes that no name, selector or number can contain; the words of a command are checked elsewhere."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{what}: expected UTF-8 text, got other bytes.") from None


def _is_option(word: str) -> bool:
    # A single dash is stdin; two dashes end the options.
    return word.startswith("-") and word not in ("-", "--")


def _take(
    verb: str, known: dict[str, Option[object]], word: str, left: list[str]
) -> tuple[Option[object], str, str | None]:
    """Return the option that `word` starts, its name as typed, and its value, taken from `left` if needed."""
    name, value = _split(word)
    option = known.get(name)
    if option is None or _is_slip(word, known):
        typed = name if word.startswith("--") else word
        hint = nearest(word.partition("=")[0], known) or f"See `dibs {verb} --help`."
        raise UserError(f"{verb} has no option {shown(typed)}.", hint)
    if option.is_bare:
        if value is None and left and left[-1] in option.bare_words:
            value = left.pop()
        return option, name, value
    if option.kind is not None:
        return option, name, _next_value(option, name, known, left) if value is None else value
    if value is not None and word.startswith("--"):
        raise UserError(f'{name} takes no value, got "{shown(value)}".')
    if value:
        left.append(f"-{value}")
    return option, name, None


def _split(word: str) -> tuple[str, str | None]:
    """Split `--gpus=2`, `-g2` and `-g=2` into name and value; None if the value is the next word."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    return word[:2], word[2:].removeprefix("=") if len(word) > 2 else None


def _is_slip(word: str, known: Iterable[str]) -> bool:
    """Tell whether a dash is missing: -name means --name, not -n with the value "ame"."""
    return not word.startswith("--") and len(word) > 2 and f"-{word.partition('=')[0]}" in known


def _next_value(option: Option[object], name: str, known: dict[str, Option[object]], left: list[str]) -> str:
    expected = option.kind.expected if option.kind else ""
    if not left:
        raise UserError(f"{name} expected {expected} after it, got nothing.")
    value = left.pop()
    if value == "--" or value.partition("=")[0] in known:
        raise UserError(f"{name} expected {expected}, got the option {shown(value)}.")
    return value


def read(option: Option[object], name: str, text: str | None) -> object:
    """Parse a text as the value of an option; `name` is the option's name as the user wrote it."""
    if option.kind is None or text is None:
        return None if option.is_bare else True
    # A file name may contain any bytes.
    if option.kind is not PATH:
        _check_utf8(text, option.names[-1])
    try:
        return option.kind.read(text)
    except UserError as error:
        raise UserError(f"{name} {error.message}", error.hint) from None
    except ValueError:
        raise UserError(f'{name} expected {option.kind.expected}, got "{shown(text)}".') from None


def _many(first: str | None, left: list[str]) -> tuple[str, ...]:
    """Return the words that belong to a greedy option, taken from `left`."""
    found = [first or ""]
    while left and "=" not in found[0] and left[-1] != "--" and (not _is_option(left[-1]) or _is_number(left[-1])):
        found.append(left.pop())
    for word in found:
        _check_utf8(word, "a value")
    return tuple(found)


def _is_number(word: str) -> bool:
    """Tell whether a word with a leading dash is a negative number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean ...?" if a known word resembles `word`, else an empty string."""
    from dibs.model import suggestions

    # Ignore dashes: -name and --name mean the same.
    bare = {name.lstrip("-"): name for name in known if len(name) > 2}
    near = suggestions.nearest(word.lstrip("-"), bare)
    return f"Did you mean {bare[near]}?" if near is not None else ""


def action_of(args: Args, verb: str, actions: Iterable[str]) -> str:
    """Return the one word that follows a verb with actions, such as `daemon stop`."""
    known = [*actions]
    if len(args.words) != 1 or args.words[0] not in known:
        raise UserError(f"{verb} expected {', '.join(known[:-1])} or {known[-1]}, got {quoted(args.words)}.")
    return args.words[0]


def shown(text: str) -> str:
    """Shorten input so that it fits a one-line error."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def quoted(words: Sequence[str]) -> str:
    """Return words as an error shows them."""
    return f'"{shown(" ".join(words))}"' if words else "nothing"


def refuse_words(verb: str, args: Args) -> None:
    """Refuse words after a verb that takes none."""
    if args.words:
        raise UserError(f'{verb} takes no arguments, got "{shown(args.words[0])}".', f"See `dibs {verb} --help`.")
