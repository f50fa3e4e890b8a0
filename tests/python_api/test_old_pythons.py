"""Programs inside jobs may run on Python 3.9: with such an interpreter where there is one, and by their source."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dibs
import release
from bench import Bench, wait_for
from dibs.engines import node_code
from dibs.runner import records

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
#: Needs nothing but dibs; `marker` is made when it may be stopped.
PROGRAM = """
import os, signal, sys, dibs
assert sys.version_info < (3, 11)
dibs.on_stop(lambda: print("saved", flush=True))
dibs.on_stop(lambda left_s: print("left", left_s, flush=True))
print(dibs.report(loss=0.5), dibs.params(), dibs.is_stopping)
(dibs.checkpoint_dir() / "model").write_text("weights")
with dibs.lease(gpus=1) as gpus:
    print("leased", gpus.indices, os.environ["CUDA_VISIBLE_DEVICES"] == gpus.ids[0])
    print("held", dibs.lease(gpus=1).acquire().is_held)
try:
    dibs.submit
except ImportError as error:
    print(error)
open("marker", "w").close()
while True:
    signal.pause()
"""


def interpreter(version: str) -> str | None:
    """Return a Python of this version, as `scripts/test` finds it."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for candidate in (f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python{version}"))):
        try:
            found = subprocess.run([candidate, "-c", "import ensurepip"], check=False, capture_output=True)
        except OSError:
            continue
        if found.returncode == 0:
            return candidate
    return None


OLD = [version for version in ("3.9", "3.10") if interpreter(version)]


@pytest.mark.parametrize("version", OLD)
def test_a_program_on_an_old_python_uses_dibs_inside_its_job(bench: Bench, version: str) -> None:
    (bench.folder / "train.py").write_text(PROGRAM)
    python = interpreter(version)
    assert python is not None
    job = bench.add([python, "train.py"], gpus=0, env={"PYTHONPATH": str(SOURCE)})
    wait_for(lambda: (bench.folder / "marker").exists() or bench.job(job)["exit_code"] is not None)
    bench.cancel(job)
    assert bench.until(job)["state"] == "cancelled", bench.log(job)
    first, leased, held, refused, *stop = bench.log(job).splitlines()
    assert first.startswith("True {}")
    assert leased.startswith("leased [")
    assert leased.endswith("True")
    assert held == "held True"
    assert f"dibs.submit needs Python 3.11 or newer, this is {version}" in refused
    assert stop == ["saved", "left 30.0"]
    assert bench.job(job)["report"] == {"loss": 0.5}
    assert (bench.home / "jobs" / str(job) / "checkpoint" / "model").read_text() == "weights"
    wait_for(lambda: len(bench.free_devices()), lambda free: free == 4)


@pytest.mark.parametrize("version", OLD)
def test_an_old_pip_installs_the_wheel_without_any_dependency(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    assert python is not None
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([python, "-m", "venv", str(tmp_path / "env")], check=True)
    own = tmp_path / "env" / "bin"
    pip = [own / "python", "-m", "pip", "install", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    program = "import dibs; print(dibs.report(loss=1), dibs.lease, dibs.on_stop)"
    told = subprocess.run([own / "python", "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert told.stdout.startswith("False <class 'dibs.python_api.lease_command.lease'>")
    refused = subprocess.run([own / "dibs", "status"], check=False, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"dibs: the command needs Python 3.11 or newer, this is {version}")


def test_the_metadata_lets_old_pythons_in_and_asks_nothing_of_them() -> None:
    assert release.PYTHONS["dibs"] == ">=3.9"
    text = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.9"' in text


# -- by their source ------------------------------------------------------------------------------------------------


def path_of(module: str) -> Path:
    """Return the file of a module or package of ours."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def is_for_old(node: ast.Try) -> bool:
    """Tell whether an import is tried that an old Python need not have."""
    is_import = all(isinstance(line, ast.Import | ast.ImportFrom) for line in node.body)
    return is_import and any(
        each.type is not None and ast.unparse(each.type) == "ImportError" for each in node.handlers
    )


def run_time(tree: ast.Module) -> list[ast.AST]:
    """Return what runs on an old Python: no annotations, nothing for type checkers alone or for newer Pythons."""
    found: list[ast.AST] = []
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            left += node.orelse
            continue
        if isinstance(node, ast.Try) and is_for_old(node):
            left += [*node.handlers, *node.orelse, *node.finalbody]
            continue
        found.append(node)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns"):
                left += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST)]
    return found


def imported(tree: ast.Module) -> set[str]:
    """Return the modules of ours that a module imports."""
    names: set[str] = set()
    for node in run_time(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.split(".")[0] == "dibs" and path_of(name).exists()}


def closure() -> list[str]:
    """Return all modules that the names for programs inside jobs load on an old Python."""
    homes = {**dibs._HOMES, **dibs._OLD_HOMES}
    return loaded({f"dibs.{homes[name] or name}" for name in dibs.INSIDE_JOBS})


def loaded(left: set[str]) -> list[str]:
    """Return these modules and all that they load."""
    found: set[str] = set()
    while left:
        name = left.pop()
        found.add(name)
        parents = {name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)}
        left |= (imported(ast.parse(path_of(name).read_text())) | parents) - found
    return sorted(found)


#: What came with Python 3.10 or 3.11, as far as this code would be likely to use it.
NEW = {
    *(
        "datetime.UTC",
        "enum.StrEnum",
        "itertools.pairwise",
        "os.eventfd",
        "tomllib",
        "types.NoneType",
        "types.UnionType",
    ),
    *(f"typing.{name}" for name in ("Self", "Unpack", "ParamSpec", "Concatenate", "TypeAlias", "TypeGuard", "Never")),
    *("typing.assert_never", "typing.reveal_type", "typing.NotRequired", "typing.LiteralString", "contextlib.chdir"),
    *("asyncio.timeout", "asyncio.TaskGroup", "asyncio.Runner", "inspect.get_annotations", "exceptions.ExceptionGroup"),
}
#: Keyword arguments that came with them: of dataclasses, `zip`, and so on.
NEW_KEYWORDS = {"slots", "kw_only", "strict", "process_group", "dir_fd_ok"}
TYPES = {"int", "float", "str", "bytes", "bool", "dict", "list", "tuple", "set", "object", "Callable", "Mapping"}


def is_type(node: ast.expr) -> bool:
    """Tell whether an operand of `|` is a type."""
    base = node.value if isinstance(node, ast.Subscript) else node
    return ast.unparse(base) in TYPES or (isinstance(base, ast.Constant) and base.value is None)


def newer(tree: ast.Module) -> list[str]:
    """Return what an old Python would not have."""
    faults: list[str] = []
    is_lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    for node in run_time(tree) if is_lazy else ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            faults += [alias.name for alias in node.names if f"{node.module}.{alias.name}" in NEW]
        elif isinstance(node, ast.Import):
            faults += [alias.name for alias in node.names if alias.name in NEW]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in NEW:
            faults.append(ast.unparse(node))
        elif isinstance(node, ast.keyword) and node.arg in NEW_KEYWORDS:
            faults.append(f"{node.arg}=")
        elif (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.BitOr)
            and (is_type(node.left) or is_type(node.right))
        ):
            faults.append(ast.unparse(node))
    return faults


def test_the_check_sees_what_is_new() -> None:
    text = "from typing import Self\nimport tomllib, os\nos.eventfd()\nX = int | None\nzip(strict=True)\n"
    annotated = "def f(a: int | None): ..."
    assert len(newer(ast.parse(text + annotated))) == 6
    lazy = "from __future__ import annotations\n"
    assert newer(ast.parse(lazy + annotated)) == []
    tried = "try:\n    import tomllib\nexcept {}:\n    pass"
    assert newer(ast.parse(lazy + tried.format("ImportError"))) == []
    assert newer(ast.parse(lazy + tried.format("OSError"))) == ["tomllib"]


@pytest.mark.parametrize("module", closure())
def test_a_module_of_jobs_has_nothing_that_python_3_9_lacks(module: str) -> None:
    text = path_of(module).read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    assert newer(tree) == []
    if any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree)) and module != "dibs":
        assert "Python 3.9." in (ast.get_docstring(tree) or "").splitlines()


@pytest.mark.parametrize("module", loaded({"dibs.runner.guardian"}))
def test_a_module_for_the_nodes_of_clusters_has_nothing_that_python_3_9_lacks(module: str) -> None:
    """Red Hat 9 and its kin have 3.9; `engines.node_code` copies these modules there."""
    assert newer(ast.parse(path_of(module).read_text(), feature_version=(3, 9))) == []


#: As a command, the end that its record names.
ENDS = {"exit 7": ("exited", 7, 0), "kill -9 $$": ("signalled", 0, 9), "sleep 600": ("signalled", 0, 15)}


@pytest.mark.parametrize("version", OLD)
def test_a_node_with_an_old_python_runs_jobs(tmp_path: Path, version: str) -> None:
    """As the setting `python` of an engine: without and with the bundle of modules that the first start makes."""
    python = interpreter(version)
    assert python is not None
    code = node_code.install(tmp_path / "shared")
    seen = {}
    for number, command in enumerate(ENDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        argv = (b"/bin/sh", b"-c", b"exec " * command.startswith("sleep") + command.encode())
        spec = records.Spec(
            number, 1, 1, str(folder), argv, (b"PATH=/usr/bin:/bin",), b"/", bytes(folder / "log"), engine="lab",
            time_limit_s=1.0 if command.startswith("sleep") else None,
        )  # fmt: skip
        (folder / "spec.1").write_bytes(records.pack(spec))
        done = subprocess.run(node_code.argv(python, code, str(folder / "spec.1")), capture_output=True, check=True)
        final = records.read_final(str(folder), 1)
        assert final is not None, done.stderr
        seen[command] = (final.kind, final.code, final.signal)
    assert seen == ENDS
    assert len(list(code.glob("*.bundle"))) == 1
