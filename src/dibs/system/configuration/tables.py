"""Settings that come as tables with names, such as `[engines.lab]`: their keys, and how a table becomes a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from dibs.errors import UserError
from dibs.model import suggestions
from dibs.system.configuration.kinds import Kind


@dataclass(frozen=True)
class Key:
    """One key of a table."""

    name: str
    kind: Kind
    meaning: str


def key(kind: Kind, meaning: str, default: object = None) -> Any:
    """Return the field of a dataclass that holds a key of a table; `keys_of` finds it there."""
    return field(default=default, metadata={"kind": kind, "meaning": meaning})


def keys_of(values: type) -> tuple[Key, ...]:
    """Return the keys that the fields of a dataclass declare."""
    return tuple(Key(each.name, **each.metadata) for each in fields(values) if each.metadata)


@dataclass(frozen=True)
class Table:
    """A kind of table, `[NAME.x]`, where x is a name that the user chooses."""

    name: str
    keys: tuple[Key, ...]
    #: Build the value of a table from its name and its checked keys; raise UserError if they do not fit together.
    make: Callable[[str, dict[str, Any]], Any]

    def key(self, name: str) -> Key | None:
        """Return the key of that name."""
        return next((key for key in self.keys if key.name == name), None)


def read(table: Table, found: object, where: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of all tables of a kind by their names; errors name `where`, the file."""
    if not isinstance(found, dict):
        raise UserError(f"{where}: {table.name}: expected a table such as [{table.name}.lab], got a value.")
    values = {}
    for name, own in found.items():
        if not isinstance(own, dict):
            raise UserError(f"{where}: {table.name}.{name}: expected a table [{table.name}.{name}], got a value.")
        path = f"{where}: {table.name}.{name}"
        checked = {key: _checked(table, key, value, f"{path}.{key}", environ) for key, value in own.items()}
        with suggestions.inside(f"{path}:"):
            values[name] = table.make(name, checked)
    return values


def _checked(table: Table, name: str, value: object, where: str, environ: Mapping[str, str]) -> object:
    key = table.key(name)
    if key is None:
        known = [key.name for key in table.keys]
        hint = suggestions.did_you_mean(name, known) or f"They are: {', '.join(known)}."
        raise UserError(f'{where}: there is no setting "{name}" in [{table.name}.NAME].', hint)
    return key.kind.checked(value, where, environ)
