"""Where the class of a task comes from, and how another process finds it.

A class is known by its module and its name. One that was written into the script itself is found by reading the script
again, under another name than `__main__`, up to where it makes the scheduler.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pickle
import sys
from types import ModuleType

from dibs import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

#: What a script is called when it is read for what it defines: the name that multiprocessing uses for the same.
AGAIN = "__mp_main__"

#: The name, among the globals of such a script, of the source that is looked for.
WANTED = "__dibs_wanted__"


class SchedulerFound(BaseException):
    """The script has come to the scheduler that we work for; what follows is not for us."""


class Source:
    """A class by its names, the file of its module (None: by the name alone), and the script if that is needed."""

    __slots__ = ("module", "package", "path", "qualname", "script")

    def __init__(
        self,
        module: str,
        qualname: str,
        path: str | None = None,
        script: str | None = None,
        package: str | None = None,
    ) -> None:
        self.module = module
        self.qualname = qualname
        self.path = path
        self.script = script
        #: Of a script that was started with -m.
        self.package = package

    @property
    def key(self) -> tuple[str, str]:
        """Return what makes two sources the same class."""
        return "__main__" if self.module == AGAIN else self.module, self.qualname


def source_of_class(task_class: Any) -> Source:
    """Return the source of a class, or of `"module:Class"`, which is not imported here."""
    if isinstance(task_class, str):
        module, colon, qualname = task_class.partition(":")
        if not (module and colon and qualname):
            raise ValueError(f'gpu_task_class expected a class or "module:Class", got "{task_class}"')
        return Source(module, qualname, None, *_script())
    if not isinstance(task_class, type):
        raise ValueError(f'gpu_task_class expected a class or "module:Class", got {task_class!r}')
    module, path = task_class.__module__, getattr(sys.modules[task_class.__module__], "__file__", None)
    if path is None:
        raise errors.UserError(
            f"expected the class {task_class.__qualname__} in a file, got one that was typed interactively.",
            "Put it into a module and import it, so that task processes can import it too.",
        )
    return Source(module, task_class.__qualname__, os.path.abspath(path), *_script())


def _script() -> tuple[str | None, str | None]:
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    return None if path is None else os.path.abspath(path), getattr(main, "__package__", None)


def load(source: Source, pickled: bytes) -> Any:
    """Import what a pickle needs, and return what is in it; for processes of tasks."""
    _import(source)
    # Under either name of a script.
    if b"_main__" in pickled and source.script is not None:
        read_script(source)
    return pickle.loads(pickled)


def find(source: Source) -> Any:
    """Return the class; for processes of tasks."""
    found: Any = _import(source)
    for name in source.qualname.split("."):
        found = getattr(found, name)
    return found


def _import(source: Source) -> ModuleType:
    """Import a module by its name, or from its file where the name does not lead there."""
    if source.module in ("__main__", AGAIN):
        return read_script(source)
    if source.module in sys.modules:
        return sys.modules[source.module]
    found = None
    with contextlib.suppress(ModuleNotFoundError):
        found = importlib.util.find_spec(source.module)
    if source.path is None or (found is not None and _is_same(found.origin, source.path)):
        return importlib.import_module(source.module)
    spec = importlib.util.spec_from_file_location(source.module, source.path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {source.module} from {source.path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[source.module] = module
    spec.loader.exec_module(module)
    return module


def _is_same(a: str | None, b: str) -> bool:
    return a is not None and os.path.realpath(a) == os.path.realpath(b)


def read_script(source: Source) -> ModuleType:
    """Run the script up to the scheduler that we work for, once; return what it has defined until then."""
    if AGAIN in sys.modules:
        return sys.modules[AGAIN]
    if source.script is None:
        raise ImportError(f"{source.qualname} is not defined in a file; put it into a module")
    module = ModuleType(AGAIN)
    vars(module).update({"__file__": source.script, "__package__": source.package, WANTED: source.key})
    sys.modules["__main__"] = sys.modules[AGAIN] = module
    with open(source.script, "rb") as file:
        code = compile(file.read(), source.script, "exec")
    with contextlib.suppress(SchedulerFound):
        exec(code, vars(module))
    return module


def is_read_again(task_class: Any) -> bool:
    """Return whether the caller is a script that is only read again; raise `SchedulerFound` at its scheduler."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == AGAIN and frame.f_code.co_name == "<module>":
            if frame.f_globals.get(WANTED) == source_of_class(task_class).key:
                raise SchedulerFound
            return True
        frame = frame.f_back
    return False
