"""Reading the old command lines: their options and error texts, with help as the old tool prints it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

from dibs_compat.schedule.state_file import MOST_GPUS


class Parser(argparse.ArgumentParser):
    """A parser with a usage and a help that do not change with the version of Python or the width of a terminal."""

    def __init__(self, usage: Sequence[str], prose: str, more: str) -> None:
        super().__init__(prog=os.path.basename(sys.argv[0]))
        self._lines = usage
        self._prose = prose
        self._more = more

    def format_usage(self) -> str:
        """Return the usage, indented under its first option."""
        head = f"usage: {self.prog} "
        return head + f"\n{' ' * len(head)}".join(self._lines) + "\n"

    def format_help(self) -> str:
        """Return usage and explanation."""
        return f"{self.format_usage()}\n{self._prose}"

    def print_help(self, file: Any = None) -> None:
        """Print the old help, and at a terminal what is new."""
        super().print_help(file)
        if sys.stderr.isatty():
            print(f"\n{self._more}", file=sys.stderr)


def is_number(word: str) -> bool:
    """Tell whether a word is a whole number."""
    return word.removeprefix("-").isdecimal()


def check_count(parser: Parser, option: str, count: int) -> None:
    """Refuse a number of GPUs that cannot be."""
    if not 0 <= count <= MOST_GPUS:
        parser.error(f"argument {option}: expected a number of GPUs from 0 to {MOST_GPUS}, got {count}")


def numbers_last(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Return the words with options that take several numbers behind the rest, where they swallow no task."""
    left, kept, moved = list(words), [], []
    while left and left[0] != "--":
        word = left.pop(0)
        if word in names and left and is_number(left[0]):
            moved.append(word)
            while left and is_number(left[0]):
                moved.append(left.pop(0))
        else:
            kept.append(word)
    return [*kept, *moved, *left]
