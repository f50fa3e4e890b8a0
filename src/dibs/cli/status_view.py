"""The screen of `dibs status` on a terminal: the machine, and running, next and recently finished jobs.

Jobs that were submitted together share a row. No I/O: it takes the daemon's answer and the time, and returns text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dibs.cli import screen
from dibs.cli.screen import Column, Screen
from dibs.client import job_state
from dibs.client.answers import Group, Job, Jobs, Machine, Share
from dibs.client.queries import Starts
from dibs.logs import reports
from dibs.model import selectors, units
from dibs.model.jobs import LOCAL

EMPTY = "No jobs yet. Submit one: dibs add python train.py"
PAUSED = "the queue is paused; dibs resume"
#: In the order of display.
UNFINISHED = ("running", "starting", "stopping", "paused", "queued", "held")
#: The outcomes of a finished row with several: the first that it has is its state.
WORST = ("failed", "timeout", "lost", "cancelled", "done")

#: Minimum number of jobs of one submission that share a row; fewer get a row each.
FOLD_FROM = 4
#: Maximum number of rows in each part: more would not be a better overview.
ACTIVE_ROWS, NEXT_ROWS, FINISHED_ROWS = 24, 8, 6
#: Lines of a reason; `dibs why` shows all of it.
REASON_LINES = 3


class Row(NamedTuple):
    """One row of the table: a job, or several that belong together.

    The first job represents the row: it is the first active one, else the next to start, else the last to end.
    """

    jobs: tuple[Job, ...]
    #: The number of jobs per state, also of those that are not listed; empty: the row is one job.
    counts: Mapping[str, int]
    ids: str

    @property
    def first(self) -> Job:
        return self.jobs[0]


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
    parts = arrange(answer, starts)
    shown = [rows[:most] for rows, most in zip(parts, (ACTIVE_ROWS, NEXT_ROWS, FINISHED_ROWS), strict=True)]
    lines.append(table(view, shown, now, starts, is_brief=True))
    waiting = sum(answer["counts"].get(word, 0) for word in job_state.WAITING)
    listed = sum(_tally(row).get(word, 0) for rows in shown[:2] for row in rows for word in job_state.WAITING)
    if waiting > listed:
        lines.append(f"{waiting - listed:,} more are waiting: dibs status unfinished")
    return "\n".join(lines)


def headline(answer: Jobs) -> str:
    """Return a summary of the machine and its queue in one line."""
    machine, counts = answer["machine"], answer["counts"]
    gpus = [f"{machine['gpus']} GPU{'' if machine['gpus'] == 1 else 's'}, {machine['free']} free"]
    devices = machine.get("devices", [])
    for state in ("drained", "unhealthy", "foreign"):
        if count := sum(device["state"] == state for device in devices):
            gpus.append(f"{count} {state}")
    if count := sum(device.get("reserved_for") is not None for device in devices):
        gpus.append(f"{count} reserved")
    users = [device["user"] for device in devices if device["user"]]
    gpus += [f"{users.count(user)} held by {user}" for user in dict.fromkeys(users)]
    lately = answer.get("failed_lately", {})
    parts = [f"{counts[word]:,} {word}" for word in UNFINISHED if counts.get(word)]
    parts += [f"{lately[word]:,} {word} in 24 h" for word in WORST if lately.get(word)]
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
        elif device.get("reserved_for") is not None:
            who = f"reserved for job {device['reserved_for']}"
        elif device.get("kept_by"):
            who = f"free, left for others ({device['kept_by']})"
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


def arrange(answer: Jobs, starts: Starts) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows of active jobs, of waiting jobs, and of finished jobs with the latest first."""
    jobs = answer["jobs"]
    unfinished = [job for job in jobs if not job_state.is_finished(job)]
    finished = sorted(
        (job for job in jobs if job_state.is_finished(job)), key=lambda job: (job["finished_at"] or "", job["id"])
    )
    ordered = [*sorted(unfinished, key=lambda job: turn(job, starts)), *reversed(finished)]
    rows = fold(ordered, answer.get("groups", []))
    waiting = [row for row in rows if row.first["state"] in job_state.WAITING]
    over = [row for row in rows if job_state.is_finished(row.first)]
    return [row for row in rows if row not in waiting and row not in over], waiting, over


def turn(job: Job, starts: Starts) -> tuple[object, ...]:
    """Return the sort key: active jobs, then by expected start, priority and age; held jobs come last."""
    is_waiting = job["state"] in job_state.WAITING
    # Sorts after any time: the start is unknown.
    expected = starts[job["id"]]["earliest"] if is_waiting and job["id"] in starts else "~"
    return (is_waiting, job["state"] == "held", expected if is_waiting else "", -job["priority"], job["id"])


def fold(jobs: Iterable[Job], groups: Iterable[Group]) -> list[Row]:
    """Return rows in the order of the jobs; many jobs of one group share a row that counts all of the group."""
    whole = {together(group): group for group in groups}
    listed: dict[object, list[Job]] = {}
    for job in jobs:
        listed.setdefault(together(job), []).append(job)
    rows: list[Row] = []
    for key, members in listed.items():
        group = whole.get(key)
        counts = group["counts"] if group else Counter(job["state"] for job in members)
        if sum(counts.values()) >= FOLD_FROM:
            rows.append(Row(tuple(members), counts, _ids(members, group)))
        else:
            rows += [alone(job) for job in members]
    return rows


def alone(job: Job) -> Row:
    """Return the row of one job."""
    return Row((job,), {}, str(job["id"]))


def together(each: Job | Group) -> object:
    """Return what jobs of one group have in common: a sweep, a batch, or the time of submission."""
    if each["sweep"]:
        return ("sweep", each["project"], each["sweep"])
    return ("batch", each["batch"]) if each.get("batch") else ("moment", each["submitted_at"])


def _ids(members: Sequence[Job], group: Group | None) -> str:
    """Return the ids of a group; a gap is shown, because the range would then name other jobs too."""
    if group is None:
        return selectors.ranges(job["id"] for job in members)
    is_whole = group["last"] - group["first"] + 1 == sum(group["counts"].values())
    return f"{group['first']}{'-' if is_whole else '…'}{group['last']}"


def table(
    view: Screen, parts: Sequence[Sequence[Row]], now: datetime, starts: Starts | None = None, *, is_brief: bool = False
) -> str:
    """Return the rows as a table. A terminal shows durations and leaves out reasons if there are none.

    `is_brief`: a reason that several jobs have is written once.
    """
    first_with: dict[str, int] = {}
    notes = [[_note(row, first_with if is_brief else {}) for row in part] for part in parts]
    # A queue without clusters needs no column that says so.
    has_places = any(job.get("engine", LOCAL) != LOCAL for part in parts for row in part for job in row.jobs)
    has_notes = not view.is_terminal or any(note for part in notes for note in part)
    columns = [
        Column("ID", is_right=True),
        Column("NAME", least=8),
        Column("STATE", is_state=True),
        Column("GPU", least=3),
        *([Column("WHERE")] if has_places else []),
        Column("TIME" if view.is_terminal else "SINCE", is_right=view.is_terminal),
        *([Column("REASON", least=16, is_sentence=True, most_lines=REASON_LINES)] if has_notes else []),
        Column("COMMAND", least=12),
    ]
    rows: list[tuple[str, ...]] = []
    for part, own in zip(parts, notes, strict=True):
        rows += [()] if rows and part else []
        for row, note in zip(part, own, strict=True):
            job = row.first
            shown = when(job, now, starts or {}) if view.is_terminal else _moment(job)
            reason = [note] if has_notes else []
            place = [_place(row)] if has_places else []
            rows.append((row.ids, _name(row), _word(row), _gpu(row), *place, shown, *reason, job["command"]))
    return screen.table(view, columns, rows)


def _moment(job: Job) -> str:
    return screen.local(job["finished_at"] or job["started_at"] or job["submitted_at"])


def _note(row: Row, first_with: dict[str, int]) -> str:
    """Return the note of a row; a reason that was already shown refers to the first job with it."""
    job = row.first
    if row.counts:
        return _summary(row)
    if not job["reason"]:
        return remark(job)
    first = first_with.setdefault(job["reason"], job["id"])
    return job["reason"] if first == job["id"] else f"as job {first}"


def _name(row: Row) -> str:
    name = row.first["name"]
    if not row.counts:
        return name
    return row.first["sweep"] or (name if all(job["name"] == name for job in row.jobs) else f"{name}, ...")


def _word(row: Row) -> str:
    """Return the state of a row; for several finished jobs, the worst outcome."""
    if not row.counts or not job_state.is_finished(row.first):
        return row.first["state"]
    return next(word for word in WORST if row.counts.get(word))


def _tally(row: Row) -> Mapping[str, int]:
    return row.counts or {row.first["state"]: 1}


def _summary(row: Row) -> str:
    """Return the number of jobs per state in a folded row, and the first reason for waiting."""
    words = dict.fromkeys((*UNFINISHED, "done", *WORST))
    counts = ", ".join(f"{row.counts[word]:,} {word}" for word in words if row.counts.get(word))
    waits = next((job["reason"] for job in row.jobs if job["reason"]), None)
    return f"{counts}{f'; {waits}' if waits else ''}"


def _place(row: Row) -> str:
    """Return where the jobs of a row run: `local`, `lab:n2`, or several engines."""
    names = dict.fromkeys(job.get("engine", LOCAL) for job in row.jobs)
    if len(names) > 1:
        return ", ".join(names)
    nodes = {job.get("node") for job in row.jobs}
    node = next(iter(nodes)) if len(nodes) == 1 else None
    return f"{next(iter(names))}:{node}" if node else next(iter(names))


def _gpu(row: Row) -> str:
    if not row.counts:
        return gpu_of(row.first)
    if job_state.is_finished(row.first):
        return ""
    indices = {index for job in row.jobs if not job_state.is_finished(job) for index in job["gpu_indices"]}
    return selectors.ranges(indices) or gpu_of(row.first)


def gpu_of(job: Job) -> str:
    """Return the GPUs of a job, or how many it waits for."""
    if job["gpu_indices"]:
        is_short = len(job["gpu_indices"]) <= 2
        return ",".join(map(str, job["gpu_indices"])) if is_short else selectors.ranges(job["gpu_indices"])
    return f"x{job['gpus']}" if job["gpus"] and job["state"] in job_state.WAITING else ""


def when(job: Job, now: datetime, starts: Starts) -> str:
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
