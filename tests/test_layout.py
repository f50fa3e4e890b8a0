"""The layout of the source: small folders, modules and classes named by nouns."""

from __future__ import annotations

import ast
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


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_modules_and_classes_are_named_by_nouns(path: Path) -> None:
    classes = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    names = [*([] if module_id(path) in OLD_PATHS else [path.stem]), *(name.strip("_") for name in classes)]
    assert [name for name in names if name.endswith("ing") and name.lower() not in NOUNS] == []


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_no_module_class_or_function_has_a_retired_name(path: Path) -> None:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    defined = {
        node.name.lower().strip("_") for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)
    }
    assert (defined | {path.stem}) & RETIRED == set()
