"""Translate a selection into an SQL condition, from the parts in `sql/queries.sql`.

User input is never part of the SQL text, only of the values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dibs.model import selectors
from dibs.model.jobs import ACTIVE, WAITING

#: What makes a pattern match more than one text.
WILDCARDS = frozenset("*?[")


def where(
    chosen: selectors.Selection, now: int, queries: Mapping[str, str], sweep_ids: Callable[[str], list[int]]
) -> tuple[str, list[Any]]:
    """Return the condition and its values. `sweep_ids` returns the sweeps that a word means."""
    values: list[Any] = []
    unions = []
    for atoms in chosen:
        parts = [_part(atom, now, sweep_ids) for atom in atoms]
        unions.append("(" + " AND ".join(queries[name] for name, _ in parts) + ")")
        for _, added in parts:
            values += added
    return " OR ".join(unions) or "0", values


def _part(atom: selectors.Atom, now: int, sweep_ids: Callable[[str], list[int]]) -> tuple[str, list[Any]]:
    match atom:
        case selectors.Ids(ranges):
            return "where_ids", [json.dumps(ranges)]
        case selectors.Last(back):
            return "where_last", [min(back, 2**62)]
        case selectors.InState(words):
            return _of_words(words), [json.dumps(words)]
        case selectors.Since(seconds):
            return "where_since", [now - round(seconds * 1000)]
        case selectors.Like("sweep", pattern):
            return "where_sweep", [json.dumps(sweep_ids(pattern))]
        case selectors.Like("name", pattern) if WILDCARDS.isdisjoint(pattern):
            return "where_name_is", [pattern]
        case selectors.Like(field, pattern):
            return f"where_{field}", [pattern]
        case selectors.Everything():
            return "where_all", []
        case selectors.Is(field, value):
            return f"where_{field}_is", [value]
        case selectors.Text(part):
            return "where_text", [_like(part)] * 2
        case selectors.Between(since, until):
            return "where_between", [since, until]


def _of_words(words: tuple[str, ...]) -> str:
    """Return the condition that reads the fewest jobs for these states: most of a million jobs are finished."""
    for name, known in (("where_active", ACTIVE), ("where_unfinished", ACTIVE | WAITING)):
        if {*words} <= {state.value for state in known}:
            return name
    return "where_word"


def _like(part: str) -> str:
    return "%" + part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
