"""The layout of the source: small folders, modules and classes named by nouns."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dibs"
FOLDERS = sorted({path.parent for path in SOURCE.rglob("*.py")})
OTHERS = [*ROOT.glob("compat/src/dibs_compat/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
MODULES = sorted([*SOURCE.rglob("*.py"), *OTHERS])

#: Folders with one file for each address or verb, which may be larger than the others.
WIDE = {"http_api", "cli", "cli/verbs"}
#: Nouns and names of other tools that happen to end in -ing.
NOUNS = {
    *("everything", "finding", "missing", "nothing", "pickling", "quoting", "ranking", "reading"),
    *("scheduling", "setting", "string"),
}
#: Queued jobs of release 0.1 name this path.
OLD_PATHS = {"compat/src/dibs_compat/gpupeasy/wrapping.py"}
#: Former names of modules, classes and functions.
RETIRED = {
    *("standing", "attending", "looking", "wish", "wished", "parcel"),
    *("caring", "telling", "knowing", "belonging", "informants"),
}


def folder_name(path: Path) -> str:
    """Return `cli/verbs` for that folder."""
    return str(path.relative_to(SOURCE))


def module_id(path: Path) -> str:
    """Return the name of a module in test ids."""
    return str(path.relative_to(ROOT))


def test_the_top_has_few_packages_and_modules() -> None:
    folders = [path for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert len(folders) < 20
    assert len(list(SOURCE.glob("*.py"))) <= 5


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_name)
def test_a_folder_has_few_files(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= (40 if folder_name(folder) in WIDE else 20)


@pytest.mark.parametrize("folder", FOLDERS[1:], ids=folder_name)
def test_a_package_has_a_docstring_and_nothing_else(folder: Path) -> None:
    tree = ast.parse((folder / "__init__.py").read_text())
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


@cache
def definitions(path: Path) -> tuple[list[str], list[str]]:
    """Return the names of the classes and those of the functions that a module defines."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    return classes, [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_modules_and_classes_are_named_by_nouns(path: Path) -> None:
    classes, _ = definitions(path)
    names = [*([] if module_id(path) in OLD_PATHS else [path.stem]), *(name.strip("_") for name in classes)]
    assert [name for name in names if name.endswith("ing") and name.lower() not in NOUNS] == []


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_no_module_class_or_function_has_a_retired_name(path: Path) -> None:
    classes, functions = definitions(path)
    defined = {name.lower().strip("_") for name in (*classes, *functions)}
    assert (defined | {path.stem}) & RETIRED == set()


def test_the_name_of_a_function_says_what_it_returns() -> None:
    """A function is called `x_of_y` instead of `of`."""
    assert [module_id(path) for path in MODULES if "\ndef of(" in path.read_text()] == []


#: Folders with one file for each verb or address, however small.
BY_NAME = {"cli/verbs", "cli/verbs/lab", "http_api"}
#: A module with one importer and fewer lines belongs into that importer.
FEWEST_LINES = 60


def imported_names(tree: ast.Module) -> set[str]:
    """Return the full names of what a module imports: modules, and names in modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_a_small_module_with_one_importer_says_why_it_stands_apart() -> None:
    texts = {path: path.read_text() for path in SOURCE.rglob("*.py") if path.name != "__init__.py"}
    imports = {path: imported_names(ast.parse(text)) for path, text in texts.items()}
    alone = []
    for path, text in texts.items():
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        importers = [other for other, names in imports.items() if other != path and name in names]
        is_small = len(importers) == 1 and len(text.splitlines()) < FEWEST_LINES
        if is_small and folder_name(path.parent) not in BY_NAME:
            alone += [] if "\nApart: " in (ast.get_docstring(ast.parse(text)) or "") else [module_id(path)]
    assert alone == []
