"""Settings and keys of tables by the names that users type, with their values as written in a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dibs import errors
from dibs.model import units
from dibs.system.configuration.kinds import Bytes
from dibs.system.configuration.presets import Preset
from dibs.system.configuration.tables import Key, Table
from dibs.system.settings import TABLES, Setting, Settings


@dataclass(frozen=True)
class Entry:
    """One key of one table, such as kind of [engines.lab]; it has no variable and no default."""

    table: Table
    #: The name of the table.
    of: str
    key: Key

    @property
    def name(self) -> str:
        """Return its name as users type it."""
        return ".".join(self.keys)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return its place in a file."""
        return self.table.name, self.of, self.key.name

    @property
    def meaning(self) -> str:
        return self.key.meaning


def entry(word: str) -> Entry | None:
    """Return the key of a table that a word with dots names; None if it is no such word."""
    first, dot, rest = word.partition(".")
    kind = next((kind for kind in TABLES if kind.name == first), None)
    if kind is None or not dot:
        return None
    of, _, name = rest.rpartition(".")
    key = kind.key(name)
    if not of or key is None:
        keys = ", ".join(key.name for key in kind.keys)
        raise errors.UserError(f'expected {kind.name}.NAME.KEY, got "{word}".', f"KEY is one of: {keys}.")
    return Entry(kind, of, key)


def entries(values: Settings) -> list[Entry]:
    """Return the keys of all tables that are not at their defaults."""
    return [
        Entry(kind, of, key)
        for kind in TABLES
        for of, own in getattr(values, kind.name).items()
        for key in kind.keys
        if value_of(values, Entry(kind, of, key))
    ]


def value_of(values: Settings, one: Setting | Entry) -> str:
    """Return the value of a setting as written in the file; empty if it is unset."""
    found: Any = values
    for name in one.keys:
        found = found.get(name) if isinstance(found, dict | Preset) else getattr(found, name, None)
    return written(found)


def written(value: object) -> str:
    """Return a final value as written in the file, without quotes; empty if it is unset."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return units.write_duration(value)
        case Bytes():
            return units.format_size(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)
