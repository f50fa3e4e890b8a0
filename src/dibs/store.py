"""The durable memory of the queue: SQLite, one writer, readers beside it.

Every change of a job goes through `Store.record`, which asks `lifecycle` and writes row and event in one transaction.
Many changes may share one commit (`Store.batch`); a commit returns only when the disk has it. All SQL is in `sql/`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from dibs import lifecycle, selection
from dibs.devices import DeviceId
from dibs.errors import Bug, MachineError, NotFound, UserError
from dibs.jobs import Asked, Cause, Job, JobId, Outcome, Request, State
from dibs.scheduling import Active, Waiting

#: "dibs" in ASCII: tells our files from other SQLite files.
APPLICATION_ID = 0x64696273
#: One file a version, applied in order; the schema is their sum.
MIGRATIONS = ("001_schema.sql",)
#: Automatic copies kept beside the database.
BACKUPS_KEPT = 3

PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
"""


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


def read_sql(name: str) -> str:
    """Return one of the files in `sql/`."""
    return resources.files("dibs").joinpath("sql", name).read_text()


def named_queries(text: str) -> dict[str, str]:
    """Return the queries of a file by their `-- name:` lines, with {columns} filled in."""
    queries: dict[str, str] = {}
    for block in text.split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        queries[name.strip()] = "\n".join(lines).strip()
    return {name: query.replace("{columns}", queries["columns"]) for name, query in queries.items()}


class Reader:
    """Questions to the store. Each connection belongs to one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.queries = named_queries(read_sql("queries.sql"))

    @classmethod
    def open(cls, path: Path) -> Reader:
        """Open read-only; the writer has made the file."""
        uri = f"file:{_quoted(path)}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5)
        return cls(connection)

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
        return job_of(row)

    def last_id(self) -> int:
        """Return the newest id ever given; 0 before the first."""
        return int(self._ask("last_id").fetchone()[0])

    def active(self) -> list[Job]:
        """Return the jobs with an attempt under way."""
        return [job_of(row) for row in self._ask("active")]

    def active_devices(self) -> list[Active]:
        """Return who uses what, as the plan sees it."""
        return [Active(JobId(job_id), _devices(allocation)) for job_id, allocation in self._ask("active_devices")]

    def head(self, most: int) -> list[Waiting]:
        """Return the first `most` queued jobs of each distinct request: more can never start in one plan."""
        found = []
        for request_id, gpus, gpu_ids, prefer, gpu_type in self._ask("lines"):
            request = Request(gpus, _devices(gpu_ids), _devices(prefer), gpu_type or None)
            rows = self._ask("head_of_line", {"request": request_id, "most": most})
            found += [Waiting(JobId(job_id), request, priority) for job_id, priority in rows]
        return found

    def overview(self, unfinished: int, finished: int) -> list[Job]:
        """Return unfinished jobs and the latest finished ones, in order of id."""
        rows = self._ask("unfinished", {"most": unfinished}).fetchall()
        rows += self._ask("lately_finished", {"most": finished}).fetchall()
        return sorted((job_of(row) for row in rows), key=lambda job: job.id)

    def select(self, chosen: selection.Selection, now: int, most: int = -1) -> list[Job]:
        """Return the jobs that a selection means, in order of id."""
        where, values = self._where(chosen, now)
        query = self.queries["selected"].replace("{where}", where).replace(":most", "?")
        return [job_of(row) for row in self.connection.execute(query, [*values, most])]

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

    def queued_before(self, job: Job) -> int:
        """Return how many queued jobs are served before this one."""
        values = {"priority": job.asked.priority, "id": job.id}
        return int(self._ask("queued_before", values).fetchone()[0])

    def events(self, job_id: JobId) -> list[Happening]:
        """Return all that happened to a job."""
        return [Happening(*row) for row in self._ask("events_of", {"job": job_id})]

    def attempts(self, job_id: JobId) -> list[PastAttempt]:
        """Return the finished attempts of a job."""
        return [
            PastAttempt(n, Outcome(outcome), Cause(cause) if cause else None, code, sig, _devices(allocation), *times)
            for n, outcome, cause, code, sig, allocation, *times in self._ask("attempts_of", {"job": job_id})
        ]

    def environ(self, environ_id: int | None) -> bytes:
        """Return a captured environment; empty where none was captured."""
        row = self._ask("environ", {"id": environ_id}).fetchone()
        return bytes(row[0]) if row else b""

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
        if not path.exists():
            # Made by us with our mode before SQLite can make it with another.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
            _check_ours(connection, path)
            connection.executescript(PRAGMAS)
            _migrate(connection, path)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise _unopened(path, error) from error
            raise
        return cls(connection)

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

    def submit(self, many: Sequence[Asked], now: int) -> list[JobId]:
        """Queue jobs in the order given; return their ids, which follow each other."""
        first = self.last_id() + 1
        requests: dict[Request, int] = {}
        for asked in many:
            if asked.request not in requests:
                requests[asked.request] = self._keep_request(asked.request)
        rows = (_submitted_row(job_id, asked, requests[asked.request], now) for job_id, asked in enumerate(many, first))
        self.connection.executemany(self.queries["add_job"], rows)
        last = first + len(many) - 1
        self._ask("add_submitted_events", {"first": first, "last": last})
        return [JobId(n) for n in range(first, last + 1)]

    def _keep_request(self, request: Request) -> int:
        values = {
            "gpus": request.gpus,
            "gpu_ids": json.dumps(request.gpu_ids),
            "prefer": json.dumps(request.prefer),
            "gpu_type": request.gpu_type or "",
        }
        self._ask("add_request", values)
        return int(self._ask("find_request", values).fetchone()[0])

    def record(self, job: Job, event: lifecycle.Event, detail: str = "") -> Job:
        """Keep what an event made of a job, and the event itself; return the job as it stands now."""
        moved = lifecycle.advance(job, event)
        changed = self._ask("move", _moved_row(job, moved))
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
        row = _moved_row(job, job)
        keys = ("attempt", "outcome", "cause", "exit_code", "signal", "allocation", "started_at", "finished_at")
        self._ask("add_attempt", {"job": job.id} | {key: row[key] for key in keys})

    def set_fact(self, name: str, value: str) -> None:
        """Set a fact about the queue as a whole."""
        self._ask("set_fact", {"name": name, "value": value})


def backup(path: Path) -> Path:
    """Copy the database beside itself through a connection of its own; keep the newest few copies."""
    folder = path.parent / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    numbers = sorted(int(old.suffix[1:]) for old in folder.glob(f"{path.name}.*") if old.suffix[1:].isdigit())
    target = folder / f"{path.name}.{(numbers or [0])[-1] + 1}"
    # Renamed when it is whole: what a crash leaves half written never counts as a copy.
    partial = folder / f"{path.name}.partial"
    for leftover in folder.glob(f"{partial.name}*"):
        leftover.unlink()
    with contextlib.closing(Reader.open(path)) as reader, contextlib.closing(sqlite3.connect(partial)) as copy:
        partial.chmod(0o600)
        reader.connection.backup(copy)
    partial.rename(target)
    for number in numbers[: 1 - BACKUPS_KEPT]:
        (folder / f"{path.name}.{number}").unlink()
    return target


def job_of(row: Sequence[Any]) -> Job:
    """Return the job in a row of {columns}."""
    (job_id, command, argv, cwd, gpus, gpu_ids, prefer, gpu_type, name, project, priority, time_limit_s, env, umask,
     output, stderr, tags, visible, environ, submitted_at, state, outcome, cause, attempt, start, dead_starts,
     allocation, *rest) = row  # fmt: skip
    asked = Asked(
        command=command,
        argv=None if argv is None else tuple(json.loads(argv)),
        cwd=cwd,
        request=Request(gpus, _devices(gpu_ids), _devices(prefer), gpu_type or None),
        name=name,
        project=project,
        priority=priority,
        time_limit_s=time_limit_s,
        env=tuple((key, value) for key, value in json.loads(env)),
        umask=umask,
        output=output,
        stderr=stderr,
        tags=tuple(json.loads(tags)),
        visible=visible,
        environ_id=environ,
    )
    return Job(
        JobId(job_id), asked, submitted_at, State(state), Outcome(outcome) if outcome else None,
        Cause(cause) if cause else None, attempt, start, dead_starts, _devices(allocation), *rest,
    )  # fmt: skip


def _submitted_row(job_id: int, asked: Asked, request_id: int, now: int) -> dict[str, Any]:
    return {
        "id": job_id,
        "command": asked.command,
        "argv": None if asked.argv is None else json.dumps(asked.argv),
        "cwd": asked.cwd,
        "request": request_id,
        "name": asked.name,
        "project": asked.project,
        "priority": asked.priority,
        "time_limit_s": asked.time_limit_s,
        "env": json.dumps(asked.env) if asked.env else "[]",
        "umask": asked.umask,
        "output": asked.output,
        "stderr": asked.stderr,
        "tags": json.dumps(asked.tags) if asked.tags else "[]",
        "visible": asked.visible,
        "environ": asked.environ_id,
        "submitted_at": now,
    }


def _moved_row(before: Job, job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "state_before": before.state.value,
        "state": job.state.value,
        "outcome": job.outcome.value if job.outcome else None,
        "cause": job.cause.value if job.cause else None,
        "attempt": job.attempt,
        "start": job.start,
        "dead_starts": job.dead_starts,
        "allocation": json.dumps(job.allocation) if job.allocation else "[]",
        "pid": job.pid,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "remark": job.remark,
    }


def _devices(text: str) -> tuple[DeviceId, ...]:
    return () if text == "[]" else tuple(DeviceId(word) for word in json.loads(text))


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _check_ours(connection: sqlite3.Connection, path: Path) -> None:
    app = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if app != APPLICATION_ID and (
        app or version or connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    ):
        raise UserError(
            f"{path} is not a database of dibs; it was left alone.", "Choose another folder with DIBS_HOME."
        )
    if version > len(MIGRATIONS):
        raise UserError(
            f"{path} was written by a newer dibs (schema {version}, this one knows {len(MIGRATIONS)}).",
            "Upgrade dibs, or choose another folder with DIBS_HOME.",
        )
    # SQLite reads the missing end of the last page as zeros and calls the file sound. While there is a log, a crash
    # in the middle of a checkpoint may have left it so, and the log makes it whole.
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    log = path.with_name(f"{path.name}-wal")
    if path.stat().st_size % page_bytes and not (log.exists() and log.stat().st_size):
        raise _damaged(path, "it ends in the middle of a page")
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _damaged(path, found)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if 0 < version < len(MIGRATIONS):
        backup(path)
    for number, name in enumerate(MIGRATIONS[version:], version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{read_sql(name)}\n"
            f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {number};\nCOMMIT;"
        )


def _unopened(path: Path, error: sqlite3.Error) -> MachineError:
    # The low byte is the kind of trouble; the others tell its details.
    if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, error)
    return MachineError(f"{path} cannot be opened ({error}).", "Is the disk full, or does somebody else use the file?")


def _damaged(path: Path, found: object) -> MachineError:
    # SQLite's own check answers in several lines.
    what = " ".join(str(found).split())
    return MachineError(
        f"{path} is damaged ({what}); it was left as it is.",
        f"Move it away and put the newest copy from {path.parent / 'backups'} in its place, or start afresh.",
    )
