"""Tables of results: their columns, and their formats for users, spreadsheets and programs.

Rows are iterated twice, to measure widths and to print; they are never all in memory.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from dibs.cli import screen
from dibs.cli.screen import Column, Screen
from dibs.model.jobs import Cause
from dibs.sweeps import values
from dibs.sweeps.ranking import Group, Run

STOPPED_EARLY = "stopped early"
#: Significant digits of a number for users; programs get all digits.
DIGITS = 6

Row = Sequence[Any]


@dataclass(frozen=True)
class Table:
    """A table: titles, rows that can be iterated again, and which columns are numbers."""

    titles: list[str]
    rows: Callable[[], Iterable[Row]]
    is_number: list[bool]


def of_runs(runs: Iterable[Run], metric: str | None) -> Table:
    """Return one row per run: its job, parameters, state and numbers, with the metric first.

    The state of a run that a rule of its sweep stopped is "stopped early".
    """
    parameters: dict[str, bool] = {}
    known: dict[str, None] = {}
    for run in runs:
        for name, value in run.params.items():
            parameters[name] = parameters.get(name, True) and _is_number(value)
        known.update(dict.fromkeys(run.numbers))
    numbers = _metric_first(known, metric)

    def rows() -> Iterator[Row]:
        for run in runs:
            named = (_or_empty(run.params.get(name)) for name in parameters)
            state = STOPPED_EARLY if run.cause == Cause.EARLY.value else run.state
            yield [_or_empty(run.job), *named, state, *(run.numbers.get(name, "") for name in numbers)]

    is_number = [True, *parameters.values(), False, *(True for _ in numbers)]
    return Table(["job", *parameters, "state", *numbers], rows, is_number)


def of_trials(runs: Iterable[Run], metric: str | None, winner: int | None, *, is_exact: bool) -> Table:
    """Return the table of a search: that of its runs with the number of the trial, and unless exact the best marked."""
    table = of_runs(runs, metric)

    def rows() -> Iterator[Row]:
        for run, row in zip(runs, table.rows(), strict=True):
            mark = [] if is_exact else ["*" if run.index == winner else ""]
            yield [run.index, *mark, *row]

    head = ["trial"] if is_exact else ["trial", "best"]
    return Table([*head, *table.titles], rows, [True, *([] if is_exact else [False]), *table.is_number])


def of_sweeps(sweeps: Iterable[dict[str, Any]]) -> Table:
    """Return one row per sweep."""
    rows = [
        [each["name"], each["project"], sum(each["states"].values()), _counts(each["states"]), each["command"]]
        for each in sweeps
    ]
    return Table(["name", "project", "runs", "states", "command"], lambda: rows, [False, False, True, False, False])


def _or_empty(value: Any) -> Any:
    return "" if value is None else value


def of_groups(groups: Sequence[Group], names: Iterable[str], metric: str | None, *, is_exact: bool) -> Table:
    """Return one row per group; with `is_exact`, mean and deviation have separate columns."""
    parameters = list(dict.fromkeys(name for group in groups for name in group.params))
    numbers = _metric_first(names, metric)
    rows = [
        [
            *(group.params.get(name, "") for name in parameters),
            # One word if the runs agree.
            next(iter(group.states)) if len(group.states) == 1 else _counts(group.states),
            len(group.jobs),
            *(cell for name in numbers for cell in _spread(group, name, is_exact=is_exact)),
        ]
        for group in groups
    ]
    titles = [f"{name}{end}" for name in numbers for end in ((" mean", " sd", " n") if is_exact else ("",))]
    is_number = [all(_is_number(group.params.get(name)) for group in groups) for name in parameters]
    return Table([*parameters, "state", "n", *titles], lambda: rows, [*is_number, False, True, *(True for _ in titles)])


def _spread(group: Group, name: str, *, is_exact: bool) -> list[Any]:
    spread = group.numbers.get(name)
    if is_exact:
        return [spread.mean, spread.deviation, spread.count] if spread else ["", "", 0]
    if spread is None:
        return [""]
    deviation = "" if spread.deviation is None else f" ± {spread.deviation:.2g}"
    few = "" if spread.count == len(group.jobs) else f" (n={spread.count})"
    return [f"{shown(spread.mean)}{deviation}{few}"]


def _counts(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in states.items())


def _metric_first(names: Iterable[str], metric: str | None) -> list[str]:
    return sorted(names, key=lambda name: name != metric)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def shown(cell: Any) -> str:
    """Return a value as readable text."""
    if cell is None:
        return "nan"
    return f"{cell:.{DIGITS}g}" if isinstance(cell, float) else screen.clean(values.write(cell))


def write_csv(what: Table, stream: TextIO) -> None:
    """Write comma-separated values: all digits, and everything except text as JSON."""
    import csv

    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(what.titles)
    writer.writerows(["nan" if cell is None else values.write(cell) for cell in row] for row in what.rows())


def document(head: dict[str, Any], name: str, items: Iterable[Any]) -> Iterator[str]:
    """Yield the lines of a JSON document as `screen.print_json` writes it; its last key has any number of items."""
    yield json.dumps(head, indent=2).removesuffix("\n}") + f',\n  "{name}": ['
    before = None
    for item in items:
        if before is not None:
            yield f"{before},"
        before = textwrap.indent(json.dumps(item, indent=2), "    ")
    if before is not None:
        yield before
    yield "  ]\n}"


def markdown(what: Table) -> Iterator[str]:
    """Yield the lines of a Markdown table."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    yield line(what.titles)
    yield line(["---:" if is_number else "---" for is_number in what.is_number])
    for row in what.rows():
        yield line([shown(cell) for cell in row])


def fitted(view: Screen, what: Table) -> Iterator[str]:
    """Yield the lines of a table that fits the width of the terminal."""
    columns = [
        Column(screen.clean(title).upper(), least=max(4, min(len(title), 10)), is_right=is_number)
        for title, is_number in zip(what.titles, what.is_number, strict=True)
    ]

    def lines() -> Iterator[list[str]]:
        yield [column.title for column in columns]
        for row in what.rows():
            yield [shown(cell) or screen.NOTHING for cell in row]

    widths = [0] * len(columns)
    for line in lines():
        widths = [max(width, len(cell)) for width, cell in zip(widths, line, strict=True)]
    if view.width is not None:
        widths = screen.fit(widths, columns, view.width)
    for line in lines():
        yield screen.aligned(columns, widths, [screen.middle(*pair) for pair in zip(line, widths, strict=True)])
