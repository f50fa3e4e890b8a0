"""The direction of imports: doors → application → machine room → core, and what each part may load.

Import statements are read, not run, wherever they stand: at the top, in a function, or for the type checker alone.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "dibs"

CORE, MACHINE_ROOM, APPLICATION, DOORS = range(4)
LAYER_NAMES = ("core", "machine room", "application", "doors")

#: Every module and its layer; a package stands for all that is in it. A new module needs a line here.
LAYERS = {
    # no I/O, no clock, no logging
    "version": CORE,
    "errors": CORE,
    "units": CORE,
    "devices": CORE,
    "jobs": CORE,
    "lifecycle": CORE,
    "needs": CORE,
    "matching": CORE,
    "linking": CORE,
    "sharing": CORE,
    "rooms": CORE,
    "pools": CORE,
    "ranks": CORE,
    "views": CORE,
    "scheduling": CORE,
    "refusals": CORE,
    "obstacles": CORE,
    "foreign": CORE,
    "assigning": CORE,
    "health": CORE,
    "observations": CORE,
    "uses": CORE,
    "declaring": CORE,
    "durations": CORE,
    "tallies": CORE,
    "exposition": CORE,
    "forecasts": CORE,
    "selection": CORE,
    "codec": CORE,
    "captured": CORE,
    "spelling": CORE,
    "environs": CORE,
    "call_names": CORE,
    "arrays": CORE,
    "esy": CORE,
    "templates": CORE,
    "metrics": CORE,
    "scripts": CORE,
    "sbatch": CORE,
    "sequences": CORE,
    "shuffles": CORE,
    "values": CORE,
    "runs": CORE,
    "ranking": CORE,
    "columns": CORE,
    "conditions": CORE,
    "grid": CORE,
    "quoting": CORE,
    "run_commands": CORE,
    "extending": CORE,
    "parameters": CORE,
    "arguments": CORE,
    "spaces": CORE,
    "nodes": CORE,
    "documents": CORE,
    "wandb_files": CORE,
    # one outside thing each
    "setting_kinds": MACHINE_ROOM,
    "settings": MACHINE_ROOM,
    "calls": MACHINE_ROOM,
    "pickles": MACHINE_ROOM,
    "answering": MACHINE_ROOM,
    "call": MACHINE_ROOM,
    "places": MACHINE_ROOM,
    "commands": MACHINE_ROOM,
    "database": MACHINE_ROOM,
    "rows": MACHINE_ROOM,
    "findings": MACHINE_ROOM,
    "choosing": MACHINE_ROOM,
    "reader": MACHINE_ROOM,
    "paging": MACHINE_ROOM,
    "log_files": MACHINE_ROOM,
    "searching": MACHINE_ROOM,
    "store": MACHINE_ROOM,
    "probe": MACHINE_ROOM,
    "driver": MACHINE_ROOM,
    "nvidia": MACHINE_ROOM,
    "amd": MACHINE_ROOM,
    "informants": MACHINE_ROOM,
    "listening": MACHINE_ROOM,
    "vetting": MACHINE_ROOM,
    "belonging": MACHINE_ROOM,
    "users": MACHINE_ROOM,
    "peers": MACHINE_ROOM,
    "tokens": MACHINE_ROOM,
    "locks": MACHINE_ROOM,
    "holders": MACHINE_ROOM,
    "leases": MACHINE_ROOM,
    "drains": MACHINE_ROOM,
    "folders": MACHINE_ROOM,
    "tickets": MACHINE_ROOM,
    "waiting": MACHINE_ROOM,
    "holding": MACHINE_ROOM,
    "standing": MACHINE_ROOM,
    "lines": MACHINE_ROOM,
    "granted": MACHINE_ROOM,
    "slots": MACHINE_ROOM,
    "slot_kinds": MACHINE_ROOM,
    "piped": MACHINE_ROOM,
    "spawning": MACHINE_ROOM,
    "leftovers": MACHINE_ROOM,
    "pipe_signals": MACHINE_ROOM,
    "piping": MACHINE_ROOM,
    "waits": MACHINE_ROOM,
    "precedence": MACHINE_ROOM,
    "sweep_files": MACHINE_ROOM,
    "processes": MACHINE_ROOM,
    "survival": MACHINE_ROOM,
    "disk": MACHINE_ROOM,
    "reports": MACHINE_ROOM,
    "numbers": MACHINE_ROOM,
    "records": MACHINE_ROOM,
    "spares": MACHINE_ROOM,
    "oom": MACHINE_ROOM,
    "tails": MACHINE_ROOM,
    "attempts": MACHINE_ROOM,
    "supervision": MACHINE_ROOM,
    "starting": MACHINE_ROOM,
    "runner": MACHINE_ROOM,
    "launcher": MACHINE_ROOM,
    "noticing": MACHINE_ROOM,
    "engines": MACHINE_ROOM,
    # the two ways anything changes, and the thread that does it
    "reasons": APPLICATION,
    "prospects": APPLICATION,
    "foreseeing": APPLICATION,
    "notices": APPLICATION,
    "turns": APPLICATION,
    "edits": APPLICATION,
    "forgetting": APPLICATION,
    "wishing": APPLICATION,
    "verbs": APPLICATION,
    "sweeps": APPLICATION,
    "gathering": APPLICATION,
    "observing": APPLICATION,
    "dispatch": APPLICATION,
    "attending": APPLICATION,
    "core": APPLICATION,
    # translation only
    "daemon": DOORS,
    "service": DOORS,
    "http_api": DOORS,
    "wire": DOORS,
    "submissions": DOORS,
    "actions": DOORS,
    "housekeeping": DOORS,
    "looking": DOORS,
    "client": DOORS,
    "options": DOORS,
    "job_options": DOORS,
    "moments": DOORS,
    "drafts": DOORS,
    "retyping": DOORS,
    "answers": DOORS,
    "questions": DOORS,
    "absence": DOORS,
    "awaiting": DOORS,
    "keywords": DOORS,
    "handles": DOORS,
    "inside": DOORS,
    "stopping": DOORS,
    "leasing": DOORS,
    "knowing": DOORS,
    "leased": DOORS,
    "sweep_drafts": DOORS,
    "edit_drafts": DOORS,
    "scripting": DOORS,
    "sweep_handles": DOORS,
    "fast": DOORS,
    "futures": DOORS,
    "couriers": DOORS,
    "executor": DOORS,
    "cli": DOORS,
    "__main__": DOORS,
}

#: Standard library modules without files, processes, network or clock (of `datetime` see the test on clocks). `random`
#: is one as long as it is given a seed.
PURE = frozenset(
    {"__future__", "collections", "dataclasses", "datetime", "difflib", "enum", "fnmatch", "typing"}
    | {"functools", "itertools", "math", "re", "shlex", "string", "array", "ast", "bisect", "contextlib", "fractions"}
    | {"hashlib", "heapq", "json", "operator", "random", "statistics"}
)  # fmt: skip

#: What runs in every runner and every foreground door, under `python -I -S`, and what a simple `dibs add` loads.
LEAN = frozenset(
    {"runner", "launcher", "attempts", "records", "spares", "oom", "tails", "starting", "supervision", "processes"}
    | {"leases", "holders", "drains", "holding", "locks", "users", "tickets", "errors"}
    | {"linking", "matching", "noticing", "sharing", "units"}
    | {"fast", "captured", "commands", "calls"}
)  # fmt: skip

#: Built in, or loaded by the bare interpreter anyway, or a single small C module.
CHEAP = frozenset(
    {"__future__", "_json", "_signal", "_socket", "binascii", "errno", "fcntl", "gc", "os", "select", "stat", "sys"}
    | {"time", "zlib"}
)  # fmt: skip

#: Everything that is not in the standard library, and the modules that may load it.
THIRD_PARTY = {
    "aiohttp": {"http_api"},
    "cloudpickle": {"pickles"},
    "msgspec": {"http_api", "submissions", "actions", "wire"},
    "pynvml": {"driver"},
    "rich": {"cli"},
    "yaml": {"sweep_files"},
    # The user's own, when there is one.
    "pandas": {"sweep_handles"},
}


class Import(NamedTuple):
    """One imported module, and how."""

    name: str
    line: int
    #: At the top of the module and not for the type checker alone: paid for by everybody who imports the module.
    is_paid: bool


def module_name(path: Path) -> str:
    """Return `engines.local` for `engines/local.py`; a package is its `__init__`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"}


def imports(path: Path) -> list[Import]:
    """Return all imports of a file; `from dibs import x` counts as `dibs.x`."""
    return list(_imports(ast.parse(path.read_text()).body, is_paid=True))


def _imports(nodes: list[ast.stmt], is_paid: bool) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, is_paid) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write `from dibs import ...`, not a relative import"
            is_package = node.module in ("dibs", "dibs.cli", "dibs.engines", "dibs.http_api")
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


def layer(name: str) -> int:
    """Return the layer of a module; one that is not in the table fails."""
    first = name.partition(".")[0]
    assert first in LAYERS, f"{name} has no layer yet: give it a line in LAYERS of {Path(__file__).name}"
    return LAYERS[first]


def own(found: Import) -> str | None:
    """Return the module of ours that an import means (`engines.local`); None if it is not ours."""
    head, _, rest = found.name.partition(".")
    if head != "dibs":
        return None
    while rest not in MODULES and "." in rest:
        rest = rest.rpartition(".")[0]
    return rest or None


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_a_layer(name: str) -> None:
    assert layer(name) in range(len(LAYER_NAMES))


def test_the_table_of_layers_names_only_modules_that_exist() -> None:
    assert set(LAYERS) == {name.partition(".")[0] for name in MODULES}


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_from_the_doors_to_the_core(name: str) -> None:
    wrong = [
        f"line {found.line}: {name} ({LAYER_NAMES[layer(name)]}) imports {target} ({LAYER_NAMES[layer(target)]})"
        for found in imports(MODULES[name])
        if (target := own(found)) is not None and layer(target) > layer(name)
    ]
    assert not wrong


@pytest.mark.parametrize("name", [name for name in MODULES if LAYERS.get(name) == CORE])
def test_the_core_imports_nothing_that_touches_the_world(name: str) -> None:
    wrong = [found for found in imports(MODULES[name]) if own(found) is None and _top(found) not in PURE]
    assert not wrong, f"expected only pure modules: {sorted(PURE)}"


@pytest.mark.parametrize("name", [name for name in MODULES if LAYERS.get(name) == CORE])
def test_the_core_asks_no_clock(name: str) -> None:
    """`datetime` may be used to write and read moments, never to ask for the present one."""
    calls = [node for node in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(node, ast.Call)]
    asked = [call.lineno for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in CLOCKS]
    assert not asked, f"lines {asked} ask a clock; take the time as an argument"


CLOCKS = ("now", "utcnow", "today")


@pytest.mark.parametrize("name", sorted(LEAN))
def test_lean_modules_load_only_what_costs_nothing(name: str) -> None:
    paid = [found for found in imports(MODULES[name]) if found.is_paid]
    dear = [found for found in paid if own(found) is None and _top(found) not in CHEAP]
    fat = [found for found in paid if (target := own(found)) is not None and target not in LEAN]
    assert not dear
    assert not fat, "a lean module loads only lean ones"


def test_a_bare_interpreter_runs_the_runner_without_dear_modules() -> None:
    """What the statements say is also what happens: `typing`, `enum`, `re` and the like never get in."""
    program = (
        "import os, sys; before = set(sys.modules); sys.path.append(sys.argv[1])\n"
        "import dibs.runner, dibs.launcher, dibs.leases, dibs.tickets\n"
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
        and name.partition(".")[0] not in THIRD_PARTY.get(_top(found), ())
    ]
    assert not wrong, f"{name} may not load these; see THIRD_PARTY"


@pytest.mark.parametrize("name", ["dibs", "dibs.client", "dibs.executor"])
def test_importing_it_needs_the_standard_library_alone(name: str) -> None:
    """It lives in people's own environments, beside whatever versions they have."""
    # What `site` loads for the .pth files of other packages comes before us and is not ours.
    program = f"import sys; before = set(sys.modules); import {name}; print(*set(sys.modules) - before)"
    loaded = {module.partition(".")[0] for module in _run(["-c", program]).split()}
    assert loaded <= sys.stdlib_module_names | {"dibs"}


def test_only_the_store_and_its_file_speak_to_sqlite() -> None:
    """`core` knows the names of its errors, because it answers them; nobody else knows that it is SQLite."""
    users = {name for name, path in MODULES.items() if any(found.name == "sqlite3" for found in imports(path))}
    assert users <= {"reader", "store", "database", "core"}


def test_rich_is_loaded_only_when_something_is_drawn() -> None:
    """`add`, `--json` and piped output never pay for it."""
    paid = {
        name for name, path in MODULES.items() for found in imports(path) if _top(found) == "rich" and found.is_paid
    }
    assert not paid


def test_no_two_files_of_tests_have_one_name() -> None:
    """Or the second one is not collected: their folders are no packages."""
    names = [path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def _top(found: Import) -> str:
    return found.name.partition(".")[0]


def _run(words: list[str]) -> str:
    return subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True).stdout
