"""Cheap replacements for standard modules that are too slow to import in a process that starts often.

Lean.
Python 3.9.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from dataclasses import dataclass as record

    __all__ = ["record", "signal"]
else:
    # `signal` imports enum; its C module has everything we need.
    import _signal as signal

    def record(cls):
        """Create a class of plain values from its annotations, with its methods, as `dataclass` does."""
        # Python 3.9 has no annotations on a class without any.
        names = tuple(getattr(cls, "__annotations__", {}))
        defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
        kept = {name: value for name, value in cls.__dict__.items() if name not in (*names, "__dict__", "__weakref__")}

        def begin(self, *args, **values):
            # Into the dictionary at once: one assignment for each of 30 values costs more than all the rest.
            given = self.__dict__
            given.update(defaults)
            given.update(zip(names, args))  # noqa: B905 - `strict` came with 3.10
            given.update(values)
            if len(given) != len(names):
                unknown = [f"no {name}" for name in given if name not in names]
                missing = [name for name in names if name not in given]
                raise TypeError(f"{cls.__name__} needs {', '.join(missing + unknown)}")

        def show(self):
            return f"{cls.__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        def same(self, other):
            return type(self) is type(other) and show(self) == show(other)

        body = {"__match_args__": names, "__init__": begin, "__repr__": show, "__eq__": same}
        return type(cls.__name__, (), {**kept, **body})


class closing_fd:
    """Close a descriptor at the end of a `with` block."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)
