"""The columns of `dibs status` that users choose: which there are, their text, and the order of rows.

No I/O: it takes jobs as the daemon answers them and the time. `status_view` draws the overview without these options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from dibs.cli import screen, status_view
from dibs.cli.screen import Column, Screen
from dibs.client.answers import Job
from dibs.errors import UserError
from dibs.logs import reports
from dibs.model import suggestions, units
from dibs.model.serialization import JOB_KEYS
from dibs.submission import job_options, options
from dibs.submission.options import Kind, Option

#: Columns that are made of several keys of a job.
MADE: dict[str, Callable[[Job, datetime], str]] = {
    "gpu": lambda job, now: status_view.gpu_of(job),
    "time": status_view.time_of,
    "note": lambda job, now: status_view.remark(job),
    "report": lambda job, now: reports.shown(job.get("report") or {}),
    "where": lambda job, now: f"{job['engine']}:{job['node']}" if job.get("node") else job["engine"],
}
#: Keys of a job that no row has room for.
LEFT_OUT = ("argv", "engine_ref")
#: Keys beyond the guaranteed ones that are worth a column.
MORE = ("comment", "group", "batch", "evictions", "node", "script", "dir", "remark")
NAMES = (*MADE, *(key for key in JOB_KEYS if key not in LEFT_OUT), *MORE)
#: The keys of objects, one value of which is a column: "params.lr", "report.loss".
OBJECTS = ("params", "report")
USUAL = ("id", "name", "state", "gpu", "time", "note", "command")
#: Shrinkable columns and their least width.
LEAST = {"name": 8, "note": 16, "reason": 16, "command": 12, "cwd": 12, "log": 12, "comment": 12, "report": 12}
SENTENCES = ("note", "reason", "comment", "report")
FIELD = re.compile(r"\{([^{}]*)\}")
TABLES = ("table", "csv", "tsv")


class Order(NamedTuple):
    """One column that rows are sorted by."""

    name: str
    is_falling: bool


def read_names(text: str) -> tuple[str, ...]:
    """Parse `id,name,params.lr`."""
    return tuple(_known(name) for name in job_options.read_list(text))


def _read_order(text: str) -> tuple[Order, ...]:
    return tuple(Order(_known(name.removeprefix("-")), name.startswith("-")) for name in job_options.read_list(text))


def _read_format(text: str) -> str:
    if text in TABLES:
        return text
    found = FIELD.findall(text)
    if not found:
        raise ValueError
    for name in found:
        _known(name)
    return text


def _known(name: str) -> str:
    first, dot, rest = name.partition(".")
    if name in NAMES or (dot and rest and first in OBJECTS):
        return name
    hint = suggestions.did_you_mean(name, NAMES) or f"They are: {', '.join(NAMES)}, params.NAME, report.NAME."
    raise UserError(f'expected columns such as id,name,state, got "{options.shown(name)}".', hint)


COLUMNS = Option(
    ("--columns",), "Show these columns, one job per row: keys of the JSON, or gpu, time, note, where, params.lr.",
    Kind("columns such as id,name,state", read_names), "id,name,...",
)  # fmt: skip
SORT = Option(
    ("--sort",), "Sort by these columns, one job per row; - in front: largest first.",
    Kind("columns such as priority or -submitted_at", _read_order), "[-]COLUMN,...",
)  # fmt: skip
FORMAT = Option(
    ("--format",), "Print csv or tsv, or one line per job: '{id} {state}'.",
    Kind("table, csv, tsv, or a text with columns such as '{id} {name}'", _read_format), "csv|tsv|TEXT",
)  # fmt: skip
OPTIONS: tuple[Option[object], ...] = (COLUMNS, SORT, FORMAT)


def ordered(jobs: Sequence[Job], orders: Sequence[Order], now: datetime) -> list[Job]:
    """Return the jobs sorted; those without a value come last in either direction."""
    rows = list(jobs)
    for order in reversed(orders):
        filled = [job for job in rows if _rank(job, order.name, now) is not None]
        empty = [job for job in rows if _rank(job, order.name, now) is None]
        rows = sorted(filled, key=lambda job: _rank(job, order.name, now), reverse=order.is_falling) + empty
    return rows


def _rank(job: Job, name: str, now: datetime) -> Any:
    """Return what a column is sorted by: numbers before texts; None if it is empty."""
    found = MADE[name](job, now) if name in MADE else _found(job, name)
    if name == "time":
        found = screen.since_s(job["finished_at"] or job["started_at"] or job["submitted_at"], now)
    if found is None or found in ("", [], {}):
        return None
    return (0, found, "") if isinstance(found, int | float) else (1, 0, _text(found))


def _found(job: Job, name: str) -> object:
    whole = cast("Mapping[str, object]", job)
    first, _, rest = name.partition(".")
    inner = whole.get(first) if rest else None
    return inner.get(rest) if isinstance(inner, Mapping) else None if rest else whole.get(name)


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ",".join(_text(each.get("id")) if isinstance(each, dict) else _text(each) for each in value)
        case dict():
            return ",".join(f"{name}={_text(each)}" for name, each in value.items())
        case _:
            return str(value)


def cell(view: Screen, job: Job, name: str, now: datetime) -> str:
    """Return the text of one column of a job."""
    if name in MADE:
        return MADE[name](job, now)
    value = _found(job, name)
    if name.endswith("_at") and isinstance(value, str):
        return screen.moment(view, value, now)
    if view.is_terminal and name == "time_limit_s" and isinstance(value, float | int):
        return units.format_duration(value)
    return _text(value)


def lines(view: Screen, jobs: Sequence[Job], names: Sequence[str], form: str, now: datetime) -> str:
    """Return the jobs as a table, as CSV or TSV, or as one line of a template each."""
    if form == "table":
        columns = [
            Column(name.upper(), LEAST.get(name), is_state=name == "state", is_sentence=name in SENTENCES)
            for name in names
        ]
        return screen.table(view, columns, [[cell(view, job, name, now) for name in names] for job in jobs])
    # Data for programs: whole times, whatever the terminal.
    plain = Screen(is_terminal=False, is_coloured=False, width=None)
    if form in TABLES:
        return _delimited(plain, jobs, names, "," if form == "csv" else "\t", now)
    return "\n".join(
        FIELD.sub(lambda found, job=job: screen.clean(cell(plain, job, found[1], now)), form)  # type: ignore[misc]
        for job in jobs
    )


def _delimited(view: Screen, jobs: Sequence[Job], names: Sequence[str], delimiter: str, now: datetime) -> str:
    import csv
    from io import StringIO

    text = StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([screen.clean(cell(view, job, name, now)) for name in names] for job in jobs)
    return text.getvalue().rstrip("\n")
