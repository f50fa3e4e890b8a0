"""`dibs engines`: this machine and the clusters of the settings."""

from __future__ import annotations

import os
import sys
from datetime import datetime

from dibs.cli import screen
from dibs.cli.screen import Column, Screen
from dibs.client import stand_in
from dibs.client.answers import Engine, Engines
from dibs.errors import UserError
from dibs.model import units
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "List where jobs can run: this machine and clusters, with nodes and free GPUs."
USAGE = ("[OPTIONS] [NAME]",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs engines", "dibs engines lab", "dibs engines --json | jq '.engines[] | select(.state != \"ready\")'")
#: Shown below the table if there is no cluster.
HINT = "To add a cluster: dibs config set engines.NAME.kind slurm (or ray); see docs/engines.md."


def main(args: Args) -> None:
    """Print all engines, or the nodes of one."""
    if len(args.words) > 1:
        raise UserError(f'engines expected one name, got "{options.shown(" ".join(args.words))}".')
    answer: Engines = stand_in.connect(os.environ).get("/v1/engines")
    found = answer["engines"]
    if args.words:
        known = [engine["name"] for engine in found]
        if args.words[0] not in known:
            raise UserError(
                f'there is no engine "{options.shown(args.words[0])}".', f"The engines are: {', '.join(known)}."
            )
        found = [engine for engine in found if engine["name"] == args.words[0]]
    if args.has(options.JSON):
        screen.print_json(found[0] if args.words else answer)
        return
    view = screen.screen_of_stream(sys.stdout, args)
    if args.words and found[0]["nodes"]:
        print(nodes(view, found[0]))
        if problem := _problem(found[0], screen.now()):
            print(f"{found[0]['name']} is {found[0]['state']}, {problem}")
    else:
        print(table(view, found, screen.now()))
    if len(answer["engines"]) == 1 and view.is_terminal:
        screen.say(HINT)


def table(view: Screen, engines: list[Engine], now: datetime) -> str:
    """Return the engines as a table."""
    columns = (
        Column("NAME"), Column("KIND"), Column("STATE", is_state=True), Column("NODES", is_right=True),
        Column("GPUS", is_right=True), Column("FREE", is_right=True), Column("QUEUED", is_right=True),
        Column("WAITING", is_right=True), Column("RUNNING", is_right=True),
        Column("PROBLEM", least=20, is_sentence=True),
    )  # fmt: skip
    return screen.table(view, columns, [_row(engine, now) for engine in engines])


def _row(engine: Engine, now: datetime) -> tuple[str, ...]:
    up = sum(node["up"] for node in engine["nodes"])
    count = f"{up}/{len(engine['nodes'])}" if engine["nodes"] else ""
    return (
        engine["name"],
        engine["kind"],
        engine["state"],
        count,
        str(engine["gpus"]),
        "?" if engine["free_gpus"] is None else str(engine["free_gpus"]),
        *(str(engine[name] or "") for name in ("queued", "waiting", "running")),
        _problem(engine, now),
    )


def _problem(engine: Engine, now: datetime) -> str:
    since = engine["since"] if engine["problem"] else None
    told = f"for {units.format_duration(screen.since_s(since, now))}: " if since else ""
    return f"{told}{engine['problem'] or ''}"


def nodes(view: Screen, engine: Engine) -> str:
    """Return the nodes of an engine as a table."""
    columns = (
        Column("NODE"), Column("STATE", is_state=True), Column("GPUS", is_right=True), Column("FREE", is_right=True),
        Column("TYPE"), Column("CPUS", is_right=True), Column("MEMORY", is_right=True), Column("JOBS", least=8),
    )  # fmt: skip
    rows = [
        (
            node["name"],
            "up" if node["up"] else "down",
            str(node["gpus"]),
            "?" if node["free_gpus"] is None else str(node["free_gpus"]),
            node["gpu_type"],
            str(node["cpus"]),
            units.format_size(node["mem"]),
            ", ".join(map(str, node["jobs"])),
        )
        for node in engine["nodes"]
    ]
    return screen.table(view, columns, rows)
