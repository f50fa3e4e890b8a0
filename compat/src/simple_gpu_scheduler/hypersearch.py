"""`simple_hypersearch`: commands of a parameter grid, one a line, in the order in which the old tool printed them.

The pattern is one of Python's `str.format`; values are texts. New is `{job_index}`, which counts the lines from 0
unless a parameter has that name. Lines come at once and are not kept: in grid order memory does not grow with the grid.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import string
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dibs.sweeps import orders
from dibs.sweeps.sequences import Product

__all__ = ["HyperparameterSearch", "build_hyperparameter_search", "generate_commands"]

#: Points up to which the shuffled order is that of `random.shuffle`. Beyond it takes a minute before the first line.
SHUFFLED_AS_EVER = 10_000_000
#: Lines that are written at once, after the first one.
LINES = 512
INDEX = "job_index"

EPILOG = """\
Usage example:
    simple_hypersearch "my_program --param1 {param1} --param2 {param2}" --sampling-mode grid -p param1 0 1 -p param2 2 3
    prints
    my_program --param1 0 --param2 2
    my_program --param1 0 --param2 3
    my_program --param1 1 --param2 2
    my_program --param1 1 --param2 3
"""


@dataclass(eq=False)
class HyperparameterSearch:
    """A grid of parameters, and the pattern of the command that tries one point of it."""

    command_pattern: str
    sampling_mode: str
    n_samples: int | None
    parameters: Mapping[str, Sequence[object]]

    def get_commands(self) -> list[str]:
        """Return all commands; KeyError or ValueError if the pattern does not fit. `random.seed` decides the order."""
        return list(self.commands())

    def commands(self) -> Iterator[str]:
        """Yield the commands. What is wrong with the pattern is raised before the first of them."""
        columns = list(self.parameters.values())
        self._try(columns)
        grid = Product(columns)
        is_shuffled = self.sampling_mode == "shuffled_grid"
        every = map(grid.at, _shuffled(grid.size)) if is_shuffled else itertools.product(*columns)
        rows = itertools.islice(every, len(range(grid.size)[: self.n_samples]))
        pattern, uses_index = _numbered(self.command_pattern, list(self.parameters))
        if uses_index:
            return itertools.starmap(pattern.format, ((*row, index) for index, row in enumerate(rows)))
        return itertools.starmap(pattern.format, rows)

    def _try(self, columns: list[Sequence[object]]) -> None:
        """Fill in the pattern for one point, or for all of them if a value may be the one that breaks it."""
        for row in itertools.product(*columns):
            self.command_pattern.format_map({INDEX: 0, **dict(zip(self.parameters, row, strict=True))})
            if not _depends_on_values(self.command_pattern):
                return


def _shuffled(size: int) -> Iterable[int]:
    if size <= SHUFFLED_AS_EVER:
        return orders.shuffled(size, random.getrandbits)
    return map(orders.ScatteredOrder(size, random.getrandbits(64)).at, range(size))


def _depends_on_values(pattern: str) -> bool:
    """Tell whether the pattern looks into values (`{a[3]}`, `{a:{b}}`), so that only some of them may break it."""
    return any(name and ("{" in (form or "") or "[" in name) for _, name, form, _ in string.Formatter().parse(pattern))


def _numbered(pattern: str, names: list[str]) -> tuple[str, bool]:
    """Return the pattern with numbers instead of names, which are filled in faster, and whether it counts lines."""
    places = {name: str(place) for place, name in enumerate(names)}
    if INDEX not in places:
        places[INDEX] = str(len(names))
    used: set[str] = set()
    found = _renamed(pattern, places, used)
    return found, INDEX in used and INDEX not in names


def _renamed(pattern: str, places: Mapping[str, str], used: set[str]) -> str:
    found = []
    for text, name, form, conversion in string.Formatter().parse(pattern):
        found.append(text.replace("{", "{{").replace("}", "}}"))
        if name is None:
            continue
        first = name.partition(".")[0].partition("[")[0]
        used.add(first)
        rest = name[len(first) :]
        spelled = f"!{conversion}" if conversion else ""
        spelled += f":{_renamed(form, places, used)}" if form else ""
        found.append(f"{{{places[first]}{rest}{spelled}}}")
    return "".join(found)


def build_hyperparameter_search() -> HyperparameterSearch:
    """Return the search that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="simple_hypersearch",
        description="Print the commands of a hyperparameter search: a pattern, filled in for every point of a grid.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command_pattern", help="the command, with {name} where a parameter goes, {job_index} for a count"
    )
    parser.add_argument(
        "--sampling-mode",
        choices=["shuffled_grid", "grid"],
        default="shuffled_grid",
        help="the order: as the grid has it, or shuffled (default)",
    )
    parser.add_argument("--n-samples", type=int, help="how many commands; all if not given")
    parser.add_argument("--seed", type=int, help="makes the shuffled order repeatable")
    parser.add_argument(
        "-p",
        "--parameter",
        nargs="+",
        action="append",
        metavar=("NAME", "VALUES"),
        help="a parameter and its values, such as -p lr 0.01 0.001",
    )
    asked = parser.parse_args()
    if not asked.parameter:
        parser.error("expected at least one parameter, such as -p lr 0.01 0.001")
    parameters = {name: values for name, *values in asked.parameter}
    for name, values in parameters.items():
        if not values:
            parser.error(f"argument -p/--parameter: expected values for {name}, got none")
    random.seed(asked.seed)
    return HyperparameterSearch(asked.command_pattern, asked.sampling_mode, asked.n_samples, parameters)


def generate_commands() -> int:
    """Print all commands: the program itself. A pattern that is none of Python's is a ValueError, as it always was."""
    # Who closes the pipe early has seen enough.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    search = build_hyperparameter_search()
    try:
        commands = search.commands()
    except KeyError as error:
        known = ", ".join(f"{{{name}}}" for name in search.parameters)
        print(f"simple_hypersearch: unknown {{{error.args[0]}}} in the pattern; there is {known}", file=sys.stderr)
        return 1
    except (AttributeError, IndexError, TypeError) as error:
        print(f"simple_hypersearch: the pattern does not fit its values: {error}", file=sys.stderr)
        return 1
    if sys.stdout is None:
        # It is closed: nobody reads them.
        return 0
    try:
        _print(commands)
    except OSError as error:
        print(f"simple_hypersearch: cannot write the commands: {error.strerror}", file=sys.stderr)
        # Python would write the rest again when it ends, and report the error a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 0


def _print(commands: Iterator[str]) -> None:
    """Print the first command at once, because somebody may wait for it, and the others in blocks."""
    write = sys.stdout.write
    for first in itertools.islice(commands, 1):
        write(f"{first}\n")
        sys.stdout.flush()
    while lines := list(itertools.islice(commands, LINES)):
        lines.append("")
        write("\n".join(lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(generate_commands())
