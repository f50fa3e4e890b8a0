"""The fenced blocks of a page, and how each is executed.

    ```console          commands after `$ ` (`> ` continues), and their output; a line `...` matches any lines
    ```sh               commands alone: each must succeed
    ```python train.py  a file: it is written where the commands run
    ```... norun: why   shown, but not run here
    <!-- unseen: CMD -->   typed without being shown
    <!-- later -->         time passes: running jobs end

Pure: `typist` does the typing.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

#: Languages whose blocks are commands.
TYPED = ("console", "sh")
#: Text that varies between two runs of the same commands, and its replacement for comparing.
VARYING = (
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r"), ""),
    (re.compile(r"\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?s\b"), "1s"),
    (re.compile(r"\b(pid|shell|process)\s+\d+"), r"\1 1"),
    (re.compile(r"(?<=PORT=)\d{4,5}\b"), "29500"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC|[+-]\d\d:\d\d)?"), "now"),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "1.2.3"),
)
#: Longest line of output that is written into a page; longer ones are wrapped between words.
WIDTH = 100

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$|^<!-- (?P<note>[^\n]*) -->$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block, or one instruction to the typist in a comment."""

    line: int
    language: str
    #: Its file name, for blocks that are files.
    file: str
    #: Why it is not run; empty if it is.
    norun: str
    text: str
    #: Where the text is in the page, to write a new one.
    span: tuple[int, int]

    @property
    def is_typed(self) -> bool:
        """Return whether it contains commands to type."""
        return self.language in TYPED and not self.norun


@dataclass(frozen=True)
class Step:
    """A command and its output according to the page; None where the page shows none."""

    line: int
    command: str
    expected: str | None


def of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = page.read_text()
    return [_block(text, found) for found in FENCE.finditer(text)]


def _block(text: str, found: re.Match[str]) -> Block:
    line = text.count("\n", 0, found.start()) + 1
    if found["note"] is not None:
        return Block(line, "comment", "", "", found["note"], found.span("note"))
    words, _, why = found["info"].partition("norun:")
    language, _, file = words.strip().partition(" ")
    return Block(line, language, file.strip(), why.strip(), found["text"], found.span("text"))


def steps(block: Block) -> list[Step]:
    """Return the commands to type, in order."""
    lines = list(enumerate(block.text.splitlines(), block.line + 1))
    return _shown(lines) if block.language == "console" else _bare(lines)


def _shown(lines: list[tuple[int, str]]) -> list[Step]:
    found: list[Step] = []
    for number, line in lines:
        if line.startswith("$ "):
            found.append(Step(number, line[2:], ""))
            continue
        if not found:
            raise ValueError(f"line {number}: expected a command after `$ `, got {line!r}")
        last = found[-1]
        if line.startswith("> ") and not last.expected:
            found[-1] = replace(last, command=f"{last.command}\n{line[2:]}")
        else:
            found[-1] = replace(last, expected=f"{last.expected}{line}\n")
    return found


def _bare(lines: list[tuple[int, str]]) -> list[Step]:
    found: list[Step] = []
    goes_on = False
    for number, line in lines:
        if goes_on:
            found[-1] = replace(found[-1], command=f"{found[-1].command}\n{line}")
        elif line.strip() and not line.startswith("#"):
            found.append(Step(number, line, None))
        goes_on = line.endswith("\\")
    return found


def is_as_expected(expected: str, seen: str) -> bool:
    """Return whether the output equals that of the page, except for variable parts, blanks and line ends."""
    parts = [re.escape(_bones(part)) for part in re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE)]
    return re.fullmatch(".*?".join(parts), _bones(seen), flags=re.DOTALL) is not None


def _bones(text: str) -> str:
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return "".join(text.split())


def with_outputs(block: Block, seen: list[str]) -> str:
    """Return the text of a block with the real output of its commands."""
    lines = []
    for step, output in zip(steps(block), seen, strict=True):
        lines += [f"{mark} {line}\n" for mark, line in zip("$" + ">" * 99, step.command.split("\n"), strict=False)]
        lines += [f"{_folded(line)}\n" for line in output.splitlines()]
    return "".join(lines)


def _folded(line: str) -> str:
    return textwrap.fill(line, WIDTH, break_on_hyphens=False, break_long_words=False) if len(line) > WIDTH else line
