"""What a call is called in tables: `train(0.1, epochs=3)`. Short, cheap to make, and without secrets.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dibs.model import serialization

#: Characters of a whole name and of one argument.
LONGEST, LONGEST_ARGUMENT = 60, 24
#: Items of a list or dictionary that are looked at.
MOST_ITEMS = 3
#: Values whose text is short, and costs nothing to make.
PLAIN = (int, float, complex, bool, str, bytes, type(None))
CUT = "..."


def of(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Return the name of a call, as one would write it."""
    told = [_argument(value) for value in args]
    told += [
        f"{name}={serialization.MASK if serialization.is_secret(name) else _argument(value)}"
        for name, value in kwargs.items()
    ]
    return _cut(f"{_function(function)}({', '.join(told)})", LONGEST)


def _function(function: object) -> str:
    # What is wrapped by functools.partial is what people know it by.
    inner = getattr(function, "func", function)
    found = getattr(inner, "__name__", None)
    return found if isinstance(found, str) else type(function).__name__


def _argument(value: object) -> str:
    return _cut(_text(value), LONGEST_ARGUMENT)


def _text(value: object) -> str:
    """Return plain values as Python writes them; of others, whose text may be long or slow to make, the type."""
    if isinstance(value, str | bytes):
        # Only so much of it as will be shown: there are texts of a gigabyte.
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
