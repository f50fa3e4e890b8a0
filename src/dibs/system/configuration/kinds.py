"""The kinds of value of a setting: the name of each, how it is parsed from a variable, and how it is checked.

`settings` lists the settings and where their values come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dibs.errors import UserError
from dibs.model import lab_rules, units
from dibs.system import paths


class Bytes(int):
    """A number of bytes, which users write with a unit."""


@dataclass(frozen=True)
class Kind:
    """A kind of value: its name, its parser for variables, and its check for values from either source."""

    #: What the error message says was expected.
    expected: str
    #: Convert a variable's text to the value TOML would have given.
    from_text: Callable[[str], object]
    #: Return the final value; raise ValueError if it is not of this kind.
    check: Callable[[object, Mapping[str, str]], object]

    def checked(self, value: object, where: str, environ: Mapping[str, str]) -> object:
        """Return the final value; errors name `where`: file and key, or the variable."""
        try:
            return self.check(value, environ)
        except UserError as error:
            raise UserError(f"{where}: {error.message}", error.hint) from None
        except ValueError:
            raise UserError(f"{where}: expected {self.expected}, got {_shown(value)}.") from None


def _shown(value: object) -> str:
    """Return a value as TOML would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def one_of(words: tuple[str, ...]) -> Kind:
    """Return the kind of a word from a list."""

    def check(value: object, environ: object) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    *others, last = (f'"{word}"' for word in words)
    return Kind(f"{', '.join(others)} or {last}", str, check)


def _any_text(value: object, environ: Mapping[str, str]) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    return value


def _text(value: object, environ: Mapping[str, str]) -> str:
    if not value:
        raise ValueError
    return _any_text(value, environ)


def _path(value: object, environ: Mapping[str, str]) -> Path | None:
    text = _any_text(value, environ)
    return paths.absolute(text, environ) if text else None


def _count(value: object, environ: Mapping[str, str]) -> int:
    # In Python bool is an int, but `cpu_slots = true` is a mistake.
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError
    return value


def _spare(value: object, environ: Mapping[str, str]) -> int:
    return 0 if value == 0 and value is not False else _count(value, environ)


def _duration(value: object, environ: Mapping[str, str]) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    # For a bare number in the file, the parser's own error says: write 30m or 30s.
    return units.parse_duration(str(value))


def _names(value: object, environ: Mapping[str, str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_text(name, environ) for name in value)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _whole(text: str) -> object:
    # Nine digits are enough for a count, and int() raises its own error for very long ones.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else text


def _size(value: object, environ: Mapping[str, str]) -> Bytes:
    if not isinstance(value, str):
        raise ValueError
    return Bytes(units.parse_size(value))


def _port(value: object, environ: Mapping[str, str]) -> int:
    number = _spare(value, environ)
    if number > 65535:
        raise ValueError
    return number


def _switch(value: object, environ: Mapping[str, str]) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


ANY_TEXT = Kind("a text", str, _any_text)
TEXT = Kind("a non-empty text", str, _text)
PATH = Kind("an absolute path", str, _path)
COUNT = Kind("a whole number from 1 up", _whole, _count)
SPARE = Kind("a whole number from 0 up", _whole, _spare)
DURATION = Kind(units.TIME_EXAMPLE, str, _duration)
EVICTABLE = one_of(("no", "yes", "auto"))
VISIBLE = one_of(("uuid", "index"))
IDLE_GPUS = one_of((lab_rules.NO_USE, lab_rules.LENT))
SIZE = Kind("a size such as 500M or 2G", str, _size)
GPU_NAMES = Kind('a list of GPUs such as ["0", "GPU-8f4a"]', _split, _names)
NAMES = Kind('a list of names such as ["WANDB_*", "AWS_*"]', _split, _names)
HOSTS = Kind('a list of names such as ["gpu1.example.org"]', _split, _names)
PORT = Kind("a whole number from 0 to 65535", _whole, _port)
SWITCH = Kind("true or false", lambda text: {"true": True, "false": False}.get(text.lower(), text), _switch)
