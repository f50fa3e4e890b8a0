"""The jobs as rows of a table, and the first line of the screen. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from dibs.cli import screen, status_view
from dibs.cli.top import lines, snapshot
from dibs.cli.top.lines import Line, Marks
from dibs.cli.top.snapshot import Snapshot
from dibs.client import job_state
from dibs.client.answers import Job
from dibs.model import units

#: More rows are no list that a person reads; the search finds the rest.
MOST_ROWS = 1000
COLUMNS = ("ID", "NAME", "STATE", "GPU", "TIME", "REASON OR COMMAND")
#: Widths of all columns but the last, which gets the rest; the name gets more on a wide terminal.
WIDTHS = (6, 10, 9, 4, 13)
#: The seconds after minutes.
SECONDS = re.compile(r"(?<=m)\d+s")
#: Columns of a terminal from which names get more room.
WIDE = 120


class Row(NamedTuple):
    """One job: its id, its texts, and the colour of its state."""

    id: int
    cells: tuple[str, ...]
    style: str


def rows(now_shown: Snapshot, search: str, now: datetime) -> list[Row]:
    """Return the rows of the jobs that match a search."""
    found = [job for job in snapshot.ordered(now_shown) if snapshot.matches(job, search)]
    return [_row(job, now_shown, now) for job in found[:MOST_ROWS]]


def widths(width: int) -> tuple[int, ...]:
    """Return the widths of the columns on a terminal of this width; each has one blank on either side."""
    first, name, *more = WIDTHS
    name += 12 if width >= WIDE else 0
    rest = width - sum((first, name, *more)) - 2 * len(COLUMNS) - 1
    return (first, name, *more, max(rest, 10))


def _row(job: Job, now_shown: Snapshot, now: datetime) -> Row:
    when = status_view.when(job, now, now_shown.starts)
    if job["time_limit_s"] and job["state"] == "running":
        when = f"{when}/{units.format_duration(job['time_limit_s'])}"
    if "-" in when or "/" in when:
        # Two times need room, and their seconds say nothing.
        when = SECONDS.sub("", when)
    note = status_view.remark(job) or job["command"]
    cells = (str(job["id"]), job["name"], job["state"], status_view.gpu_of(job), when, note)
    return Row(job["id"], tuple(lines.words([cell]) for cell in cells), screen.STATE_STYLES.get(job["state"], ""))


def head(now_shown: Snapshot, search: str, width: int, now: datetime, marks: Marks) -> Line:
    """Return the first line: the machine, the queue, and whether the daemon answers."""
    name = f"dibs {marks.dot} {now_shown.host}" if now_shown.host else "dibs"
    if now_shown.away:
        return lines.fitted(((f"{name}  ", "bold"), (now_shown.away, "bold red")), width, marks)
    if now_shown.jobs is None:
        return ((f"{name}  connecting", "bold"),)
    counts = now_shown.jobs["counts"]
    parts = [f"{counts[word]:,} {word}" for word in status_view.UNFINISHED if counts.get(word)]
    more = snapshot.unlisted(now_shown)
    parts += [f"{more:,} of them not listed"] if more and not search else []
    parts += ["paused"] if now_shown.jobs["queue"]["paused"] else []
    parts += [f'search "{search}"'] if search else []
    left = f"{name}  {', '.join(parts) or 'nothing queued'}"
    return ((lines.apart(lines.words([left]), f"{now.astimezone():%H:%M:%S}", width), "bold"),)


def detail(job: Job | None, now_shown: Snapshot, search: str) -> str:
    """Return the whole sentence about the chosen job, for which its row has no room: why it waits, or its command; or
    what to do if there is no job."""
    if job is None:
        if now_shown.jobs is None or now_shown.away:
            return ""
        return "no job matches; Esc ends the search" if search else "no jobs yet; n submits one"
    reason = job["reason"] if job["state"] in job_state.WAITING else ""
    return lines.words([f"job {job['id']}:", reason or status_view.remark(job) or job["command"]])
