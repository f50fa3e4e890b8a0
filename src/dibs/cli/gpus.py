"""`dibs gpus`: every GPU of this machine and who has it, also of other users."""

from __future__ import annotations

import os
import sys
from datetime import datetime

from dibs import client, units
from dibs.cli import options, screen
from dibs.cli.answers import Gpu, Gpus, Holder
from dibs.cli.options import Args, Option
from dibs.cli.screen import Column, Screen

SUMMARY = "List every GPU and who holds it, other users included."
USAGE = ("[OPTIONS]",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs gpus", "dibs gpus --json | jq '.gpus[] | select(.state == \"free\")'")


def main(args: Args) -> int:
    """Show the GPUs as a table or as JSON."""
    options.refuse_words("gpus", args)
    answer: Gpus = client.connect(os.environ).get("/v1/gpus")
    if args.has(options.JSON):
        screen.print_json(answer)
        return 0
    view = screen.of(sys.stdout, args)
    for text in (answer["problem"], answer["restriction"] and f"restricted: {answer['restriction']}"):
        if text:
            print(screen.clean(text), file=sys.stderr)
    if not answer["gpus"]:
        print("This machine shows no GPU. Jobs without one run; pretend ones: DIBS_DEVICES=fake:4", file=sys.stderr)
        return 0
    print(table(view, answer["gpus"], screen.now()))
    for waiter in answer["waiters"]:
        print(screen.clean(f"{waiter['user']} waits for {waiter['gpus']}"), file=sys.stderr)
    return 0


def table(view: Screen, gpus: list[Gpu], now: datetime) -> str:
    """Return the GPUs as a table."""
    columns = (
        Column("GPU", is_right=True),
        Column("NAME", least=10),
        Column("MEMORY"),
        Column("USE", is_right=True),
        Column("TEMP", is_right=True),
        Column("STATE", is_state=True),
        Column("HOLDERS", least=20, is_sentence=True),
    )
    return screen.table(view, columns, [_row(view, gpu, now) for gpu in gpus])


def _row(view: Screen, gpu: Gpu, now: datetime) -> tuple[str, ...]:
    used, total = (
        None if size is None else units.format_size(size) for size in (gpu["memory_used"], gpu["memory_total"])
    )
    return (
        str(gpu["index"]),
        gpu["name"],
        f"{used or '?'}/{total}" if total else "",
        "" if gpu["utilization"] is None else f"{gpu['utilization']}%",
        "" if gpu["temperature"] is None else f"{gpu['temperature']}C",
        gpu["state"],
        "; ".join([*(_holder(view, holder, now) for holder in gpu["holders"]), *_others(gpu)]),
    )


def _holder(view: Screen, holder: Holder, now: datetime) -> str:
    what = f" job {holder['job']}" if holder["job"] and holder["job"].isdigit() else f" {holder['job'] or ''}".rstrip()
    pid = f" (pid {holder['pid']})" if holder["pid"] else ""
    since = ""
    if holder["since"]:
        age = units.format_duration(screen.since_s(holder["since"], now))
        since = f" {age if view.is_terminal else holder['since']}"
    return f"{holder['user'] or 'somebody'}{what}{pid}{since}"


def _others(gpu: Gpu) -> list[str]:
    """Return what else is worth knowing: why it is unwell, and who uses it without a lease."""
    told = [gpu["fault"]] if gpu["fault"] else []
    if gpu["state"] == "foreign":
        told += [f"{p['user'] or 'somebody'} {p['name'] or 'a process'} (pid {p['pid']})" for p in gpu["processes"]]
    return told
