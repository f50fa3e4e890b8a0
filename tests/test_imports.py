"""The direction of imports: one row per package, each may import those above it. And what each part may load.

Import statements are read, not run, wherever they are: at the top, in a function, or for the type checker only.
Two lines in a docstring are promises that are tested here: `Lean.` (cheap enough for `python -I -S`) and `Pure.` (no
I/O, no clock).
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "dibs"


class Rule(NamedTuple):
    """What holds for all modules of a package."""

    is_pure: bool = False
    is_lean: bool = False
    #: What it may load outside of our packages and the standard library.
    third_party: frozenset[str] = frozenset()


#: Packages in import order: each may import itself and those above it. The package "" is the top: `dibs` itself.
PACKAGES = {
    "": Rule(),
    "model": Rule(is_pure=True),
    "scheduling": Rule(is_pure=True),
    "system": Rule(third_party=frozenset({"tomlkit"})),
    "logs": Rule(),
    "leases": Rule(is_lean=True),
    "devices": Rule(third_party=frozenset({"pynvml"})),
    "runner": Rule(is_lean=True),
    "sweeps": Rule(third_party=frozenset({"optuna", "yaml"})),
    "store": Rule(),
    "engines": Rule(third_party=frozenset({"ray"})),
    "jobqueue": Rule(),
    "submission": Rule(),
    "client": Rule(),
    "foreground": Rule(),
    "python_api": Rule(third_party=frozenset({"IPython", "cloudpickle", "joblib", "optuna", "pandas", "polars"})),
    "daemon": Rule(),
    "http_api": Rule(third_party=frozenset({"aiohttp", "msgspec"})),
    "cli": Rule(third_party=frozenset({"rich", "textual"})),
}
ORDER = list(PACKAGES)

#: What the distribution `dibs-compat` may import of ours: packages, or single modules.
COMPAT = {"client", "errors", "foreground", "leases", "model", "submission", "sweeps", "system.settings", "version"}

#: Imports that point the other way, and why.
EXCEPTIONS = {
    ("__main__", "cli"): "the program",
    ("optuna", "python_api"): "the public name of `python_api.study_driver`",
    ("daemon", "http_api"): "the composition root, inside the function that builds everything",
}

#: Standard library modules without files, processes, network or clock (of `datetime` see the test on clocks). `random`
#: is one as long as it gets a seed.
PURE = frozenset(
    {"__future__", "collections", "csv", "dataclasses", "datetime", "difflib", "enum", "fnmatch", "typing"}
    | {"functools", "itertools", "math", "re", "shlex", "string", "array", "ast", "bisect", "contextlib", "fractions"}
    | {"hashlib", "heapq", "html", "json", "operator", "random", "statistics"}
)  # fmt: skip

#: Built in, or loaded by the bare interpreter anyway, or a single small C module.
CHEAP = frozenset(
    {"__future__", "_frozen_importlib", "_json", "_signal", "_socket", "binascii", "errno", "fcntl", "gc", "marshal"}
    | {"os", "resource", "select", "stat", "sys", "time", "zlib"}
)  # fmt: skip


class Import(NamedTuple):
    """One imported module, and how."""

    name: str
    line: int
    #: At the top of the module and not only for the type checker: paid for by every importer.
    is_paid: bool


def module_name(path: Path) -> str:
    """Return `engines.local` for `engines/local.py`; a package is its `__init__`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"}
COMPAT_SOURCE = SOURCE.parent.parent / "compat" / "src"
COMPAT_FILES = sorted(COMPAT_SOURCE.rglob("*.py"))
PLUGINS = SOURCE.parent.parent / "plugins"
PLUGIN_FILES = sorted(PLUGINS.rglob("*.py"))
FOLDERS = {f"dibs.{'.'.join(path.parent.relative_to(SOURCE).parts)}".rstrip(".") for path in SOURCE.rglob("*.py")}


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return all imports of a file; `from dibs import x` counts as `dibs.x`."""
    return tuple(_imports(ast.parse(path.read_text()).body, is_paid=True))


def _imports(nodes: list[ast.stmt], is_paid: bool) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, is_paid) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write `from dibs import ...`, not a relative import"
            is_package = node.module in FOLDERS
            names = [f"{node.module}.{alias.name}" for alias in node.names] if is_package else [str(node.module)]
            yield from (Import(name, node.lineno, is_paid) for name in names)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            is_typing = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            yield from _imports(getattr(node, "body", []), is_paid and not is_function and not is_typing)
            for more in ("orelse", "finalbody"):
                yield from _imports(getattr(node, more, []), is_paid and not is_function)
            for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                yield from _imports(handler.body, is_paid and not is_function)


def package(name: str) -> str:
    """Return the package of a module; that of the top is ""."""
    first, _, rest = name.partition(".")
    if first in PACKAGES and (rest or (SOURCE / first).is_dir()):
        return first
    return ""


def own(found: Import) -> str | None:
    """Return our module that an import means (`engines.local`); None if it is not ours."""
    head, _, rest = found.name.partition(".")
    if head != "dibs":
        return None
    while rest not in MODULES and "." in rest:
        rest = rest.rpartition(".")[0]
    return rest or None


def promises(name: str) -> set[str]:
    """Return the one-word lines of a module's docstring: `Lean`, `Pure`."""
    text = MODULES[name].read_text()
    if not {"Lean.", "Pure."}.intersection(text.splitlines()):
        return set()
    # All workers ask this of all modules before their first test, so only these few are parsed.
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return {line.rstrip(".") for line in docstring.splitlines() if line in ("Lean.", "Pure.")}


LEAN = sorted(name for name in MODULES if PACKAGES[package(name)].is_lean or "Lean" in promises(name))
PURE_MODULES = sorted(name for name in MODULES if PACKAGES[package(name)].is_pure or "Pure" in promises(name))


def test_the_table_names_only_packages_that_exist() -> None:
    assert {path.name for path in SOURCE.iterdir() if any(path.glob("*.py"))} == set(PACKAGES) - {""}


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_in_a_package_of_the_table(name: str) -> None:
    assert package(name) == "" if "." not in name and name not in PACKAGES else package(name) in ORDER


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_from_its_own_package_and_those_above_it(name: str) -> None:
    wrong = [
        f"line {found.line}: {name} imports {target}"
        for found in imports(MODULES[name])
        if (target := own(found)) is not None and _points_down(name, target)
    ]
    assert not wrong


def _points_down(name: str, target: str) -> bool:
    start, end = package(name), package(target)
    if (name.partition(".")[0], end) in EXCEPTIONS or (name, target) in EXCEPTIONS:
        return False
    return ORDER.index(end) > ORDER.index(start)


@pytest.mark.parametrize("path", COMPAT_FILES, ids=lambda path: str(path.relative_to(COMPAT_SOURCE)))
def test_compat_imports_only_what_is_listed(path: Path) -> None:
    targets = {target for found in imports(path) if (target := own(found)) is not None}
    assert {target for target in targets if target not in COMPAT and package(target) not in COMPAT} == set()


@pytest.mark.parametrize("path", PLUGIN_FILES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_plugins_use_public_names_of_dibs_and_load_them_when_needed(path: Path) -> None:
    """Hydra and submitit load every plugin in every program that uses them."""
    found = [one for one in imports(path) if _top(one) == "dibs"]
    assert {one.name for one in found} <= {"dibs", "dibs.errors"}
    assert not [one for one in found if one.is_paid]


@pytest.mark.parametrize("name", PURE_MODULES)
def test_pure_modules_import_nothing_with_side_effects(name: str) -> None:
    wrong = [found for found in imports(MODULES[name]) if own(found) is None and _top(found) not in PURE]
    assert not wrong, f"expected only pure modules: {sorted(PURE)}"


@pytest.mark.parametrize("name", PURE_MODULES)
def test_pure_modules_read_no_clock(name: str) -> None:
    """`datetime` may be used to write and parse times, never to read the current one."""
    calls = [node for node in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(node, ast.Call)]
    asked = [call.lineno for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in CLOCKS]
    assert not asked, f"lines {asked} ask a clock; take the time as an argument"


CLOCKS = ("now", "utcnow", "today")


@pytest.mark.parametrize("name", LEAN)
def test_lean_modules_import_only_cheap_modules(name: str) -> None:
    paid = [found for found in imports(MODULES[name]) if found.is_paid]
    expensive = [found for found in paid if own(found) is None and _top(found) not in CHEAP]
    not_lean = [found for found in paid if (target := own(found)) is not None and target not in LEAN]
    assert not expensive
    assert not not_lean, "a lean module loads only lean ones"


def test_the_runner_loads_no_expensive_module_in_a_bare_interpreter() -> None:
    """The statements match reality: `typing`, `enum`, `re` and the like are never loaded."""
    program = (
        "import os, sys; before = set(sys.modules); sys.path.append(sys.argv[1])\n"
        "import dibs.runner.main, dibs.runner.launcher, dibs.leases.device_lease, dibs.leases.tickets\n"
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('dibs')))"
    )
    loaded = _run(["-I", "-S", "-c", program, str(SOURCE.parent)]).split()
    assert set(loaded) <= CHEAP


@pytest.mark.parametrize("name", MODULES)
def test_third_party_packages_are_loaded_where_the_table_says(name: str) -> None:
    wrong = [
        found
        for found in imports(MODULES[name])
        if own(found) is None
        and _top(found) not in sys.stdlib_module_names
        and _top(found) not in PACKAGES[package(name)].third_party
    ]
    assert not wrong, f"{name} may not load these; see PACKAGES"


@pytest.mark.parametrize("name", ["dibs", "dibs.client.connection", "dibs.python_api.executor"])
def test_import_dibs_needs_the_standard_library_only(name: str) -> None:
    """It is installed in users' own environments, beside whatever versions they have."""
    # What `site` loads for the .pth files of other packages comes before us and is not ours.
    program = f"import sys; before = set(sys.modules); import {name}; print(*set(sys.modules) - before)"
    loaded = {module.partition(".")[0] for module in _run(["-c", program]).split()}
    assert loaded <= sys.stdlib_module_names | {"dibs"}


def test_the_daemon_loads_no_engine_that_the_settings_do_not_name() -> None:
    """The modules of Slurm and Ray are loaded by `engines.registry` when an engine of their kind is made."""
    loaded = _run(["-c", "import sys; import dibs.daemon.main, dibs.http_api.server; print(*sys.modules)"]).split()
    assert "dibs.engines.registry" in loaded
    assert not [name for name in loaded if name.startswith(("dibs.engines.slurm", "dibs.engines.ray"))]


def test_only_the_store_and_its_file_use_sqlite() -> None:
    """The writer thread knows the names of its errors, because it handles them; no other module knows about SQLite."""
    users = {name for name, path in MODULES.items() if any(found.name == "sqlite3" for found in imports(path))}
    assert {name for name in users if package(name) != "store"} <= {"jobqueue.thread"}


def test_rich_is_loaded_only_when_something_is_drawn() -> None:
    """`add`, `--json` and piped output never load it."""
    paid = {
        name for name, path in MODULES.items() for found in imports(path) if _top(found) == "rich" and found.is_paid
    }
    assert not paid


def test_only_the_application_of_dibs_top_loads_textual() -> None:
    """Its verb draws the first screen before it imports these; nothing else does."""
    users = {name for name, path in MODULES.items() for found in imports(path) if _top(found) == "textual"}
    own = {"cli.top.application", "cli.top.modals", "cli.top.widgets"}
    assert users == own
    paid = {name for name, path in MODULES.items() for found in imports(path) if own_module(found, own)}
    assert paid <= own


def own_module(found: Import, names: set[str]) -> bool:
    """Tell whether an import at the top of a module is one of these modules."""
    return found.is_paid and (own(found) or "") in names


def _top(found: Import) -> str:
    return found.name.partition(".")[0]


def _run(words: list[str]) -> str:
    return subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True).stdout
