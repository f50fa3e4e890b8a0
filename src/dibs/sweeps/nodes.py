"""Parts of a parsed YAML, JSON or TOML document, with access functions that give good errors.

A leaf is plain data, or a `values.Value` where the text as typed matters too.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dibs.errors import UserError
from dibs.model import suggestions
from dibs.sweeps import values
from dibs.sweeps.values import Data, Value

#: A leaf, a list or a mapping.
Node = object


def check_keys(document: Mapping[str, Node], known: Sequence[str]) -> None:
    """Refuse an unknown key."""
    for key in document:
        if key not in known:
            hint = suggestions.did_you_mean(str(key), known) or f"The keys are {', '.join(known)}."
            raise UserError(f'unknown key "{key}".', hint)


def plain(node: Node) -> Data:
    """Return a part of a document as data."""
    match node:
        case Value():
            return node.data
        case Mapping():
            return {str(key): plain(one) for key, one in node.items()}
        case list() | tuple():
            return [plain(one) for one in node]
        case str() | int() | float() | None:
            return node
        case _:
            # TOML has dates and times.
            return str(node)


def value(node: Node) -> Value:
    """Return a part of a document as the value of a parameter."""
    return node if isinstance(node, Value) else values.value_of_data(plain(node))


def kind(node: Node) -> str:
    """Return one word for the type of a part of a document."""
    match plain(node):
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return shown(node)


def shown(node: Node) -> str:
    """Return a part of a document as quoted in errors."""
    text = value(node).text
    return f'"{text}"' if len(text) < 80 else f'"{text[:77]}..."'


def text(node: Node) -> str:
    """Return a non-empty text; raise ValueError for a list, a mapping or nothing."""
    data = plain(node)
    if not isinstance(data, str | int | float) or isinstance(data, bool) or not value(node).text:
        raise ValueError
    return value(node).text


def whole(node: Node, least: int = 1) -> int:
    """Return a whole number; raise ValueError for anything else."""
    data = plain(node)
    if not isinstance(data, int) or isinstance(data, bool) or data < least:
        raise ValueError
    return data
