"""Read a trace of jobs: one line of comma-separated values for each job, with a header that names the columns.

Pure: lines in, jobs out. An error names the line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass

from dibs.errors import UserError

REQUIRED = ("submit_time_s", "duration_s", "gpus")
OPTIONAL = ("tenant", "limit_s")
#: More than any machine has; larger numbers are mistakes.
MOST_GPUS = 100_000
#: Seconds: a run of more than a century, or a moment beyond the year 30000, is a mistake.
LONGEST_S, LATEST_S = 3.2e9, 1e12
HELP = "The first line names the columns: submit_time_s,duration_s,gpus[,tenant,limit_s]."


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace: what it asked for, and how long it really ran."""

    id: int
    submit_s: float
    duration_s: float
    gpus: int
    tenant: str = ""
    #: Time limit that its user gave; None: none.
    limit_s: float | None = None
    is_evictable: bool = False


def read(lines: Iterable[str]) -> list[TraceJob]:
    """Return the jobs of a trace in order of submission."""
    rows = csv.reader(lines, strict=True)
    try:
        header = next(rows, [])
        places, width = _places(header), len(header)
        jobs = [_job(row, places, rows.line_num, width) for row in rows if row]
    except csv.Error as error:
        raise _wrong(rows.line_num, "comma-separated values", str(error)) from None
    if not jobs:
        raise UserError("a trace expected at least one job, got none.", HELP)
    jobs.sort(key=lambda job: job.submit_s)
    return [_numbered(job, number) for number, job in enumerate(jobs, 1)]


def _numbered(job: TraceJob, number: int) -> TraceJob:
    return TraceJob(number, job.submit_s, job.duration_s, job.gpus, job.tenant, job.limit_s)


def _places(header: list[str]) -> dict[str, int]:
    names = [name.strip().removeprefix("\ufeff") for name in header]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise _wrong(1, f"a column {missing[0]}", ",".join(names)[:80] or "nothing", HELP)
    twice = [name for name in (*REQUIRED, *OPTIONAL) if names.count(name) > 1]
    if twice:
        raise _wrong(1, f"one column {twice[0]}", ",".join(names)[:80])
    return {name: names.index(name) for name in (*REQUIRED, *OPTIONAL) if name in names}


def _job(row: list[str], places: dict[str, int], line: int, width: int) -> TraceJob:
    if len(row) > width:
        raise _wrong(line, f"at most {width} values", ",".join(row))
    fields = {name: row[place].strip() if place < len(row) else "" for name, place in places.items()}
    limit = fields.get("limit_s", "")
    return TraceJob(
        0,
        _seconds("submit_time_s", fields["submit_time_s"], line, -LATEST_S, LATEST_S),
        _seconds("duration_s", fields["duration_s"], line, 0, LONGEST_S),
        _gpus(fields["gpus"], line),
        fields.get("tenant", ""),
        _seconds("limit_s", limit, line, 1, LONGEST_S) if limit else None,
    )


def _seconds(name: str, text: str, line: int, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _wrong(line, f"a number of seconds as {name}", text) from None
    if not least <= value <= most:
        raise _wrong(line, f"{name} from {least:.0f} to {most:.0f}", text)
    return value


def _gpus(text: str, line: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise _wrong(line, "a whole number of gpus", text) from None
    if not 1 <= value <= MOST_GPUS:
        raise _wrong(line, f"gpus from 1 to {MOST_GPUS}", text)
    return value


def _wrong(line: int, expected: str, got: str, hint: str = "") -> UserError:
    shown = got if len(got) <= 80 else f"{got[:77]}..."
    return UserError(f'line {line} of the trace: expected {expected}, got "{shown}".', hint)
