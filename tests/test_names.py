"""Names in backticks are correct: what looks like our name in docstrings, comments and documents exists."""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dibs.system import settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCES = (ROOT / "src", ROOT / "compat" / "src", ROOT / "tests" / "support")
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "compat").glob("*.md")])
PROGRAMS = sorted(path for source in SOURCES[:2] for path in source.rglob("*.py"))

#: Suffixes of names with a dot that are files.
SUFFIXES = ("S", "cfg", "db", "esy", "js", "json", "lock", "log", "md", "out", "py", "sql", "toml", "whl", "yaml")
#: Names with a dot that look like ours: an attribute of a value in an example, a function of the page.
OTHERS = {
    "jobActions.cancelling",
    "bench.cli",
    "bench.fresh",
    "bench.start",
    "gpus.environ",
    "model.lr",
    "number.NAME",
    "scheduler.report",
    "turn.effects",
}
#: Words in docstrings that are names of users' things, of HTTP, or of other programs.
WORDS = {
    *("DIBS_PARAMS", "Expect", "a100", "after", "bad", "exclude", "halt", "linspace", "listen", "logspace", "loss"),
    *("nice", "on", "randint", "script", "states", "submit", "when", "__len__"),
    *(setting.name for setting in settings.SETTINGS),
}
#: Folders at the top of the repository: a path that begins with one of them is ours.
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} | {".github"}

TICKED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
WORD = re.compile(r"[A-Za-z_]\w*")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?")


def file_id(path: Path) -> str:
    """Return the name of a file in test ids."""
    return str(path.relative_to(ROOT))


def _module(source: Path, path: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


#: Every module of ours, and the test helpers, with their packages.
MODULES = sorted(
    _module(source, path)
    for source in SOURCES
    for path in source.rglob("*.py")
    if "programs" not in path.parts and "fakes" not in path.parts
)


@cache
def modules_named(name: str) -> list[str]:
    """Return the modules whose path ends with these words."""
    return [module for module in MODULES if f".{module}".endswith(f".{name}")]


@cache
def resolves(name: str) -> bool:
    """Return whether `local.Local.start` is something in one of our modules, or a name of the standard library.

    A module may be named with its packages (`engines.local`) or without; so may a class (`Store.record`).
    """
    parts = name.split(".")
    ours = [module for count in range(len(parts), 0, -1) for module in modules_named(".".join(parts[:count]))]
    return any(_has(module, parts) for module in ours) or parts[0] in sys.stdlib_module_names or _is_member(parts)


def _has(module: str, parts: list[str]) -> bool:
    found: object = importlib.import_module(module)
    for count in range(len(parts), 0, -1):
        if f".{module}".endswith("." + ".".join(parts[:count])):
            return _reaches(found, parts[count:])
    return False


def _reaches(found: object, parts: list[str]) -> bool:
    for part in parts:
        fields = {*getattr(found, "__annotations__", ()), *getattr(found, "__slots__", ())}
        if part in fields:
            return True
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@cache
def _classes() -> dict[str, list[tuple[str, str]]]:
    """Return where every class of ours is defined."""
    found: dict[str, list[tuple[str, str]]] = {}
    for source in SOURCES[:2]:
        for path in source.rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append((_module(source, path), node.name))
    return found


def _is_member(parts: list[str]) -> bool:
    """Return whether it is a member of a builtin (`str.format`) or of a class of ours (`Store.record`)."""
    if hasattr(builtins, parts[0]):
        return _reaches(getattr(builtins, parts[0]), parts[1:])
    places = _classes().get(parts[0], [])
    return any(_reaches(getattr(importlib.import_module(module), name), parts[1:]) for module, name in places)


def exists(path: str, page: Path) -> bool:
    """Return whether a path leads to a file or folder, from the top, from a package, or from the naming file."""
    starts = (
        ROOT,
        page.parent,
        ROOT / "src" / "dibs",
        ROOT / "compat" / "src",
        ROOT / "compat" / "src" / "dibs_compat",
    )
    starts += (ROOT / "web", ROOT / "src" / "dibs" / "store", ROOT / "tests")
    return any((start / path).exists() or (start / f"{path}.py").exists() for start in starts)


def is_own_path(text: str) -> bool:
    """Return whether a text claims to be a file of this repository; `tests/PACKAGE` is a pattern."""
    first = text.partition("/")[0]
    is_pattern = first == "." or re.search(r"[A-Z]{4}", text.removesuffix(".md")) is not None
    return bool(PATH.fullmatch(text)) and not is_pattern and (first in FOLDERS or (ROOT / "src/dibs" / first).is_dir())


def without_code(text: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def dotted_names(text: str) -> list[str]:
    """Return the dotted names in backticks, each once."""
    found = [name for name in dict.fromkeys(TICKED.findall(text)) if NAME.fullmatch(name)]
    return [name for name in found if name.rpartition(".")[2] not in SUFFIXES and name not in OTHERS]


def broken_paths(text: str, page: Path) -> list[str]:
    """Return the paths in backticks that lead nowhere."""
    return [path for path in dict.fromkeys(TICKED.findall(text)) if is_own_path(path) and not exists(path, page)]


def prose(path: Path) -> Iterator[str]:
    """Yield the docstrings and comments of a Python file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    yield from (token.string for token in _tokens(path) if token.type == tokenize.COMMENT)


def _tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(path.read_text()).readline)


#: The kinds of token that hold text; since Python 3.12 that of an f-string is one of its own.
TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def _words_of(path: Path) -> set[str]:
    """Return every name in the code of a file, and every word in its texts that is no docstring."""
    found: set[str] = set()
    for token in _tokens(path):
        if token.type == tokenize.NAME:
            found.add(token.string)
        elif token.type in TEXTS and not token.string.lstrip("rbf").startswith('"""'):
            found.update(WORD.findall(token.string))
    return found


def _is_known(word: str) -> bool:
    is_pythons = word in sys.stdlib_module_names or hasattr(builtins, word) or keyword.iskeyword(word)
    return bool(modules_named(word)) or is_pythons or word in WORDS or hasattr(object, word)


@pytest.mark.parametrize("path", PROGRAMS, ids=file_id)
def test_names_in_docstrings_and_comments_exist(path: Path) -> None:
    """A bare name is a module or stands in the same file; a name of another file is written `module.name`."""
    text = "\n".join(prose(path))
    bare = {word for word in TICKED.findall(text) if WORD.fullmatch(word) and not _is_known(word)}
    missing = [name for name in dotted_names(text) if not resolves(name)]
    assert not missing + broken_paths(text, path) + sorted(bare - _words_of(path))


@pytest.mark.parametrize("path", PAGES, ids=file_id)
def test_names_of_ours_in_a_page_exist(path: Path) -> None:
    """Only names that begin with one of our modules are ours."""
    text = without_code(path.read_text())
    ours = [name for name in dotted_names(text) if modules_named(name.partition(".")[0])]
    missing = [name for name in ours if not resolves(name)]
    is_history = path.parent.name == "decisions" or path.name == "CHANGELOG.md"
    assert not missing + ([] if is_history else broken_paths(text, path))


@pytest.mark.parametrize("name", dotted_names(without_code((DOCS / "walk.md").read_text())))
def test_every_function_in_the_walk_exists(name: str) -> None:
    assert resolves(name)


def test_the_walk_names_the_functions_it_visits() -> None:
    assert len(dotted_names(without_code((DOCS / "walk.md").read_text()))) > 40


@pytest.mark.parametrize("name", ["planner.nothing", "nothing.plan", "Store.nothing", "leases.tickets.nothing"])
def test_a_missing_name_is_detected(name: str) -> None:
    assert not resolves(name)
