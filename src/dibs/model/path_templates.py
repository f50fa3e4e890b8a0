"""Paths with placeholders, such as `-o runs/{name}-{id}.log`.

`{{` and `}}` are literal braces. A number may be padded: `{index:03}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dibs.errors import UserError

#: Placeholders available for every job. `array` is the id of the first job of its array, or the job's own id.
NAMES = ("id", "name", "project", "index", "attempt", "array")
#: Numeric placeholders, which may be padded with zeros.
NUMBERS = frozenset({"id", "index", "attempt", "array"})

PIECE = re.compile(r"\{\{|\}\}|\{([^{}:]*)(?::0([1-9]\d?))?\}|\{")


def check(template: str, names: Sequence[str] = NAMES) -> None:
    """Refuse an unknown placeholder and an unclosed brace."""
    for piece in PIECE.finditer(template):
        name, width = piece[1], piece[2]
        if piece[0] in ("{{", "}}") or (name in names and (width is None or name in NUMBERS)):
            continue
        known = " ".join(f"{{{each}}}" for each in names)
        rest = template[piece.start() :].partition("}")
        got = rest[0] + rest[1]
        raise UserError(f'expected placeholders among {known}, got "{got[:80]}".', "A brace is written {{.")


def used(template: str) -> set[str]:
    """Return the names of the placeholders in a template."""
    return {piece[1] for piece in PIECE.finditer(template) if piece[1] is not None}


def fill(template: str, values: Mapping[str, object]) -> str:
    """Return a template with its placeholders filled in; those not in `values` stay unchanged."""

    def filled(piece: re.Match[str]) -> str:
        if piece[0] in ("{{", "}}"):
            return piece[0][0]
        if piece[1] is None or piece[1] not in values:
            return piece[0]
        return _word(str(values[piece[1]])).zfill(int(piece[2] or 0))

    return PIECE.sub(filled, template)


def escape(text: str) -> str:
    """Escape a text so that a template reproduces it literally."""
    return text.replace("{", "{{").replace("}", "}}")


def _word(value: str) -> str:
    # A name is data: it must not select a folder.
    return "_" if value in (".", "..") else value.replace("/", "_")
