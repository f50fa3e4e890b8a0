"""All modules of a guardian in one file: twenty files take longer to load, above all from a network folder.

The first start on a node with some version of Python makes the file, beside the modules, which never change.
Nodes load this module by itself, so it imports nothing of dibs.

Python 3.9.
"""

import marshal
import os
import sys
from _frozen_importlib import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, ModuleType


def start(root: str) -> None:
    """Run the guardian whose modules are in the folder `root`."""
    path = f"{root}/{sys.implementation.cache_tag}-{sys.hexversion:x}.bundle"
    sys.path.append(root)
    bundle = _read(path)
    if bundle is not None:
        sys.meta_path.insert(0, bundle)
    from dibs.runner import guardian

    if bundle is None:
        # `__future__` is not ours, but every module imports it.
        _write(path, [name for name in sys.modules if name == "__future__" or name.split(".")[0] == "dibs"])
    guardian.main()


class Bundle:
    """Finds and loads modules by their names."""

    def __init__(self, codes: "dict[str, CodeType]") -> None:
        self._codes = codes

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Describe a module; None: it is not in here."""
        code = self._codes.get(name)
        if code is None:
            return None
        spec = ModuleSpec(name, self, origin=code.co_filename)  # type: ignore[arg-type]
        spec.has_location = True
        if os.path.basename(code.co_filename) == "__init__.py":
            # Modules that few starts need are found beside it.
            spec.submodule_search_locations = [os.path.dirname(code.co_filename)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave that to Python."""

    def exec_module(self, module: "ModuleType") -> None:
        """Run the code of a new module."""
        exec(self._codes[module.__name__], module.__dict__)


def _read(path: str) -> "Bundle | None":
    """Return the bundle; None: there is none, or a power cut left a part of it."""
    try:
        with open(path, "rb") as file:
            return Bundle(dict(marshal.loads(file.read())))
    except (OSError, EOFError, ValueError, TypeError):
        return None


def _write(path: str, names: "Iterable[str]") -> None:
    """Write the code of loaded modules, complete or not at all: other nodes may be doing the same."""
    fresh = f"{path}.{os.urandom(8).hex()}"
    try:
        codes = {name: _compile(str(sys.modules[name].__file__)) for name in names}
        try:
            with open(fresh, "xb") as file:
                file.write(marshal.dumps(codes))
            os.rename(fresh, path)
        except OSError:
            os.unlink(fresh)
            raise
    except OSError as error:
        # The job needs no bundle. What is printed is shown if its runner never comes up.
        print(f"dibs: cannot write {path}: {error.strerror}", file=sys.stderr)


def _compile(path: str) -> "CodeType":
    """Compile a module without its docstrings, which are half of it."""
    with open(path, "rb") as file:
        return compile(file.read(), path, "exec", dont_inherit=True, optimize=2)
