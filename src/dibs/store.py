"""The durable memory of the queue: SQLite, one writer, readers beside it.

Every change of a job goes through `Store.record`, which asks `lifecycle` and writes row and event in one transaction.
Many changes may share one commit (`Store.batch`); a commit returns only when the disk has it. All SQL is in `sql/`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dibs import database, durations, lifecycle, rows, selection
from dibs.devices import DeviceId
from dibs.errors import Bug, NotFound, UserError
from dibs.jobs import Asked, Cause, Job, JobId, Outcome, Request, When
from dibs.scheduling import Active, Waiting


@dataclass(frozen=True, slots=True)
class Happening:
    """One row of the event table."""

    at: int
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One finished attempt of a job."""

    attempt: int
    outcome: Outcome
    cause: Cause | None
    exit_code: int | None
    signal: int | None
    allocation: tuple[DeviceId, ...]
    started_at: int | None
    finished_at: int


@dataclass(frozen=True, slots=True)
class BatchTally:
    """How a batch stands; `bad` counts bad ends, of which one job may have had several."""

    size: int
    finished: int
    done: int
    bad: int


class Reader:
    """Questions to the store. Each connection belongs to one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.queries = database.named_queries()

    @classmethod
    def open(cls, path: Path) -> Reader:
        """Open read-only; the writer has made the file."""
        return cls(database.open_reader(path))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _ask(self, name: str, values: Mapping[str, Any] | None = None) -> sqlite3.Cursor:
        return self.connection.execute(self.queries[name], values or {})

    def job(self, job_id: JobId) -> Job:
        """Return one job; there being none is an error that names the newest."""
        row = self._ask("job", {"id": job_id}).fetchone() if -(2**63) <= job_id < 2**63 else None
        if row is None:
            last = self.last_id()
            raise NotFound(f"there is no job {job_id}" + (f" (the newest is {last})." if last else ": no job yet."))
        return rows.job_of(row)

    def last_id(self) -> int:
        """Return the newest id ever given; 0 before the first."""
        return int(self._ask("last_id").fetchone()[0])

    def active(self) -> list[Job]:
        """Return the jobs with an attempt under way."""
        return [rows.job_of(row) for row in self._ask("active")]

    def active_devices(self) -> list[Active]:
        """Return who uses what, as the plan sees it."""
        return [
            Active(JobId(job_id), rows.devices_of(allocation), cpus, mem, limit_s or None, started_at, batch)
            for job_id, allocation, cpus, mem, limit_s, started_at, batch in self._ask("active_devices")
        ]

    def head(self, most: int) -> list[Waiting]:
        """Return the first `most` jobs of each line: more can never start in one plan."""
        found = []
        for request_id, *request, batch, room in self._ask("lines").fetchall():
            shape = rows.request_of(request)
            line = {"request": request_id, "batch": batch, "most": most}
            found += [Waiting(JobId(i), shape, p, batch, room) for i, p in self._ask("head_of_line", line)]
        return found

    def overview(self, unfinished: int, finished: int) -> list[Job]:
        """Return unfinished jobs and the latest finished ones, in order of id."""
        found = self._ask("unfinished", {"most": unfinished}).fetchall()
        found += self._ask("lately_finished", {"most": finished}).fetchall()
        return sorted((rows.job_of(row) for row in found), key=lambda job: job.id)

    def select(self, chosen: selection.Selection, now: int, most: int = -1) -> list[Job]:
        """Return the jobs that a selection means, in order of id."""
        where, values = self._where(chosen, now)
        query = self.queries["selected"].replace("{where}", where).replace(":most", "?")
        return [rows.job_of(row) for row in self.connection.execute(query, [*values, most])]

    def select_ids(self, chosen: selection.Selection, now: int) -> list[JobId]:
        """Return the ids of the jobs that a selection means."""
        where, values = self._where(chosen, now)
        query = self.queries["selected_ids"].replace("{where}", where)
        return [JobId(row[0]) for row in self.connection.execute(query, values)]

    def tally(self, chosen: selection.Selection, now: int) -> dict[str, int]:
        """Count the jobs of a selection by the word that outputs show."""
        if chosen == ((selection.Everything(),),):
            return {word: count for word, count in self.counts().items() if count}
        where, values = self._where(chosen, now)
        query = self.queries["tally"].replace("{where}", where)
        return dict(self.connection.execute(query, values).fetchall())

    def counts(self) -> dict[str, int]:
        """Return how many jobs show each word."""
        return dict(self._ask("counts").fetchall())

    def events(self, job_id: JobId) -> list[Happening]:
        """Return all that happened to a job."""
        return [Happening(*row) for row in self._ask("events_of", {"job": job_id})]

    def attempts(self, job_id: JobId) -> list[PastAttempt]:
        """Return the finished attempts of a job."""
        return [
            PastAttempt(
                n, Outcome(outcome), Cause(cause) if cause else None, code, sig, rows.devices_of(allocation), *times
            )
            for n, outcome, cause, code, sig, allocation, *times in self._ask("attempts_of", {"job": job_id})
        ]

    def outcomes(self, job_id: JobId) -> list[tuple[JobId, When, Outcome | None]]:
        """Return what became of the jobs that a job waits for; None: nothing yet."""
        found = self._ask("outcomes", {"id": job_id})
        return [(JobId(n), When(when), Outcome(outcome) if outcome else None) for n, when, outcome in found]

    def dependants(self, job_id: JobId) -> list[JobId]:
        """Return the jobs that wait, or waited, for this one."""
        return [JobId(row[0]) for row in self._ask("dependants", {"id": job_id}).fetchall()]

    def first_dependants(self, job_id: JobId, most: int) -> list[JobId]:
        """Return the oldest of the jobs that wait, or waited, for this one."""
        return [JobId(row[0]) for row in self._ask("first_dependants", {"id": job_id, "most": most}).fetchall()]

    def to_begin(self, now: int, most: int) -> list[tuple[JobId, int]]:
        """Return the jobs whose time comes next, and when."""
        found = self._ask("to_begin", {"now": now, "most": most})
        return [(JobId(job_id), begin_at) for job_id, begin_at in found.fetchall()]

    def batch_room(self, batch: int) -> int | None:
        """Return how many more of a batch may be under way; None: any number."""
        row = self._ask("batch_room", {"id": batch}).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def runtimes(self, likeness: str) -> list[float]:
        """Return how many seconds the latest jobs of a likeness took that ended well."""
        return [took_ms / 1000 for (took_ms,) in self._ask("runtimes", {"likeness": _digest(likeness)})]

    def due(self, since: int, now: int) -> list[JobId]:
        """Return the jobs whose time has come in between."""
        return [JobId(row[0]) for row in self._ask("due", {"since": since, "now": now}).fetchall()]

    def next_begin(self, now: int) -> int | None:
        """Return the moment at which the next job may begin; None if none waits for its time."""
        found = self._ask("next_begin", {"now": now}).fetchone()[0]
        return None if found is None else int(found)

    def batch_tally(self, batch: int) -> BatchTally:
        """Return how a batch stands."""
        return BatchTally(*self._ask("batch", {"id": batch}).fetchone())

    def environ(self, environ_id: int | None) -> bytes:
        """Return a captured environment; empty where none was captured."""
        row = self._ask("environ", {"id": environ_id}).fetchone()
        return bytes(row[0]) if row else b""

    def script(self, script_id: int | None) -> bytes | None:
        """Return the text of a script; None where there is none."""
        row = None if script_id is None else self._ask("script", {"id": script_id}).fetchone()
        return None if row is None else bytes(row[0])

    def fact(self, name: str) -> str | None:
        """Return a fact about the queue as a whole; None if it was never set."""
        row = self._ask("fact", {"name": name}).fetchone()
        return None if row is None else str(row[0])

    def _where(self, chosen: selection.Selection, now: int) -> tuple[str, list[Any]]:
        values: list[Any] = []
        unions = []
        for atoms in chosen:
            parts = [self._condition(atom, now, values) for atom in atoms]
            unions.append("(" + " AND ".join(parts) + ")")
        return " OR ".join(unions) or "0", values

    def _condition(self, atom: selection.Atom, now: int, values: list[Any]) -> str:
        match atom:
            case selection.Ids(ranges):
                values.append(json.dumps(ranges))
                return self.queries["where_ids"]
            case selection.Last(back):
                values.append(min(back, 2**62))
                return self.queries["where_last"]
            case selection.InState(words):
                values += words
                return self._any("where_word", len(words))
            case selection.Since(seconds):
                values.append(now - round(seconds * 1000))
                return self.queries["where_since"]
            case selection.Like("sweep", pattern):
                raise UserError(f'there is no sweep "{pattern}".')
            case selection.Like(field, pattern):
                values.append(pattern)
                return self.queries[f"where_{field}"]
            case selection.Everything():
                return self.queries["where_all"]

    def _any(self, name: str, times: int) -> str:
        return "(" + " OR ".join([self.queries[name]] * times) + ")"


class Store(Reader):
    """The one writer. Methods that change anything are called inside `batch`."""

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open the database, making or upgrading it where needed; refuse one that is not ours, newer, or damaged."""
        return cls(database.open_writer(path))

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Keep all changes made inside, or none of them; on the disk when it returns."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Undo what was done inside if it raises, without losing the rest of the batch."""
        self.connection.execute("SAVEPOINT step")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK TO step")
            raise
        finally:
            if self.connection.in_transaction:
                self.connection.execute("RELEASE step")

    def keep_environ(self, blob: bytes) -> int:
        """Keep a captured environment, once per content; return its id."""
        digest = hashlib.sha256(blob).digest()
        self._ask("add_environ", {"digest": digest, "body": blob})
        return int(self._ask("find_environ", {"digest": digest}).fetchone()[0])

    def keep_script(self, body: bytes) -> int:
        """Keep the text of a script, once per content; return its id."""
        digest = hashlib.sha256(body).digest()
        self._ask("add_script", {"digest": digest, "body": body})
        return int(self._ask("find_script", {"digest": digest}).fetchone()[0])

    def submit(self, many: Sequence[Asked], now: int) -> list[JobId]:
        """Queue jobs in the order given; return their ids, which follow each other."""
        first = self.last_id() + 1
        requests: dict[Request, int] = {}
        for asked in many:
            if asked.request not in requests:
                requests[asked.request] = self._keep_request(asked.request)
        new = (
            rows.submitted_row(job_id, asked, requests[asked.request], now, _is_ready(asked, now))
            for job_id, asked in enumerate(many, first)
        )
        self.connection.executemany(self.queries["add_job"], new)
        needs = (
            {"job": job_id, "needs": need.id, "when": need.when.value}
            for job_id, asked in enumerate(many, first)
            for need in asked.after
        )
        self.connection.executemany(self.queries["add_dependency"], needs)
        last = first + len(many) - 1
        self._ask("add_submitted_events", {"first": first, "last": last})
        return [JobId(n) for n in range(first, last + 1)]

    def _keep_request(self, request: Request) -> int:
        values = rows.request_row(request)
        self._ask("add_request", values)
        return int(self._ask("find_request", values).fetchone()[0])

    def record(self, job: Job, event: lifecycle.Event, detail: str = "") -> Job:
        """Keep what an event made of a job, and the event itself; return the job as it stands now."""
        moved = lifecycle.advance(job, event)
        changed = self._ask("move", rows.moved_row(job, moved))
        if changed.rowcount != 1:
            raise Bug(f"job {job.id} is no longer {job.word} in the store.")
        if moved.is_finished:
            self._keep_attempt(moved)
        self.note(moved.id, event.at, type(event).__name__, detail or moved.remark or "")
        return moved

    def note(self, job_id: JobId, at: int, kind: str, detail: str) -> None:
        """Add to what happened to a job without changing it."""
        self._ask("add_event", {"job": job_id, "at": at, "kind": kind, "detail": detail})

    def _keep_attempt(self, job: Job) -> None:
        row = rows.moved_row(job, job)
        keys = ("attempt", "outcome", "cause", "exit_code", "signal", "allocation", "started_at", "finished_at")
        self._ask("add_attempt", {"job": job.id} | {key: row[key] for key in keys})
        if job.outcome is Outcome.DONE and job.started_at is not None and job.finished_at is not None:
            # The clock may have been set back meanwhile.
            took_ms = max(0, job.finished_at - job.started_at)
            likeness = _digest(durations.likeness(job.asked))
            self._ask("add_runtime", {"likeness": likeness, "job": job.id, "took_ms": took_ms})

    def set_ready(self, job_id: JobId, is_ready: bool) -> None:
        """Let a queued job join the line, or keep it out."""
        self._ask("set_ready", {"id": job_id, "is_ready": is_ready})

    def add_batch(self, at_once: int | None, halt_after: int | None, size: int) -> int:
        """Keep the rules of a batch and of how many jobs it is; return its id."""
        cursor = self._ask("add_batch", {"at_once": at_once, "halt_after": halt_after, "size": size})
        return int(cursor.lastrowid or 0)

    def count_bad(self, batch: int) -> bool:
        """Count a bad end of a batch; tell whether it is the one after which the rest is held."""
        bad, halt_after = self._ask("batch_bad", {"id": batch}).fetchone()
        return bool(bad == halt_after)

    def hold_batch(self, batch: int, at: int, detail: str) -> None:
        """Record `lifecycle.HoldAsked` for all queued jobs of a batch at once: there may be a hundred thousand."""
        self._ask("tell_batch_held", {"batch": batch, "at": at, "detail": detail})
        self._ask("hold_batch", {"batch": batch})

    def skip_to(self, job_id: int) -> None:
        """Give no id up to this one: folders of such jobs exist, and their files would speak for others."""
        if job_id > self.last_id():
            self._ask("forget_last_id")
            self._ask("set_last_id", {"id": job_id})

    def set_fact(self, name: str, value: str) -> None:
        """Set a fact about the queue as a whole."""
        self._ask("set_fact", {"name": name, "value": value})


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def _is_ready(asked: Asked, now: int) -> bool:
    """Tell whether a new job may join the line at once; what it waits for is looked at after it was kept."""
    return not asked.after and (asked.begin_at is None or asked.begin_at <= now)
