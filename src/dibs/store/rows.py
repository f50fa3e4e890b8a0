"""Translate between rows of the store and values; defines the order of columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from dibs.model import fields, lifecycle, ranks
from dibs.model.devices import DeviceId
from dibs.model.fields import JobSpec
from dibs.model.jobs import After, Cause, Job, JobId, Member, Outcome, Request, State, When
from dibs.sweeps.records import Run, Search, Sweep, SweepSubmission

#: The columns of a `JobSpec`, and decoders for those that SQLite has no type for.
SPEC_COLUMNS = tuple(field.column or "" for field in fields.STORED)
_DECODERS = tuple((place, field.coder.decode) for place, field in enumerate(fields.STORED) if field.coder)
#: An empty row of a new job: to fill a copy is quicker than to grow a dictionary.
_EMPTY: dict[str, Any] = dict.fromkeys(("id", "request", "submitted_at", "is_ready", "rank", *SPEC_COLUMNS))
_spec_values = attrgetter(*(field.name for field in fields.STORED))
#: The attributes of a job that an event changes: those that are stored as they are, then all.
_MOVED = ("id", "attempt", "start", "dead_starts", "retried", "pid", "exit_code", "signal", "started_at",
          "finished_at", "remark", "evictions", "evicted_by", "leaves_at", "engine_ref", "node")  # fmt: skip
_moved_values = attrgetter(*_MOVED)
_CHANGING = ("state", "outcome", "cause", "allocation", *_MOVED)
_changing_values = attrgetter(*_CHANGING)
#: The assignments of columns from which others follow. A job that is stopped early has no cause of its own.
_MOVES = {
    "cause": "cause = nullif(:cause, 'early'), is_early = :cause IS 'early'",
    "start": "start = :start, has_checkpoints = has_checkpoints AND :start > 0",
}
_USUAL = JobSpec(command="", argv=None, cwd="")
#: Columns and encoders, with the value that most jobs have and its encoding: a call costs more than a comparison, and a
#: submission may have 100,000 jobs. SQLite stores flags as they are.
_ENCODERS = tuple(
    (field.column or "", field.coder.encode, usual := getattr(_USUAL, field.name), field.coder.encode(usual))
    for field in fields.STORED
    if field.coder and field.coder is not fields.FLAG
)
#: The positions of the fields without a column in `JobSpec`, ascending.
_NOT_STORED = tuple(place for place, field in enumerate(fields.SPEC) if not field.column)
#: Where the dependencies and the sweep, the spec, and the rest begin in a row of {columns}; the request begins at 1.
_BESIDE = 1 + len(fields.REQUEST)
_SPEC = _BESIDE + 2
_REST = _SPEC + len(SPEC_COLUMNS)
#: The columns that the submission of a sweep sets.
SWEEP_COLUMNS = ("project", "name", "command", "argv", "folder", "metric", "goal", "early_stop", "definition")
#: Where the search begins in a row of {sweep}.
_SEARCH = 12
#: How an attempt ended that gave its devices up; its job continues.
EVICTED = "evicted"
#: The columns of the table `arriving`, in order: what a `Member` defines of one of many similar jobs.
MEMBER_COLUMNS = ("command", "name", "number", "place", "argv", "point", "params", "folder")


def spec_fills() -> dict[str, str]:
    """Return the replacements for the spec columns in the queries."""

    def arriving(column: str) -> str:
        if column == "argv":
            return "coalesce(arriving.argv, :argv)"
        return f"arriving.{column}" if column in MEMBER_COLUMNS else f":{column}"

    return {
        "{spec}": ", ".join(SPEC_COLUMNS),
        "{jobs.spec}": ", ".join(f"jobs.{column}" for column in SPEC_COLUMNS),
        "{:spec}": ", ".join(f":{column}" for column in SPEC_COLUMNS),
        "{spec = :spec}": ", ".join(f"{column} = :{column}" for column in SPEC_COLUMNS),
        "{arriving.spec}": ", ".join(map(arriving, SPEC_COLUMNS)),
    }


def job_of(row: Sequence[Any]) -> Job:
    """Return the job in a row of {columns}."""
    after, sweep = row[_BESIDE:_SPEC]
    values = list(row[_SPEC:_REST])
    for place, decode in _DECODERS:
        values[place] = decode(values[place])
    needs = () if after is None else tuple(_after(part) for part in after.split(","))
    for place, value in zip(_NOT_STORED, (_request(*row[1:_BESIDE]), needs, sweep), strict=True):
        values.insert(place, value)
    # By position: every list of jobs is built here, and 35 keywords cost more than the rest.
    spec = JobSpec(*values)
    (submitted_at, state, outcome, cause, attempt, start, dead_starts, retried, is_ready, allocation,
     *rest) = row[_REST:]  # fmt: skip
    return Job(
        JobId(row[0]), spec, submitted_at, State(state), Outcome(outcome) if outcome else None,
        Cause(cause) if cause else None, attempt, start, dead_starts, retried, bool(is_ready), devices_of(allocation),
        *rest,
    )  # fmt: skip


#: Lists read the same rows repeatedly. Rows with equal columns are the same job, so a cached one is never stale.
listed_job_of = lru_cache(maxsize=2048)(job_of)


def _after(text: str) -> After:
    job_id, _, when = text.partition(":")
    return After(JobId(int(job_id)), When(when))


def request_of(row: Sequence[Any]) -> Request:
    """Return the request in a row."""
    return _request(*row)


# A queue has many jobs but few different requests, so the same text is read repeatedly.
@lru_cache(maxsize=1024)
def _request(
    gpus: int, gpu_ids: str, prefer: str, gpu_type: str, cpus: int, mem: int, limit_s: float, vram: int, ignores: int,
    evictable: str, engine: str,
) -> Request:  # fmt: skip
    ids, preferred = devices_of(gpu_ids), devices_of(prefer)
    shape = gpus, ids, preferred, gpu_type or None, cpus, mem, limit_s or None, vram, bool(ignores)
    return Request(*shape, evictable, engine)


def request_row(request: Request) -> dict[str, Any]:
    """Return the row of a request."""
    row = {field.name: getattr(request, field.name) for field in fields.REQUEST}
    devices = {"gpu_ids": json.dumps(request.gpu_ids), "prefer": json.dumps(request.prefer)}
    return row | devices | {"gpu_type": request.gpu_type or "", "limit_s": request.limit_s or 0.0}


def submitted_row(job_id: int, spec: JobSpec, request_id: int, now: int, is_ready: bool) -> dict[str, Any]:
    """Return the row of a new job."""
    row = _EMPTY.copy()
    row.update(zip(SPEC_COLUMNS, _spec_values(spec), strict=True))
    for column, encode, usual, encoded in _ENCODERS:
        value = row[column]
        row[column] = encoded if value is usual else encode(value)
    row["id"], row["request"], row["rank"] = job_id, request_id, ranks.rank_of_id(job_id)
    row["submitted_at"], row["is_ready"] = now, is_ready
    return row


def arriving_row(place: int, one: Member) -> tuple[object, ...]:
    """Return the row of `arriving` for one of many similar jobs."""
    argv = None if one.argv is None else json.dumps(one.argv)
    return place, one.command, one.name, one.number, one.place, argv, one.point, one.params, one.folder


def moved_row(before: Job, job: Job) -> dict[str, Any]:
    """Return the row with the state of a job after an event."""
    row: dict[str, Any] = dict(zip(_MOVED, _moved_values(job), strict=True))
    row["state_before"], row["state"] = before.state.value, job.state.value
    row["outcome"] = job.outcome.value if job.outcome else None
    row["cause"] = job.cause.value if job.cause else None
    row["allocation"] = _devices_text(job.allocation)
    row["engine"] = job.engine
    return row


def moved_columns(before: Job, job: Job) -> str:
    """Return the assignments of an UPDATE that stores what an event changed.

    SQLite checks the constraints and maintains the indexes and triggers of the columns that are assigned.
    """
    values = zip(_CHANGING, _changing_values(before), _changing_values(job), strict=True)
    names = [name for name, old, new in values if old != new] or ["state"]
    return ", ".join(_MOVES.get(name, f"{name} = :{name}") for name in names)


def evicted_row(job: Job, event: lifecycle.Evicted) -> dict[str, Any]:
    """Return the row of an attempt that was evicted."""
    started_at = job.started_at if event.started_at is None else event.started_at
    return moved_row(job, job) | {
        "outcome": EVICTED, "cause": None, "exit_code": event.exit_code, "signal": event.signal,
        "started_at": started_at, "finished_at": event.at,
    }  # fmt: skip


def sweep_row(wanted: SweepSubmission) -> dict[str, Any]:
    """Return the row of a sweep."""
    row = {name: getattr(wanted, name) for name in SWEEP_COLUMNS}
    return row | {"argv": None if wanted.argv is None else json.dumps(wanted.argv)}


def sweep_of(row: Sequence[Any]) -> Sweep:
    """Return the sweep in a row."""
    sweep_id, project, name, command, argv, *rest = row[:_SEARCH]
    found = Sweep(sweep_id, project, name, command, None if argv is None else tuple(json.loads(argv)), *rest)
    return found if row[_SEARCH] is None else replace(found, search=Search(*row[_SEARCH:]))


def run_of(row: Sequence[Any]) -> Run:
    """Return the run in a row."""
    job_id, attempt, index, params, word, cause, numbers, summaries, *times = row
    told = None if numbers is None else json.loads(numbers)
    summed = {name: tuple(one) for name, one in json.loads(summaries or "{}").items()}
    run_id = None if job_id is None else JobId(job_id)
    return Run(run_id, attempt, index, json.loads(params), word, cause, told, summed, *times)


@lru_cache(maxsize=1024)
def _devices_text(devices: tuple[DeviceId, ...]) -> str:
    return str(fields.WORDS.encode(devices))


@lru_cache(maxsize=1024)
def devices_of(text: str) -> tuple[DeviceId, ...]:
    """Return the devices in a column."""
    return () if text == "[]" else tuple(DeviceId(word) for word in json.loads(text))
