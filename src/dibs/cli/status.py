"""`dibs status`, or just `dibs`: the jobs in a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import datetime

from dibs import client, units
from dibs.cli import answers, options, screen
from dibs.cli.answers import Job, Machine
from dibs.cli.options import Args, Option
from dibs.cli.screen import Column, Screen

SUMMARY = "List unfinished and latest jobs, or those selected."
USAGE = ("[OPTIONS] [SELECTOR...]",)
OPTIONS: tuple[Option[object], ...] = (options.QUIET, options.JSON)
EXAMPLES = ("dibs", "dibs status failed since:24h", "dibs status all", "dibs status -q name:vit*+queued")

EMPTY = "No jobs yet. Queue one: dibs add python train.py"
PAUSED = "the queue is paused: nothing new starts; dibs resume"
#: In the order in which they are told.
COUNTED = ("running", "starting", "stopping", "paused", "queued", "held", "failed", "timeout", "lost")


def main(args: Args) -> int:
    """Show jobs as a table, as ids, or as JSON."""
    answer = answers.overview(client.connect(os.environ), args.words)
    if args.has(options.JSON):
        screen.print_json(answer)
        return 0
    if args.has(options.QUIET):
        print("".join(f"{job['id']}\n" for job in answer["jobs"]), end="")
        return 0
    view = screen.of(sys.stdout, args)
    if view.is_terminal:
        print(screen.clean(headline(answer["machine"], answer["counts"], answer["queue"]["paused"])))
    elif answer["queue"]["paused"]:
        print(PAUSED, file=sys.stderr)
    for warning in warnings(answer["machine"]):
        print(screen.clean(warning), file=sys.stdout if view.is_terminal else sys.stderr)
    if answer["jobs"]:
        print(table(view, answer["jobs"], screen.now()))
    else:
        print(EMPTY, file=sys.stdout if view.is_terminal else sys.stderr)
    return 0


def headline(machine: Machine, counts: Mapping[str, int], is_paused: bool) -> str:
    """Return the machine and its queue in one line."""
    gpus = f"{machine['gpus']} GPU{'' if machine['gpus'] == 1 else 's'}, {machine['free']} free"
    parts = [f"{counts[word]} {word}" for word in COUNTED if counts.get(word)]
    queue = ", ".join(parts) or "nothing queued"
    return f"{gpus if machine['gpus'] else 'no GPUs'}; {queue}{f'; {PAUSED}' if is_paused else ''}"


def warnings(machine: Machine) -> list[str]:
    """Return what hides devices, or keeps them from being read."""
    restriction = f"restricted: {machine['restriction']}" if machine["restriction"] else ""
    return [text for text in (restriction, machine["problem"]) if text]


def table(view: Screen, jobs: list[Job], now: datetime) -> str:
    """Return the jobs as a table. Piped, a moment stands where people on a terminal see how long it is."""
    columns = (
        Column("ID", is_right=True),
        Column("NAME", least=8),
        Column("STATE", is_state=True),
        Column("GPU", least=3),
        Column("TIME" if view.is_terminal else "SINCE", is_right=view.is_terminal),
        Column("REASON", least=12, is_sentence=True),
        Column("COMMAND", least=12),
    )
    rows = [
        (str(job["id"]), job["name"], job["state"], _gpu(job), _time(view, job, now), remark(job), job["command"])
        for job in jobs
    ]
    return screen.table(view, columns, rows)


def _gpu(job: Job) -> str:
    """Return where it runs or ran, or how many it waits for."""
    if job["gpu_indices"]:
        return ",".join(str(index) for index in job["gpu_indices"])
    return f"x{job['gpus']}" if job["gpus"] and job["state"] in answers.WAITING else ""


def _time(view: Screen, job: Job, now: datetime) -> str:
    begun, ended = job["started_at"], job["finished_at"]
    if not view.is_terminal:
        return ended or begun or job["submitted_at"]
    until = datetime.fromisoformat(ended) if ended else now
    if ended and not begun:
        return ""
    return units.format_duration(screen.since_s(begun or job["submitted_at"], until))


def remark(job: Job) -> str:
    """Return why it waits, or why it did not succeed."""
    if job["reason"]:
        return job["reason"]
    if job["state"] in ("failed", "cancelled", "timeout", "lost"):
        return _cause(job)
    return ""


def _cause(job: Job) -> str:
    if job["cause"] == "timeout" and job["time_limit_s"] is not None:
        return f"over its limit of {units.format_duration(job['time_limit_s'])}"
    if job["cause"] == "exit" and job["exit_code"] is not None:
        return f"exit {job['exit_code']}"
    if job["signal"] is not None:
        import signal

        number = job["signal"]
        known = {int(each): each.name for each in signal.Signals}
        return f"{job['cause'] or 'signal'} {known.get(number, number)}"
    return job["remark"] or job["cause"] or ""
