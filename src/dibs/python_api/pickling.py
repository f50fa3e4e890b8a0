"""Pickle values: by import name where possible, else by value with cloudpickle, if the user has installed it.

Functions and classes of `__main__`, a notebook or a function body cannot be imported by the worker. Every worker loads
this module, so it imports only the C part of `pickle`; the Python part costs more than the rest of the worker.
"""

from __future__ import annotations

import io
from _pickle import Pickler, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Unpicklable", "dump", "loads"]

PROTOCOL = 5


class Unpicklable(TypeError):
    """A function, an argument or a result that cannot be sent to another process."""


class _InMain(Exception):
    """A name of `__main__`, which is another module in the worker."""


class _ByName(Pickler):
    """Pickles functions and classes by import name, and refuses those of `__main__`."""

    def reducer_override(self, value: Any) -> Any:
        """Refuse names of `__main__`."""
        if getattr(value, "__module__", None) == "__main__" and hasattr(value, "__qualname__"):
            raise _InMain(f"{value.__qualname__} is defined in __main__")
        return NotImplemented


def dump(value: object, what: str) -> bytes:
    """Pickle a value, by name or else by value; `what` describes it in errors."""
    file = io.BytesIO()
    try:
        _ByName(file, PROTOCOL).dump(value)
    except Exception as error:  # noqa: BLE001 (user code in __reduce__)
        return _by_value(value, what, error)
    return file.getvalue()


def _by_value(value: object, what: str, why: Exception) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        raise Unpicklable(
            f"{what} cannot be sent by import name ({_line(why)}). "
            "Move it to a module that can be imported, or `pip install cloudpickle` to send it by value."
        ) from why
    try:
        found: bytes = cloudpickle.dumps(value, protocol=PROTOCOL)
    except Exception as error:
        raise Unpicklable(f"{what} cannot be pickled, not even by cloudpickle ({_line(error)}).") from error
    return found


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300].rstrip(".")
