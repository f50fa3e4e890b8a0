"""The screen of `dibs status` on a terminal: the machine, and running, next and recently finished jobs.

Jobs that were submitted together share a row. No I/O: it takes the daemon's answer and the time, and returns text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from dibs.cli import screen
from dibs.cli.screen import Column, Screen
from dibs.client import job_state
from dibs.client.answers import Job, Jobs, Machine, Share
from dibs.client.queries import Starts
from dibs.logs import reports
from dibs.model import selectors, units

EMPTY = "No jobs yet. Queue one: dibs add python train.py"
PAUSED = "the queue is paused: nothing new starts; dibs resume"
#: In the order of display.
COUNTED = ("running", "starting", "stopping", "paused", "queued", "held", "failed", "timeout", "lost")

#: Minimum number of jobs of one submission that share a row; fewer get a row each.
FOLD_FROM = 4
#: Maximum number of rows in each part: more would not be a better overview.
ACTIVE_ROWS, NEXT_ROWS, FINISHED_ROWS = 24, 8, 6
#: Terminal width from which the command has its own column.
WIDE = 110
#: Longest name in characters, to leave room for the reason.
LONGEST_NAME = 20
#: Lines of a reason; `dibs why` shows all of it.
REASON_LINES = 3


#: One row of the table: a job, or several that belong together. The first represents the row: it is the first active
#: one, else the next to start.
Row = tuple[Job, ...]


def paint(view: Screen, answer: Jobs, now: datetime, starts: Starts | None = None) -> str:
    """Return the whole screen; `starts` has the jobs that are expected to start next, and when."""
    starts = starts or {}
    machine = answer["machine"]
    names = {job["id"]: job["name"] for job in answer["jobs"]}
    lines = [screen.wrapped(view, screen.clean(headline(answer)), "  ")]
    if gpus := gpu_line(machine, names):
        lines.append(screen.wrapped(view, screen.clean(gpus), "    "))
    lines += [screen.wrapped(view, screen.clean(warning), "  ") for warning in warnings(machine)]
    if not answer["jobs"]:
        return "\n".join([*lines, EMPTY])
    parts = arrange(answer["jobs"], starts)
    shown = [rows[:most] for rows, most in zip(parts, (ACTIVE_ROWS, NEXT_ROWS, FINISHED_ROWS), strict=True)]
    lines.append(_table(view, shown, now, starts))
    waiting = sum(answer["counts"].get(word, 0) for word in job_state.WAITING)
    listed = sum(job["state"] in job_state.WAITING for rows in shown[:2] for row in rows for job in row)
    if waiting > listed:
        lines.append(f"{waiting - listed:,} more wait: dibs status unfinished")
    return "\n".join(lines)


def headline(answer: Jobs) -> str:
    """Return a summary of the machine and its queue in one line."""
    machine, counts = answer["machine"], answer["counts"]
    gpus = [f"{machine['gpus']} GPU{'' if machine['gpus'] == 1 else 's'}, {machine['free']} free"]
    devices = machine.get("devices", [])
    for state in ("drained", "unhealthy", "foreign"):
        if count := sum(device["state"] == state for device in devices):
            gpus.append(f"{count} {state}")
    users = [device["user"] for device in devices if device["user"]]
    gpus += [f"{users.count(user)} held by {user}" for user in dict.fromkeys(users)]
    parts = [f"{counts[word]:,} {word}" for word in COUNTED if counts.get(word)]
    queue = ", ".join(parts) or "nothing queued"
    paused = f"; {PAUSED}" if answer["queue"]["paused"] else ""
    return f"{', '.join(gpus) if machine['gpus'] else 'no GPUs'}; {queue}{paused}"


def gpu_line(machine: Machine, names: dict[int, str]) -> str:
    """Return who holds which GPU, each holder once: `GPU 0,1: job 12 vit · 2: bob · 3-7: free`."""
    held: dict[str, list[int]] = {}
    for device in machine.get("devices", []):
        who = screen.middle(device["state"], 24)
        if shares := [holder for holder in device.get("holders", []) if holder["vram"]]:
            who = ", ".join(_share(holder) for holder in shares)
        elif device["job"] is not None:
            who = screen.middle(f"job {device['job']} {names.get(device['job'], '')}".rstrip(), 24)
        elif device["user"]:
            who = screen.middle(device["user"], 24)
        held.setdefault(who, []).append(device["index"])
    return " · ".join(
        f"{'' if place else 'GPU '}{selectors.ranges(indices)}: {who}"
        for place, (who, indices) in enumerate(held.items())
    )


def _share(holder: Share) -> str:
    """Return a holder that shares a device, and its share: `job 12 6G`."""
    who = f"job {holder['job']}" if holder["job"] is not None else holder["user"] or "somebody"
    return f"{screen.middle(who, 24)} {units.format_size(holder['vram'] or 0)}"


def warnings(machine: Machine) -> list[str]:
    """Return warnings: hidden or unreadable devices, a disk that is almost full, or starts that the machine refuses."""
    restriction = f"restricted: {machine['restriction']}" if machine["restriction"] else ""
    return [text for text in (restriction, machine["problem"], machine.get("disk"), machine.get("starts")) if text]


def arrange(jobs: Sequence[Job], starts: Starts) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows of active jobs, of waiting jobs, and of finished jobs with the latest first."""
    unfinished = [job for job in jobs if not job_state.is_finished(job)]
    finished = sorted(
        (job for job in jobs if job_state.is_finished(job)), key=lambda job: (job["finished_at"] or "", job["id"])
    )
    rows = fold(sorted(unfinished, key=lambda job: _turn(job, starts)), lambda job: "")
    active = [row for row in rows if row[0]["state"] not in job_state.WAITING]
    waiting = [row for row in rows if row[0]["state"] in job_state.WAITING]
    return active, waiting, fold(reversed(finished), lambda job: job["state"])


def _turn(job: Job, starts: Starts) -> tuple[object, ...]:
    """Return the sort key: active jobs, then by expected start, priority and age; held jobs come last."""
    is_waiting = job["state"] in job_state.WAITING
    # Sorts after any time: the start is unknown.
    expected = starts[job["id"]]["earliest"] if is_waiting and job["id"] in starts else "~"
    return (is_waiting, job["state"] == "held", expected if is_waiting else "", -job["priority"], job["id"])


def fold(jobs: Iterable[Job], apart: Callable[[Job], str]) -> list[Row]:
    """Return rows in the order of the jobs; many jobs of one submission share a row if `apart` is equal."""
    groups: dict[object, list[Job]] = {}
    for job in jobs:
        groups.setdefault((together(job), apart(job)), []).append(job)
    rows: list[Row] = []
    for group in groups.values():
        rows += [tuple(group)] if len(group) >= FOLD_FROM else [(job,) for job in group]
    return rows


def together(job: Job) -> object:
    """Return what jobs of one group have in common: a sweep, a batch, or the time of submission."""
    if job["sweep"]:
        return ("sweep", job["project"], job["sweep"])
    return ("batch", job["batch"]) if job.get("batch") else ("moment", job["submitted_at"])


def _table(view: Screen, parts: Sequence[Sequence[Row]], now: datetime, starts: Starts) -> str:
    is_wide = view.width is None or view.width >= WIDE
    columns = [
        Column("ID", least=4, is_right=True),
        Column("NAME", least=8),
        Column("STATE", is_state=True),
        Column("GPU", least=3),
        Column("TIME", is_right=True),
        Column("REASON" if is_wide else "REASON, COMMAND", least=24, is_sentence=True, most_lines=REASON_LINES),
    ]
    if is_wide:
        columns.append(Column("COMMAND", least=24))
    rows: list[tuple[str, ...]] = []
    first_with: dict[str, int] = {}
    for part in parts:
        rows += [()] if rows and part else []
        rows += [_cells(row, _note(row, first_with), _when(row[0], now, starts), is_wide) for row in part]
    return screen.table(view, columns, rows)


def _note(row: Row, first_with: dict[str, int]) -> str:
    """Return the note of a row; a reason that was already shown refers to the first job with it."""
    job = row[0]
    if len(row) > 1:
        return _tally(row)
    if not job["reason"]:
        return remark(job)
    first = first_with.setdefault(job["reason"], job["id"])
    return job["reason"] if first == job["id"] else f"as job {first}"


def _cells(row: Row, note: str, when: str, is_wide: bool) -> tuple[str, ...]:
    job = row[0]
    cells = (
        screen.middle(selectors.ranges(each["id"] for each in row), 17),
        screen.middle(_name(row), LONGEST_NAME),
        job["state"],
        _gpu(row),
        when,
    )
    if is_wide:
        return (*cells, note, job["command"])
    return (*cells, note or job["command"])


def _name(row: Row) -> str:
    name = row[0]["name"]
    return row[0]["sweep"] or (name if all(job["name"] == name for job in row) else f"{name}, ...")


def _tally(row: Row) -> str:
    """Return the number of jobs per state in a folded row, and the first reason for waiting."""
    states = [job["state"] for job in row]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    waits = next((job["reason"] for job in row if job["reason"]), None)
    return f"{counts}{f'; {waits}' if waits else ''}"


def _gpu(row: Row) -> str:
    indices = {index for job in row for index in job["gpu_indices"]}
    is_short = len(row) == 1 and len(indices) <= 2
    return gpu_of(row[0]) if is_short else selectors.ranges(indices) or gpu_of(row[0])


def gpu_of(job: Job) -> str:
    """Return the GPUs of a job, or how many it waits for."""
    if job["gpu_indices"]:
        return ",".join(str(index) for index in job["gpu_indices"])
    return f"x{job['gpus']}" if job["gpus"] and job["state"] in job_state.WAITING else ""


def _when(job: Job, now: datetime, starts: Starts) -> str:
    """Return when a job is expected to start, if known, else its time."""
    if job["id"] not in starts or job["state"] not in job_state.WAITING:
        return time_of(job, now)
    soonest, latest = (
        units.format_duration(max(0.0, (datetime.fromisoformat(moment) - now).total_seconds()))
        for moment in (starts[job["id"]]["earliest"], starts[job["id"]]["latest"])
    )
    return f"in {latest}" if soonest == latest else f"in <{latest}" if soonest == "0s" else f"in {soonest}-{latest}"


def time_of(job: Job, now: datetime) -> str:
    """Return how long a job has been running or waiting, or how long ago it ended."""
    if job["finished_at"]:
        return f"{units.format_duration(screen.since_s(job['finished_at'], now))} ago"
    is_waiting = job["state"] in job_state.WAITING
    begun = job["submitted_at"] if is_waiting else job["started_at"] or job["submitted_at"]
    return units.format_duration(screen.since_s(begun, now))


def remark(job: Job) -> str:
    """Return why a job waits, why it did not succeed, or its last reported numbers."""
    if job["reason"]:
        return job["reason"]
    if job.get("marks"):
        return "; ".join(job["marks"])
    if job["state"] in ("failed", "cancelled", "timeout", "lost"):
        return cause(job)
    return reports.shown(job.get("report") or {})


def cause(job: Job) -> str:
    """Return why a finished job did not succeed."""
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
