"""Cheap replacements for standard modules that are too slow to import in a process that starts often.

Lean.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from dataclasses import dataclass as record

    __all__ = ["record", "signal"]
else:
    # `signal` imports enum; its C module has everything we need.
    import _signal as signal

    def record(cls):
        """Create a class of plain values from its annotations, as `dataclass` does."""
        names = tuple(cls.__annotations__)
        defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}

        def begin(self, *args, **values):
            given = {**defaults, **dict(zip(names, args, strict=False)), **values}
            if len(given) < len(names):
                raise TypeError(f"{cls.__name__} needs {', '.join(name for name in names if name not in given)}")
            for name, value in given.items():
                setattr(self, name, value)

        def show(self):
            return f"{cls.__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        def same(self, other):
            return type(self) is type(other) and show(self) == show(other)

        body = {"__slots__": names, "__match_args__": names, "__init__": begin, "__repr__": show, "__eq__": same}
        return type(cls.__name__, (), {**body, "__doc__": cls.__doc__, "__module__": cls.__module__})
