"""Values to bytes and back: by import name where the other side can import them, else by value.

By value needs cloudpickle, which is not ours to install. What lives in `__main__`, in a notebook or inside a function
cannot be imported by anybody else. Loaded by every worker, so the C half of `pickle` alone is imported: the rest of it
costs more than all else that a worker does.
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
    """Something of `__main__`, which is another program on the other side."""


class _ByName(Pickler):
    """Writes functions and classes by their import name, and refuses those of `__main__`."""

    def reducer_override(self, value: Any) -> Any:
        """Look at everything that is not a plain value."""
        if getattr(value, "__module__", None) == "__main__" and hasattr(value, "__qualname__"):
            raise _InMain(f"{value.__qualname__} is defined in __main__")
        return NotImplemented


def dump(value: object, what: str) -> bytes:
    """Return a value as bytes, by name or else by value; `what` names it in the error if neither can be."""
    file = io.BytesIO()
    try:
        _ByName(file, PROTOCOL).dump(value)
    except Exception as error:  # noqa: BLE001 (whatever a stranger's __reduce__ raises)
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
