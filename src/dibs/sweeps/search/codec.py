"""A parameter space as JSON, so that it can be stored with its sweep and read by another process.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

from dibs.errors import UserError
from dibs.sweeps import conditions
from dibs.sweeps.columns import (
    Column,
    Distribution,
    Linear,
    Logarithmic,
    LogUniform,
    Normal,
    Steps,
    Uniform,
    WeightedChoice,
)
from dibs.sweeps.grid import Axis, Block, Space
from dibs.sweeps.values import Value

#: Every source of values that is not a list, by its name.
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Steps, Linear, Logarithmic, Uniform, LogUniform, Normal, WeightedChoice)
}


def encode(space: Space) -> dict[str, Any]:
    """Return a space as JSON data."""
    return {"blocks": [_block(block) for block in space.blocks], "exclude": [one.text for one in space.exclude]}


def _block(block: Block) -> dict[str, Any]:
    return {
        "axes": [
            {
                "names": list(axis.names),
                "columns": [_source(column) for column in axis.columns],
                "is_for_samples": axis.is_for_samples,
            }
            for axis in block.axes
        ],
        "drawn": {name: _source(one) for name, one in block.drawn.items()},
        "when": {name: condition.text for name, condition in block.when.items()},
        "names": list(block.names),
    }


def _source(source: Column | Distribution) -> Any:
    if type(source).__name__ not in KINDS:
        assert isinstance(source, Sequence)
        return [list(value) for value in source]
    return {"kind": type(source).__name__} | {
        each.name: _field(getattr(source, each.name))
        for each in fields(source)  # type: ignore[arg-type]
    }


def _field(value: object) -> object:
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    return [list(each) if isinstance(each, Value) else each for each in value] if isinstance(value, tuple) else value


def decode(data: Mapping[str, Any]) -> Space:
    """Return the space of JSON data that `encode` made; raise UserError for any other data."""
    try:
        blocks = tuple(_read_block(block) for block in data["blocks"])
        return Space(blocks, tuple(conditions.parse(text) for text in data["exclude"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        raise UserError(f"expected a parameter space as dibs writes it, got something else ({error!r}).") from None


def _read_block(data: Mapping[str, Any]) -> Block:
    axes = tuple(
        Axis(tuple(one["names"]), tuple(_read_source(column) for column in one["columns"]), bool(one["is_for_samples"]))
        for one in data["axes"]
    )
    if any(len(axis.columns) != len(axis.names) or not len(axis) for axis in axes):
        raise ValueError("an axis without values")
    when = {name: conditions.parse(text) for name, text in data["when"].items()}
    drawn = {name: _read_source(one) for name, one in data["drawn"].items()}
    return Block(axes, drawn, when, tuple(data["names"]))


def _read_source(data: Any) -> Any:
    if isinstance(data, list):
        return [Value(*each) for each in data]
    kind = KINDS[data["kind"]]
    return kind(**{name: _read_field(value) for name, value in data.items() if name != "kind"})


def _read_field(value: Any) -> object:
    if isinstance(value, dict):
        return Fraction(value["fraction"])
    if isinstance(value, list):
        return tuple(Value(*each) if isinstance(each, list) else each for each in value)
    return value
