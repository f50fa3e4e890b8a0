"""Calls as runs of a sweep: their parameters, and the requests that submit them.

Without explicit parameters those of the function are taken. A value that JSON cannot hold is named by its type and a
digest of its pickle, so two different values are never taken for the same run.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dibs.errors import UserError
from dibs.model import serialization
from dibs.python_api import pickling

#: What a sweep of calls shows as its command: each run has its own.
COMMAND = "calls of dibs.Executor"
#: The longest text, list or mapping that is a parameter as it is.
LONGEST_TEXT, MOST_ITEMS = 200, 32
#: Bits of an integer in JSON.
MOST_BITS = 63
#: Hexadecimal digits of a digest.
DIGEST = 12


class CallSweep:
    """The sweep that the calls of an executor belong to."""

    def __init__(self, name: str, again: bool) -> None:
        self.name = name
        #: Whether calls that are done run again.
        self.again = again
        #: Known after the first submission.
        self.id: int | None = None
        self.is_noted = False

    def definition(self, defaults: Mapping[str, object], at_once: int | None) -> dict[str, object]:
        """Return the request that creates the sweep, or finds it."""
        made: dict[str, object] = {"name": self.name, "command": COMMAND, "calls": True, "at_once": at_once}
        return made | {"project": defaults.get("project", "default"), "defaults": dict(defaults)}

    def note(self, counts: Mapping[str, int]) -> str | None:
        """Return the note that some calls are not run, the first time that this is so."""
        if self.is_noted or not counts.get("done"):
            return None
        self.is_noted = True
        return (
            f'calls of sweep "{self.name}" that are done return their earlier values; '
            "dibs.Executor(again=True) runs them again."
        )


class Point(NamedTuple):
    """What identifies a call in its sweep."""

    params: dict[str, Any]
    #: The function, unless the parameters were given.
    function: str = ""


def check_name(sweep: object, again: object) -> CallSweep | None:
    """Return the sweep of an executor; None if it has none."""
    if not isinstance(again, bool):
        raise UserError(f"again expected True or False, got {again!r}.")
    if sweep is None:
        return None
    if not isinstance(sweep, str) or not sweep.strip() or len(sweep) > 200:
        raise UserError(f"sweep expected a name of up to 200 characters, got {sweep!r}.")
    return CallSweep(sweep, again)


def given(params: Mapping[str, object]) -> Point:
    """Return the point with these parameters."""
    if not isinstance(params, Mapping) or not all(isinstance(name, str) and name for name in params):
        raise UserError(f'params expected a mapping such as {{"lr": 0.1}}, got {params!r}.')
    return Point({name: _data(name, value) for name, value in params.items()})


def derived(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> Point:
    """Return the point of a call: its arguments by the names of the function's parameters."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        # No signature, or a wrong call, which raises in the job.
        named: dict[str, object] = {f"arg{place}": value for place, value in enumerate(args)} | dict(kwargs)
    else:
        named = {}
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return Point({name: _data(name, value) for name, value in named.items()}, _identity(function))


def _identity(function: object) -> str:
    """Return the import name of a function; of a closure, a partial or an object also its content."""
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    if not name.endswith(".") and "<" not in name and not hasattr(function, "__self__"):
        return name
    inner = function.func if isinstance(function, functools.partial) else function
    return f"{getattr(inner, '__qualname__', type(inner).__name__)} {_digest(function)}"


def _data(name: str, value: Any) -> Any:
    """Return a value as JSON data, or a text that identifies it."""
    if serialization.is_secret(name):
        return f"{serialization.MASK} {_digest(value)}"
    found = _plain(value)
    return f"{type(value).__name__} {_digest(value)}" if found is NotImplemented else found


def _plain(value: Any) -> Any:
    """Return a value as JSON data; NotImplemented if it has no such form."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        # A number of numpy or torch.
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() <= MOST_BITS:
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    if isinstance(value, str) and len(value) <= LONGEST_TEXT and value.isprintable():
        return str(value)
    if isinstance(value, list | tuple) and len(value) <= MOST_ITEMS:
        items = [_plain(item) for item in value]
        return NotImplemented if NotImplemented in items else items
    if isinstance(value, dict) and len(value) <= MOST_ITEMS and all(isinstance(key, str) for key in value):
        pairs = {key: _plain(item) for key, item in value.items()}
        return NotImplemented if NotImplemented in pairs.values() else pairs
    return NotImplemented


def _digest(value: object) -> str:
    body = pickling.dump(value, f"the argument {type(value).__name__}")
    return hashlib.sha256(body).hexdigest()[:DIGEST]
