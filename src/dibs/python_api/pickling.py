"""Pickle values: by import name where possible, else by value with cloudpickle, if the user has installed it.

Functions and classes of `__main__`, a notebook or a function body cannot be imported by the worker. Every worker loads
this module, so it imports only the C part of `pickle`; the Python part costs more than the rest of the worker.
"""

from __future__ import annotations

import io
from _pickle import Pickler, Unpickler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Unpicklable", "dump", "loads"]

PROTOCOL = 5
#: Modules that calls and results of release 0.1 name, and where their functions and classes are now.
MOVED = {
    "dibs.answering": "dibs.python_api.call_worker",
    "dibs.executor": "dibs.python_api.executor",
    # Its names are in several modules now, and all of them are public.
    "dibs.handles": "dibs",
    "dibs.inside": "dibs.python_api.inside_job",
    "dibs.leased": "dibs.python_api.lease",
    "dibs.stopping": "dibs.python_api.on_stop",
    "dibs.sweep_handles": "dibs.python_api.sweep",
}


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


class _Reader(Unpickler):
    """Finds functions and classes by their import name, also by the one they had in release 0.1."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle names."""
        return super().find_class(MOVED.get(module, module), name)


def loads(body: bytes) -> Any:
    """Return the value that `dump` made these bytes of."""
    return _Reader(io.BytesIO(body)).load()


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
            "Install cloudpickle to send it by value: pip install 'dibs[python]'. Or move it to a module to import."
        ) from why
    try:
        found: bytes = cloudpickle.dumps(value, protocol=PROTOCOL)
    except Exception as error:
        raise Unpicklable(f"{what} cannot be pickled, not even by cloudpickle ({_line(error)}).") from error
    return found


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300].rstrip(".")
