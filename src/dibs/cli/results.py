"""`dibs results`: what came out of a sweep, one line a run, the best first."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dibs import client, options, ranking, values
from dibs.cli import screen
from dibs.cli.screen import Column, Screen
from dibs.cli.sweep import GOAL
from dibs.errors import UserError
from dibs.options import Args, Kind, Option
from dibs.ranking import Group, Run

SUMMARY = "Show what came out of a sweep, one line a run, the best first."
USAGE = ("[OPTIONS] NAME", "[OPTIONS]")


def _read_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError
    return names


METRIC = Option(("--metric",), "Compare by this number; else by the one that the sweep names.", options.TEXT, "NAME")
GROUP = Option(
    ("--group",), "Mean, standard deviation and count over all runs that are equal but for these parameters.",
    Kind("a parameter such as seed", _read_names), "seed",
)  # fmt: skip
CSV: Option[bool] = Option(("--csv",), "Print comma-separated values.")
MARKDOWN: Option[bool] = Option(("--md",), "Print a Markdown table.")
MOST = Option(("-n", "--most"), "Only so many lines.", options.whole(1), "N")
FORMATS: tuple[Option[object], ...] = (CSV, MARKDOWN, options.JSON, options.QUIET)
OPTIONS: tuple[Option[object], ...] = (METRIC, GOAL, GROUP, MOST, *FORMATS)
EXAMPLES = (
    "dibs results vit",
    "dibs results vit --metric accuracy --goal max -n 10",
    "dibs results vit --group seed",
    "dibs results vit --csv > vit.csv",
    "dibs log $(dibs results vit -q -n 1)",
)
#: Digits of a number that people read; programs get all of them.
DIGITS = 6


@dataclass(frozen=True)
class Table:
    """What is printed: titles, rows of values, and which columns are numbers."""

    titles: list[str]
    rows: list[list[Any]]
    is_number: list[bool]


def main(args: Args) -> int:
    """Print the results of one sweep, or without a name all sweeps."""
    if len(args.words) > 1:
        raise UserError(f'results expected one sweep, got "{options.shown(" ".join(args.words))}".')
    if sum(args.has(option) for option in FORMATS) > 1:
        raise UserError("expected one of --csv, --md, --json and -q.")
    queue = client.connect(os.environ)
    if not args.words:
        return _list(queue, args)
    name = args.words[0].removeprefix("sweep:")
    found = queue.get("/v1/sweeps", [("name", name)])["sweeps"]
    if len(found) > 1:
        names = ", ".join(f"{each['project']}/{each['name']}" for each in found[:5])
        raise UserError(f"results expected one sweep, got {len(found)}: {names}.")
    answer = queue.get(f"/v1/sweeps/{found[0]['id']}/results")
    return _show(args, answer["sweep"], answer["runs"])


def _show(args: Args, sweep: dict[str, Any], told: Sequence[dict[str, Any]]) -> int:
    runs = [Run(run["params"], run["state"], run["numbers"], run["job"], run["index"]) for run in told]
    metric = args.get(METRIC) or sweep["metric"]
    goal = args.get(GOAL) or sweep["goal"] or ranking.MINIMIZE
    if args.has(METRIC):
        ranking.check_metric(str(metric), runs)
    most = args.get(MOST)
    by = args.get(GROUP)
    if by is not None:
        if args.has(options.QUIET):
            raise UserError("-q prints jobs, and --group puts several into one line.")
        groups = ranking.grouped(runs, by, metric, goal)[:most]
        if args.has(options.JSON):
            screen.print_json({"sweep": sweep, "groups": [_group_to_json(group) for group in groups]})
            return 0
        _print(args, grouped(groups, runs, metric, is_exact=args.has(CSV)))
        return 0
    best = ranking.ordered(runs, metric, goal)[:most]
    if args.has(options.JSON):
        by_index = {(run["index"], run["job"]): run for run in told}
        screen.print_json({"sweep": sweep, "runs": [by_index[run.index, run.job] for run in best]})
    elif args.has(options.QUIET):
        print("".join(f"{run.job}\n" for run in best if run.job is not None), end="")
    else:
        _print(args, table(best, metric))
    return 0


def table(runs: Sequence[Run], metric: str | None) -> Table:
    """Return one row a run: its job, its parameters, how it stands, its numbers with the metric first."""
    parameters, numbers = ranking.parameters(runs), _metric_first(ranking.names(runs), metric)
    rows = [
        [
            run.job,
            *(run.params.get(name) for name in parameters),
            run.state,
            *(run.numbers.get(name) if name in run.numbers else "" for name in numbers),
        ]
        for run in runs
    ]
    rows = [["" if cell is None and at in (0, *range(1, len(parameters) + 1)) else cell for at, cell in enumerate(row)]
            for row in rows]  # fmt: skip
    is_number = [True, *(_are_numbers(run.params.get(name) for run in runs) for name in parameters), False]
    return Table(["job", *parameters, "state", *numbers], rows, [*is_number, *(True for _ in numbers)])


def grouped(groups: Sequence[Group], runs: Sequence[Run], metric: str | None, *, is_exact: bool) -> Table:
    """Return one row a group; programs get mean and deviation in columns of their own."""
    parameters = list(dict.fromkeys(name for group in groups for name in group.params))
    numbers = _metric_first(ranking.names(runs), metric)
    rows = []
    for group in groups:
        cells: list[Any] = [*(group.params.get(name, "") for name in parameters), _states(group), len(group.runs)]
        for name in numbers:
            spread = group.numbers.get(name)
            if is_exact:
                cells += [spread.mean, spread.deviation, spread.count] if spread else ["", "", 0]
            elif spread is None:
                cells.append("")
            else:
                deviation = "" if spread.deviation is None else f" ± {spread.deviation:.2g}"
                few = "" if spread.count == len(group.runs) else f" (n={spread.count})"
                cells.append(f"{shown(spread.mean)}{deviation}{few}")
        rows.append(cells)
    titles = [f"{name}{end}" for name in numbers for end in ((" mean", " sd", " n") if is_exact else ("",))]
    is_number = [_are_numbers(group.params.get(name) for group in groups) for name in parameters]
    return Table([*parameters, "state", "n", *titles], rows, [*is_number, False, True, *(True for _ in titles)])


def _states(group: Group) -> str:
    """Return how the runs of a group stand: one word if they agree."""
    states = [run.state for run in group.runs]
    words = list(dict.fromkeys(states))
    return words[0] if len(words) == 1 else ", ".join(f"{states.count(word)} {word}" for word in words)


def _metric_first(names: list[str], metric: str | None) -> list[str]:
    return sorted(names, key=lambda name: name != metric)


def _are_numbers(found: Any) -> bool:
    return all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in found)


def _group_to_json(group: Group) -> dict[str, Any]:
    return {
        "params": dict(group.params),
        "jobs": [run.job for run in group.runs],
        "n": len(group.runs),
        "numbers": {
            name: {"mean": spread.mean, "sd": spread.deviation, "n": spread.count}
            for name, spread in group.numbers.items()
        },
    }


# -- how it is printed ------------------------------------------------------------------------------------------


def _print(args: Args, what: Table) -> None:
    view = screen.of(sys.stdout, args)
    if args.has(CSV):
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(what.titles)
        writer.writerows([[_written(cell) for cell in row] for row in what.rows])
    elif args.has(MARKDOWN):
        print(markdown(what))
    else:
        print(fitted(view, what))


def _written(cell: Any) -> str:
    """Return a value as programs read it: every digit, and anything but text as JSON has it."""
    return "nan" if cell is None else values.write(cell)


def shown(cell: Any) -> str:
    """Return a value as people read it."""
    if cell is None:
        return "nan"
    return f"{cell:.{DIGITS}g}" if isinstance(cell, float) else screen.clean(values.write(cell))


def markdown(what: Table) -> str:
    """Return a table as Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = line(["---:" if is_number else "---" for is_number in what.is_number])
    return "\n".join([line(what.titles), rule, *(line([shown(cell) for cell in row]) for row in what.rows)])


def fitted(view: Screen, what: Table) -> str:
    """Return a table that is as wide as the terminal at most; ten thousand rows come at once."""
    columns = [
        Column(screen.clean(title).upper(), least=max(4, min(len(title), 10)), is_right=is_number)
        for title, is_number in zip(what.titles, what.is_number, strict=True)
    ]
    rows = [[shown(cell) for cell in row] for row in what.rows]
    if view.width is not None:
        widths = [max(len(row[n]) for row in [[c.title for c in columns], *rows]) for n in range(len(columns))]
        widths = screen.fit(widths, columns, view.width)
        rows = [[screen.middle(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]
        columns = [
            Column(screen.middle(column.title, width), is_right=column.is_right)
            for column, width in zip(columns, widths, strict=True)
        ]
    return screen.table(Screen(is_terminal=False, is_coloured=False, width=None), columns, rows)


def _list(queue: client.Client, args: Args) -> int:
    """Print all sweeps, one line each."""
    for option in (METRIC, GOAL, GROUP):
        if args.has(option):
            raise UserError(f"{option.names[0]} expected the name of a sweep before it, got none.")
    found = queue.get("/v1/sweeps")["sweeps"][: args.get(MOST)]
    if args.has(options.JSON):
        screen.print_json({"sweeps": found})
        return 0
    if args.has(options.QUIET):
        print("".join(f"{each['name']}\n" for each in found), end="")
        return 0
    if not found:
        print("No sweeps yet. Make one: dibs sweep 'python train.py --lr {lr}' -p lr 0.1 0.01", file=sys.stderr)
        return 0
    rows = [
        [
            each["name"],
            each["project"],
            sum(each["states"].values()),
            ", ".join(f"{count} {word}" for word, count in each["states"].items()),
            each["command"],
        ]
        for each in found
    ]
    _print(args, Table(["name", "project", "runs", "states", "command"], rows, [False, False, True, False, False]))
    return 0
