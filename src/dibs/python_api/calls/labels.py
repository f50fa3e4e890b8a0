"""A call in tables, as name and command of its job: `train(0.1, epochs=3)`. Short, cheap to make, without secrets.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dibs.model import serialization

#: Maximum characters of a whole label and of one argument.
LONGEST, LONGEST_ARGUMENT = 200, 24
#: Maximum characters of a name made of a label.
LONGEST_NAME = 60
#: Items shown of a list or tuple.
MOST_ITEMS = 3
#: Types whose `repr` is cheap.
PLAIN = (int, float, complex, bool, str, bytes, type(None))
CUT = "..."


def label(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Return a call as Python code, shortened and with secrets masked."""
    arguments = [_argument(value) for value in args]
    arguments += [
        f"{name}={serialization.MASK if serialization.is_secret(name) else _argument(value)}"
        for name, value in kwargs.items()
    ]
    return _cut(f"{_function(function)}({', '.join(arguments)})", LONGEST)


def short(label: str) -> str:
    """Return a label as the name of a job."""
    return _cut(label, LONGEST_NAME)


def _function(function: object) -> str:
    # Of a functools.partial, name the inner function.
    inner = getattr(function, "func", function)
    found = getattr(inner, "__name__", None)
    return found if isinstance(found, str) else type(function).__name__


def _argument(value: object) -> str:
    return _cut(_text(value), LONGEST_ARGUMENT)


def _text(value: object) -> str:
    """Return the `repr` of plain values; of others, whose `repr` may be long or slow, the type."""
    if isinstance(value, str | bytes):
        # Cut before `repr`: the value may have a gigabyte.
        return _clean(repr(value[: LONGEST_ARGUMENT + 1]))
    if isinstance(value, PLAIN):
        return repr(value) if not isinstance(value, int) or value.bit_length() < 256 else "int"
    if type(value) in (list, tuple) and isinstance(value, Sequence):
        return _listed([_short(item) for item in value[:MOST_ITEMS]], len(value), value.__class__)
    return type(value).__name__


def _short(value: object) -> str:
    return _argument(value) if isinstance(value, PLAIN) else type(value).__name__


def _listed(items: list[str], count: int, kind: type) -> str:
    inside = ", ".join([*items, CUT] if count > len(items) else items)
    return f"[{inside}]" if kind is list else f"({inside},)" if count == 1 else f"({inside})"


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - len(CUT)] + CUT
