"""`dibs results`: the results of a sweep, one line per run, the best first."""

from __future__ import annotations

import os
import sys
from typing import Any

from dibs.cli import results_table, screen
from dibs.cli.results_spool import Spool
from dibs.client import connection, stand_in
from dibs.client.sweep_drafts import GOAL
from dibs.errors import UserError
from dibs.submission import job_options, options
from dibs.submission.options import Args, Kind, Option
from dibs.sweeps import ranking
from dibs.sweeps.ranking import Group
from dibs.sweeps.search import trials

SUMMARY = "Show the results of a sweep, one row per run, best first."
USAGE = ("[OPTIONS] NAME", "[OPTIONS]")
METRIC = Option(("--metric",), "Rank by this metric. Default: the metric of the sweep.", options.TEXT, "NAME")
GROUP = Option(
    ("--group",), "Average over these parameters: mean, standard deviation and count.",
    Kind("a parameter such as seed", job_options.read_list), "seed",
)  # fmt: skip
CSV: Option[bool] = Option(("--csv",), "Print comma-separated values.")
MARKDOWN: Option[bool] = Option(("--md",), "Print a Markdown table.")
MOST = Option(("-n", "--most"), "Show only the first N rows.", options.whole(1), "N")
FORMATS: tuple[Option[object], ...] = (CSV, MARKDOWN, options.JSON, options.QUIET)
OPTIONS: tuple[Option[object], ...] = (METRIC, GOAL, GROUP, MOST, *FORMATS)
EXAMPLES = (
    "dibs results vit",
    "dibs results vit --metric accuracy --goal max -n 10",
    "dibs results vit --group seed",
    "dibs results vit --csv > vit.csv",
    "dibs log $(dibs results vit -q -n 1)",
)


def main(args: Args) -> None:
    """Print the results of one sweep; without a name, list all sweeps."""
    if len(args.words) > 1:
        raise UserError(f'results expected one sweep, got "{options.shown(" ".join(args.words))}".')
    if sum(args.has(option) for option in FORMATS) > 1:
        raise UserError("expected one of --csv, --md, --json and -q.")
    queue = stand_in.connect(os.environ)
    if not args.words:
        _list(queue, args)
        return
    name = args.words[0].removeprefix("sweep:")
    found = queue.get("/v1/sweeps", [("name", name)])["sweeps"]
    if len(found) > 1:
        names = ", ".join(f"{each['project']}/{each['name']}" for each in found[:5])
        raise UserError(f"results expected one sweep, got {len(found)}: {names}.")
    _show(queue, args, found[0])


def _show(queue: connection.Client, args: Args, sweep: dict[str, Any]) -> None:
    metric = args.get(METRIC) or sweep["metric"]
    goal = args.get(GOAL) or sweep["goal"] or ranking.MINIMIZE
    by = args.get(GROUP)
    if by is not None and args.has(options.QUIET):
        raise UserError("-q prints job ids, but --group combines several jobs in one row.")
    with Spool(metric, goal) as spool:
        spool.fetch(queue, sweep["id"])
        if args.has(METRIC):
            ranking.check_metric(str(metric), spool.names)
        if by is None:
            _show_runs(args, sweep, spool, metric)
        else:
            groups = ranking.grouped(spool.by_point(), by, metric, goal)[: args.get(MOST)]
            _show_groups(args, sweep, groups, list(spool.names), metric)


def _show_runs(args: Args, sweep: dict[str, Any], spool: Spool, metric: str | None) -> None:
    best = spool.best(args.get(MOST))
    if args.has(options.JSON):
        for piece in results_table.document({"sweep": sweep}, "runs", best.as_sent()):
            print(piece)
    elif args.has(options.QUIET):
        for run in best:
            if run.job is not None:
                print(run.job)
    elif sweep.get("search") and sweep["search"]["sampler"] != trials.RANDOM:
        _print(args, results_table.of_trials(best, metric, spool.winner, is_exact=args.has(CSV)))
        if sweep["search"]["ended"]:
            screen.say(f"the search has ended: {sweep['search']['ended']}.")
    else:
        _print(args, results_table.of_runs(best, metric))


def _show_groups(args: Args, sweep: dict[str, Any], groups: list[Group], names: list[str], metric: str | None) -> None:
    if args.has(options.JSON):
        screen.print_json({"sweep": sweep, "groups": [_group_to_json(group) for group in groups]})
    else:
        _print(args, results_table.of_groups(groups, names, metric, is_exact=args.has(CSV)))


def _group_to_json(group: Group) -> dict[str, Any]:
    numbers = {
        name: {"mean": spread.mean, "sd": spread.deviation, "n": spread.count} for name, spread in group.numbers.items()
    }
    return {"params": dict(group.params), "jobs": list(group.jobs), "n": len(group.jobs), "numbers": numbers}


def _print(args: Args, what: results_table.Table) -> None:
    if args.has(CSV):
        results_table.write_csv(what, sys.stdout)
        return
    view = screen.screen_of_stream(sys.stdout, args)
    for line in results_table.markdown(what) if args.has(MARKDOWN) else results_table.fitted(view, what):
        print(line)


def _list(queue: connection.Client, args: Args) -> None:
    for option in (METRIC, GOAL, GROUP):
        if args.has(option):
            raise UserError(f"{option.names[0]} expected the name of a sweep before it, got none.")
    found = queue.get("/v1/sweeps")["sweeps"][: args.get(MOST)]
    if args.has(options.JSON):
        screen.print_json({"sweeps": found})
    elif args.has(options.QUIET):
        print("".join(f"{each['name']}\n" for each in found), end="")
    elif not found:
        print("No sweeps yet. Create one: dibs sweep 'python train.py --lr {lr}' -p lr 0.1 0.01", file=sys.stderr)
    else:
        _print(args, results_table.of_sweeps(found))
