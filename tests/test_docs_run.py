"""Every command of the documents is executed, in order, and does what the page says; exceptions are listed here."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import blocks
import typist
from dibs.cli import main as cli
from dibs.errors import UserError
from dibs.submission import options

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]

#: Blocks that are only shown: drawings, parts of files, and the man pages of `control.md`.
SHOWN = ("text", "toml", "yaml", "python", "bash")
#: Every block of commands that is not run, with the reason given in its fence. Nothing is left out by accident.
NOT_RUN = {
    "README.md": {"installs": 2, "an overview, typed one by one below": 1},
    "docs/admin.md": {"as root": 4},
    "docs/containers.md": {"needs docker, podman and apptainer": 1},
    "docs/engines.md": {"needs a cluster": 4},
    "docs/environments.md": {"needs conda": 1, "needs modules": 1},
    "docs/first-hour.md": {"installs": 1},
    "docs/gpupeasy.md": {"they serve until Ctrl-C": 1, "needs the server above": 1},
    "docs/hydra.md": {"installs": 1},
    "docs/install.md": {"installs": 4, "needs root": 2, "ends your jobs": 1},
    "docs/lab-rules.md": {"times depend on the day": 1, "needs a month of use": 1},
    "docs/nfs.md": {"needs two machines": 1},
    "docs/notebooks.md": {"serves until Ctrl-C": 1},
    "docs/performance.md": {"takes a quarter of an hour": 1},
    "docs/ray.md": {"needs two servers": 5},
    "docs/pipe.md": {"never ends": 1},
    "docs/recipes.md": {
        "needs vllm": 1,
        "needs tensorboard, and serves until it is cancelled": 1,
        "needs an account of wandb": 1,
        "serves until Ctrl-C": 1,
        "needs a notebook": 1,
        "waits until a debugger connects": 1,
        "needs docker and apptainer": 1,
    },
    "docs/search.md": {"needs minutes of training": 1},
    "docs/security.md": {"needs a container": 1},
    "docs/sharing.md": {"needs two users": 1},
    "docs/submitit.md": {"installs": 1},
    "docs/web.md": {
        "the link is another one each time": 1,
        "needs an ssh server": 1,
        "needs jq, and a page that was opened before": 1,
    },
}

INLINE = re.compile(r"(?<!`)`([^`\n]*\bdibs [^`\n]*)`(?!`)")


def page_id(path: Path) -> str:
    """Return the name of a page in test ids."""
    return str(path.relative_to(ROOT))


def is_typed(page: Path) -> bool:
    """Return whether a page has commands that are run."""
    return any(block.is_typed for block in blocks.of(page))


@pytest.mark.parametrize("page", [page for page in PAGES if is_typed(page)], ids=page_id)
def test_the_commands_of_a_page_do_what_it_says(page: Path) -> None:
    """If it fails and the page is wrong: scripts/type-docs writes the real output."""
    troubles = [trouble for _, _, found in typist.read(page) for trouble in found]
    assert not troubles, "\n\n".join(troubles)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_command_is_in_a_block_that_is_only_shown(page: Path) -> None:
    for block in blocks.of(page):
        if block.language in (*blocks.TYPED, "comment"):
            continue
        assert block.language in SHOWN, f"line {block.line}: what is to be done with a block of {block.language}?"
        if not block.file:
            assert not re.search(r"^(\$ |dibs )", block.text, re.MULTILINE), f"line {block.line}: nobody types this"


def test_every_block_that_is_not_run_is_listed() -> None:
    found: dict[str, dict[str, int]] = {}
    for page in PAGES:
        if reasons := Counter(block.norun for block in blocks.of(page) if block.norun):
            found[page_id(page)] = dict(reasons)
    assert found == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_in_a_sentence_or_a_table_is_valid(page: Path) -> None:
    """Its verb and its options exist and accept such values."""
    wrong = [f"{words}: {error}" for words in commands(page) for error in refusal(words)]
    assert not wrong


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        ("job 1 runs for 3s\n", "job 1 runs for 1m12s\r\n"),
        ("ada job 1 (pid 12) 3s\n", "ada job 1 (pid\n 4711) 9s\n"),
        ("first\n...\nlast\n", "first\nsecond\nthird\nlast\n"),
        ("DIBS_PORT=29500\n", "DIBS_PORT=51343\n"),
    ],
)
def test_variable_parts_of_an_output_are_ignored(expected: str, seen: str) -> None:
    assert blocks.is_as_expected(expected, seen)


@pytest.mark.parametrize(
    ("expected", "seen"),
    [("job 1\n", "job 2\n"), ("", "dibs: no\n"), ("first\n...\nlast\n", "first\nsecond\n"), ("x 4G\n", "x 5G\n")],
)
def test_any_other_difference_is_found(expected: str, seen: str) -> None:
    assert not blocks.is_as_expected(expected, seen)


PAGE = """
```python say.py
print("hello")
```
<!-- unseen: X=5 -->
```console
$ python say.py
hello
$ echo $X
6
$ (exit 3)
$ echo $?
3
$ (exit 4)
```
```sh
cd ..    # one shell for the whole page
test -d project
false
```
```sh norun: why not
exit 1
```
"""


def test_a_wrong_page_is_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    troubles = [trouble for _, _, found in typist.read(page) for trouble in found]
    assert [trouble.partition(" ended")[0].partition(" shows")[0] for trouble in troubles] == [
        "line 9: `echo $X`",
        "line 14: `(exit 4)`",
        "line 19: `false`",
    ]
    typist.write(page)
    assert page.read_text() == PAGE.replace("6\n", "5\n")


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of every `dibs` command between backquotes in a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for span in INLINE.findall(text):
        lexer = shlex.shlex(span.replace("\\|", "|"), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        last = ""
        for word in (*lexer, ";"):
            if word == "dibs" and last != "install":
                words = ["dibs"]
            elif set(word) <= set("();<>|&"):
                if words:
                    yield words[1:]
                words = []
            elif words:
                words.append(word)
            last = word


def refusal(words: list[str]) -> list[str]:
    """Return why the command line would refuse these arguments, if it would."""
    try:
        front, name, rest = cli.split(words)
        verb = cli.load(name)
        options.parse(name, verb.OPTIONS, [*front, *rest], takes_command=cli.takes_command(verb))
    except UserError as error:
        return [error.line()]
    return []
