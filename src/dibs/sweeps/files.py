"""Load sweep files: YAML, JSON and TOML with the text of every number preserved, and CSV tables.

`documents` interprets the keys.
"""

from __future__ import annotations

import csv
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dibs.errors import MachineError, UserError
from dibs.model.suggestions import inside
from dibs.sweeps import documents, nodes, parameters, spaces, values, wandb
from dibs.sweeps.documents import Sweep
from dibs.sweeps.nodes import Node
from dibs.sweeps.values import Value

SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".csv")


def load(path: str | Path) -> Sweep:
    """Load a sweep file. A table has no command and no options: the caller must supply them."""
    where = Path(path)
    suffix = where.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f'expected a sweep file ({", ".join(SUFFIXES)}), got "{where}".')
    text = _text(where)
    try:
        if suffix == ".csv":
            with inside(f"{where}:"):
                return _table(text)
        return documents.read(wandb.with_variables(READERS[suffix](text), os.environ), str(where))
    except _NotWellFormed as error:
        raise UserError(f"{where}: expected {suffix[1:].upper()}, got something else: {error}") from error
    except RecursionError:
        raise UserError(f"{where}: expected a few levels of keys, got too many.") from None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise UserError(f"{path}: cannot be read: {(error.strerror or '').lower()}.") from error
    except OSError as error:
        raise MachineError(f"{path}: cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected UTF-8, got the byte 0x{error.object[error.start]:02x}.") from error


class _NotWellFormed(Exception):
    """The text does not follow its format."""


def _json(text: str) -> Node:
    def number(word: str) -> Node:
        found = values.value_of_word(word)
        return found if not isinstance(found.data, str) else _refuse_number(word)

    try:
        return json.loads(
            text, parse_float=number, parse_int=number, parse_constant=_refuse_number, object_pairs_hook=_mapping
        )
    except json.JSONDecodeError as error:
        raise _NotWellFormed(f"line {error.lineno}: {error.msg.lower()}.") from error


def _refuse_number(word: str) -> Node:
    raise _NotWellFormed(f"{word} is not a number that can be stored.")


def _mapping(pairs: Iterable[tuple[str, Node]]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for key, node in pairs:
        if key in found:
            raise _NotWellFormed(f'the key "{key}" appears twice.')
        found[key] = node
    return found


def _toml(text: str) -> Node:
    try:
        return tomllib.loads(text, parse_float=values.value_of_word)
    except tomllib.TOMLDecodeError as error:
        raise _NotWellFormed(f"{error}.") from error


def _yaml(text: str) -> Node:
    # Only import it for YAML files.
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Preserves the text of every value, so that 1.0e-5 stays as typed and `on` does not become true."""

    for kind in ("str", "int", "float", "bool", "null", "timestamp"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", _scalar)
    Loader.add_constructor("tag:yaml.org,2002:map", _yaml_mapping)
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        raise _NotWellFormed(f"{place}{getattr(error, 'problem', None) or 'cannot be read'}.") from error


def _scalar(loader: Any, node: Any) -> Node:
    if node.style is not None:
        return str(node.value)
    if node.tag.endswith(":null"):
        return Value(None, node.value) if node.value else None
    if node.tag.endswith(":bool"):
        return Value(loader.construct_yaml_bool(node), node.value)
    return values.value_of_word(node.value)


def _yaml_mapping(loader: Any, node: Any) -> Node:
    loader.flatten_mapping(node)
    pairs = (
        (loader.construct_object(key, deep=True), loader.construct_object(one, deep=True)) for key, one in node.value
    )
    return _mapping((_key(key), one) for key, one in pairs)


def _key(key: Node) -> str:
    if isinstance(key, list | Mapping):
        raise _NotWellFormed("a key is a list or a mapping.")
    return nodes.value(key).text


READERS = {".yaml": _yaml, ".yml": _yaml, ".json": _json, ".toml": _toml}


def _table(text: str) -> Sweep:
    """Parse one run per row; the first row has the names."""
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        names = next(reader, [])
        if not names:
            raise UserError("expected a first row with the names of the parameters, got nothing.")
        for name in names:
            parameters.check_name(name)
            if names.count(name) > 1:
                raise UserError(f"expected the column {name} once, got it twice.")
        rows: list[list[Value]] = []
        for row in reader:
            if row and len(row) != len(names):
                raise UserError(f"line {reader.line_num}: expected {len(names)} values, got {len(row)}.")
            rows += [[values.value_of_word(cell) for cell in row]] if row else []
    except csv.Error as error:
        raise UserError(f"line {reader.line_num}: expected CSV, got something else: {error}.") from error
    if not rows:
        raise UserError("expected a row for every run, got only the names.")
    return Sweep(spaces.table(names, rows))
