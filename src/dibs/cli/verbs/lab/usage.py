"""`dibs usage`: GPU-hours by user, project, group, sweep or day: held, used, wasted and waited."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypedDict

from dibs.cli import screen
from dibs.cli.screen import Column
from dibs.client import stand_in
from dibs.client.answers import PersonDay, Sum
from dibs.errors import UserError
from dibs.submission import options
from dibs.submission.options import Args, Kind, Option

SUMMARY = "Show GPU-hours by user, project, group, sweep or day: held, used, wasted and waited."
USAGE = ("[OPTIONS]",)
BY = Option(
    ("--by",), "Sum by this. Default: user.", options.one_of("user", "project", "group", "sweep", "day"),
    "user|project|group|sweep|day",
)  # fmt: skip
SINCE = Option(
    ("--since",), "Length of the period that ends now, such as 7d. Default: 30d.", options.POSITIVE_DURATION, "30d"
)


def _read_month(text: str) -> date:
    year, _, month = text.partition("-")
    return date(int(year), int(month), 1)


MONTH = Option(
    ("--month",), "Print a text summary of one month, such as 2026-11.", Kind("a month such as 2026-11", _read_month),
    "YYYY-MM",
)  # fmt: skip
CSV: Option[bool] = Option(("--csv",), "Print comma-separated values.")
OPTIONS: tuple[Option[object], ...] = (BY, SINCE, MONTH, CSV, options.JSON)
EXAMPLES = (
    "dibs usage",
    "dibs usage --by project --since 7d",
    "dibs usage --by day --csv > usage.csv",
    "dibs usage --month 2026-11 | mail -s 'GPU usage' lab@example.org",
)

#: The most days that a daemon tells.
MOST_DAYS = 366
#: What is not known of other users.
UNKNOWN = "-"


class Usage(TypedDict):
    """The part of the answer of `GET /v1/usage` that is summed here."""

    sums: list[Sum]
    people: list[PersonDay]


@dataclass
class Row:
    """GPU time of what is summed, in hours; None: not known."""

    name: str
    held: float = 0.0
    used: float | None = None
    wasted: float | None = None
    waited: float | None = None
    jobs: int | None = None

    def add(self, held: float, used: float, wasted: float, waited: float, jobs: int) -> None:
        """Add jobs of ours."""
        self.held += held
        self.used = (self.used or 0.0) + used
        self.wasted = (self.wasted or 0.0) + wasted
        self.waited = (self.waited or 0.0) + waited
        self.jobs = (self.jobs or 0) + jobs


def main(args: Args) -> int:
    """Print the sums as a table, as text, as CSV or as JSON."""
    options.refuse_words("usage", args)
    if args.has(CSV) and args.has(options.JSON):
        raise UserError("expected --csv or --json, got both.", "Leave one of them out.")
    month = args.get(MONTH)
    if month is not None and (args.has(SINCE) or args.has(BY)):
        raise UserError("--month is a summary of one month.", "Leave --since and --by out.")
    today = date.today()
    first, last = _month_bounds(month) if month else (today - timedelta(days=_days(args) - 1), today)
    if first > today:
        raise UserError(f"--month expected this month or an earlier one, got {first:%Y-%m}.")
    days = (today - first).days + 1
    if days > MOST_DAYS:
        raise UserError(f"expected at most {MOST_DAYS} days, got {days}.")
    answer: Usage = stand_in.connect(os.environ).get("/v1/usage", [("days", str(days))])
    if args.has(options.JSON) and month is None and not args.has(BY):
        screen.print_json(answer)
        return 0
    by = args.get(BY) or "user"
    if month is not None and not args.has(CSV) and not args.has(options.JSON):
        print(summary(answer, first, last))
        return 0
    _print(rows(answer, by, first.isoformat(), last.isoformat()), by, args)
    return 0


def _days(args: Args) -> int:
    seconds = args.get(SINCE)
    return 30 if seconds is None else max(1, round(seconds / 86400))


def _month_bounds(month: date) -> tuple[date, date]:
    following = (month + timedelta(days=31)).replace(day=1)
    return month, following - timedelta(days=1)


def rows(answer: Usage, by: str, first: str, last: str) -> list[Row]:
    """Return the sums between two days, the largest first; days in their order."""
    found: dict[str, Row] = {}
    for one in answer["sums"]:
        if not first <= one["day"] <= last or by == "user":
            continue
        sweep = f"{one['project']}/{one['sweep']}" if one["sweep"] else UNKNOWN
        name = {"project": one["project"], "group": one["group"], "sweep": sweep, "day": one["day"]}[by]
        hours = one["gpu_s"] / 3600, _used_h(one["gpu_s"], one["watched_s"], one["used_s"]), one["idle_s"] / 3600
        found.setdefault(name, Row(name)).add(*hours, one["waited_s"] / 3600, one["jobs"])
    for person in answer["people"] if by == "user" else ():
        if first <= person["day"] <= last:
            found.setdefault(person["user"], Row(person["user"])).held += person["gpu_s"] / 3600
    return sorted(found.values(), key=lambda row: row.name if by == "day" else -row.held)


def _used_h(held_s: float, watched_s: float, used_s: float) -> float:
    """Return the hours that were used: what was observed stands for the whole time."""
    return held_s * used_s / watched_s / 3600 if watched_s else 0.0


def _cells(row: Row) -> list[str]:
    hours = [row.held, row.used, row.wasted, row.waited]
    told = [UNKNOWN if value is None else f"{value:.1f}" for value in hours]
    return [row.name, *told, UNKNOWN if row.jobs is None else str(row.jobs)]


def _print(found: Sequence[Row], by: str, args: Args) -> None:
    names = [by, "held_h", "used_h", "wasted_h", "waited_h", "jobs"]
    if args.has(options.JSON):
        values = [[row.name, row.held, row.used, row.wasted, row.waited, row.jobs] for row in found]
        screen.print_json({"usage": [dict(zip(names, each, strict=True)) for each in values]})
        return
    if args.has(CSV):
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([cell if cell != UNKNOWN else "" for cell in _cells(row)] for row in found)
        return
    if not found:
        screen.say("no GPU was leased in that time.")
        return
    titles = (by.upper(), "HELD", "USED", "WASTED", "WAITED", "JOBS")
    columns = [Column(title, is_right=number > 0) for number, title in enumerate(titles)]
    # Of users only what they held is known: how busy their GPUs were is theirs.
    shown = [_cells(row)[:2] for row in found] if by == "user" else [_cells(row) for row in found]
    print(screen.table(screen.screen_of_stream(sys.stdout, args), columns[: len(shown[0])], shown))


def summary(answer: Usage, first: date, last: date) -> str:
    """Return a month as text to mail: all users, and the projects of this one."""
    bounds = first.isoformat(), last.isoformat()
    people, projects = (rows(answer, by, *bounds) for by in ("user", "project"))
    total = sum(row.held for row in people)
    lines = [f"GPU-hours in {first:%B %Y}: {total:.1f}", ""]
    lines += [f"  {row.name:<24}{row.held:>10.1f}{_percent(row.held, total):>6}" for row in people]
    if projects:
        lines += ["", "Your projects: held, used, wasted, waited (hours), jobs"]
        lines += [
            f"  {row.name:<24}{row.held:>10.1f}{row.used or 0:>10.1f}{row.wasted or 0:>10.1f}{row.waited or 0:>10.1f}"
            f"{row.jobs or 0:>8}"
            for row in projects
        ]
    notes = "Held: GPUs that were leased. Used: by utilization. Wasted: held and idle, where it was observed."
    return "\n".join([*(screen.clean(line) for line in lines), "", notes])


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole else ""
