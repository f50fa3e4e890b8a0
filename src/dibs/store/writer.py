"""The writer of the store: SQLite with one writer and concurrent readers.

Every state change of a job goes through `Store.record`, which applies `lifecycle` and writes row and event in one
transaction. Many changes may share one commit (`Store.batch`), which returns only when the disk has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dibs.devices.usage import Key, Minute, Sample, Use
from dibs.errors import Bug
from dibs.model import fields, lifecycle, ranks, selectors
from dibs.model.fields import JobSpec
from dibs.model.jobs import WAITING, After, Job, JobId, Member, Outcome, Request, State
from dibs.scheduling import durations
from dibs.store import database, rows
from dibs.store.custody import Custody
from dibs.store.custody import FileGone as FileGone
from dibs.store.histories import digest
from dibs.store.query_results import BatchTally as BatchTally
from dibs.store.query_results import EventRow as EventRow
from dibs.store.query_results import Halt as Halt
from dibs.store.query_results import PastAttempt as PastAttempt
from dibs.store.reader import Reader as Reader
from dibs.sweeps.records import Search, SweepSubmission

#: Commits after which the log is copied into the file: as many as fit into the preallocated log.
SETTLE_AFTER = 64
#: Jobs of one submission that are in memory at a time.
ARRIVING = 20_000


@dataclass(frozen=True, slots=True)
class Retried:
    """Finished jobs that were queued again together."""

    #: The selected jobs, dependents that were cancelled because of them, and jobs whose dependencies must be checked.
    named: list[JobId]
    revived: list[JobId]
    needs_check: list[JobId]
    #: Jobs that share devices and ran out of memory.
    retry_alone: list[JobId]


@dataclass(frozen=True, slots=True)
class Ended:
    """Waiting jobs that ended together."""

    #: The selected jobs, dependents that can never run without them, and jobs whose dependencies must be checked.
    named: list[JobId]
    doomed: list[JobId]
    waiters: list[JobId]


class Store(Reader):
    """The only writer. Call methods that change anything inside `batch`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, is_checked: bool = True) -> None:
        super().__init__(connection)
        #: Whether the whole file was checked when it was opened; if not, run `database.Check`.
        self.is_checked = is_checked
        self.custody = Custody(connection, path)
        #: Cache of active jobs, and of jobs that ended in this batch, as last recorded. Cleared when in doubt.
        self._known: dict[JobId, Job] = {}
        self._commits = 0

    @classmethod
    def open(cls, path: Path, boot: str | None = None) -> Store:
        """Open the database as `database.open_writer` does."""
        connection, is_checked = database.open_writer(path, boot)
        try:
            return cls(connection, path, is_checked)
        except BaseException:
            connection.close()
            raise

    @contextlib.contextmanager
    def batch(self, *, is_synced: bool = True) -> Iterator[None]:
        """Commit all changes made inside, or none; they are on the disk when it returns.

        An unsynced batch survives a crash of the daemon, but not a power cut until a later batch is synced.
        Raise `FileGone` if the file is no longer ours: what is stored in a deleted file is lost.
        """
        self.custody.require_file()
        if not is_synced:
            self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            events = self.last_event()
            self.connection.execute("COMMIT")
            self._commits += 1
            self.custody.count(events)
            self._known = {job_id: job for job_id, job in self._known.items() if job.is_active}
        except BaseException:
            self._known.clear()
            self.histories.forget()
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        finally:
            if not is_synced:
                self.connection.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        """Close the connection and the file."""
        super().close()
        self.custody.close()

    def settle(self) -> None:
        """Copy the log into the file after many commits. Call it when no job waits for the disk."""
        if self._commits >= SETTLE_AFTER:
            self._commits = 0
            database.settle(self.connection)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Undo what was done inside if it raises, without losing the rest of the batch."""
        self.connection.execute("SAVEPOINT step")
        try:
            yield
        except BaseException as error:
            self._known.clear()
            self.histories.forget()
            # On a full disk SQLite has already rolled back the whole batch, and its error is the one to report.
            if self.connection.in_transaction or not isinstance(error, sqlite3.Error):
                self.connection.execute("ROLLBACK TO step")
            raise
        finally:
            if self.connection.in_transaction:
                self.connection.execute("RELEASE step")

    def job(self, job_id: JobId) -> Job:
        """Return one job, from the cache if it is active or just ended."""
        return self._known.get(job_id) or super().job(job_id)

    def keep_environ(self, blob: bytes) -> int:
        """Store a captured environment, once per content; return its id."""
        return self._keep("environ", blob)

    def keep_script(self, body: bytes) -> int:
        """Store the text of a script, once per content; return its id."""
        return self._keep("script", body)

    def _keep(self, kind: str, body: bytes) -> int:
        values = {"digest": hashlib.sha256(body).digest(), "body": body}
        self._ask(f"add_{kind}", values)
        return int(self._ask(f"find_{kind}", values).fetchone()[0])

    def submit(self, many: Sequence[JobSpec], now: int) -> list[JobId]:
        """Queue jobs in the given order; return their ids, which are consecutive."""
        first = self.last_id() + 1
        requests: dict[Request, int] = {}
        for spec in many:
            if spec.request not in requests:
                requests[spec.request] = self._keep_request(spec.request)
        new = (
            rows.submitted_row(job_id, spec, requests[spec.request], now, _is_ready(spec, now))
            for job_id, spec in enumerate(many, first)
        )
        self.connection.executemany(self.queries["add_job"], new)
        self._keep_folders(enumerate(many, first))
        return self._submitted(first, (spec.after for spec in many), len(many))

    def submit_alike(self, spec: JobSpec, members: Sequence[Member], now: int) -> list[JobId]:
        """Queue jobs that differ only in `members`; their common values are bound once, even for a million jobs."""
        first = self.last_id() + 1
        row = rows.submitted_row(first, spec, self._keep_request(spec.request), now, _is_ready(spec, now))
        self._ask("make_arriving")
        arriving = map(rows.arriving_row, itertools.count(), members)
        # Piece by piece: what arrives is kept in memory.
        while piece := list(itertools.islice(arriving, ARRIVING)):
            self.connection.executemany(self.queries["arrive"], piece)
            self._ask("add_arriving", row | {"first": first, "rank_of_0": ranks.ZERO})
            self._ask("clear_arriving")
        self._keep_folders([(first + len(members) - 1, spec)])
        return self._submitted(first, itertools.repeat(spec.after, len(members)), len(members))

    def _keep_folders(self, many: Iterable[tuple[int, JobSpec]]) -> None:
        """Remember the last job of each folder whose submitter sent its environment."""
        last = {spec.cwd: job_id for job_id, spec in many if spec.environ_from == fields.SUBMITTER}
        self.connection.executemany(
            self.queries["keep_folder"], ({"cwd": cwd, "job": job_id} for cwd, job_id in last.items())
        )

    def _submitted(self, first: int, afters: Iterable[tuple[After, ...]], count: int) -> list[JobId]:
        needs = (
            {"job": job_id, "needs": need.id, "when": need.when.value}
            for job_id, after in enumerate(afters, first)
            for need in after
        )
        self.connection.executemany(self.queries["add_dependency"], needs)
        last = first + count - 1
        self.custody.reserve(last)
        self._ask("add_submitted_events", {"first": first, "last": last})
        return [JobId(n) for n in range(first, last + 1)]

    def _keep_request(self, request: Request) -> int:
        values = rows.request_row(request)
        self._ask("add_request", values)
        return int(self._ask("find_request", values).fetchone()[0])

    def record(self, job: Job, event: lifecycle.Event, detail: str = "") -> Job:
        """Apply an event to a job and store both; return the changed job."""
        moved = lifecycle.advance(job, event)
        row = rows.moved_row(job, moved)
        move = self.queries["move"].replace("{moved}", rows.moved_columns(job, moved))
        if self.connection.execute(move, row).rowcount != 1:
            raise Bug(f"job {job.id} is no longer {job.word} in the store.")
        if moved.is_finished:
            self._ask("add_attempt", row)
            self._keep_runtime(moved)
        if isinstance(event, lifecycle.Evicted):
            self._ask("add_attempt", rows.evicted_row(job, event))
        self.note(moved.id, event.at, type(event).__name__, detail or moved.remark or "")
        if moved.is_waiting:
            # Statements for many jobs may change it while it waits.
            self._known.pop(moved.id, None)
        else:
            self._known[moved.id] = moved
        return moved

    def locate(self, job: Job, engine_ref: str | None, node: str | None) -> Job:
        """Store what an engine calls the current start of a job, and where it runs; return the changed job."""
        self._ask("locate", {"id": job.id, "engine_ref": engine_ref, "node": node})
        located = replace(job, engine_ref=engine_ref, node=node)
        if job.id in self._known:
            self._known[job.id] = located
        return located

    def note(self, job_id: JobId, at: int, kind: str, detail: str) -> None:
        """Add an event to a job without changing it."""
        self._ask("add_event", {"job": job_id, "at": at, "kind": kind, "detail": detail})

    def keep_saved(self, job_id: JobId, attempt: int, saved: int, lost: int) -> None:
        """Store once what of an evicted attempt its checkpoints kept, and what was lost, in milliseconds."""
        told = {"job": job_id, "attempt": attempt, "saved": saved}
        if self._ask("keep_saved", told).rowcount:
            self._known.pop(job_id, None)
            self._ask("add_saved", told | {"lost": lost})

    def set_checkpoints(self, job_id: JobId, attempt: int) -> bool:
        """Note that a running attempt writes checkpoints; tell whether that is new."""
        return self._ask("set_checkpoints", {"job": job_id, "attempt": attempt}).rowcount > 0

    def _keep_runtime(self, job: Job) -> None:
        if job.outcome is Outcome.DONE and job.started_at is not None and job.finished_at is not None:
            # The clock may have been set back meanwhile.
            took_ms = max(0, job.finished_at - job.started_at)
            for likeness in durations.likenesses(job.spec):
                self._ask("add_runtime", {"likeness": digest(likeness), "job": job.id, "took_ms": took_ms})
            self.histories.forget()

    def set_ready(self, job_id: JobId, is_ready: bool) -> None:
        """Let a queued job join the line, or remove it from the line."""
        self._ask("set_ready", {"id": job_id, "is_ready": is_ready})

    def add_batch(self, at_once: int | None, halt_after: int | None, size: int) -> int:
        """Store a batch with its rules and its size; return its id."""
        cursor = self._ask("add_batch", {"at_once": at_once, "halt_after": halt_after, "size": size})
        return int(cursor.lastrowid or 0)

    def keep_key(self, key: str, ids: Sequence[JobId]) -> None:
        """Store which jobs a submission with a key created; their ids are consecutive."""
        self._ask("add_submission", {"key": key, "first": ids[0], "last": ids[-1]})

    def count_bad(self, batch: int) -> Halt | None:
        """Count a bad end of a batch; return the rule that now holds the rest, if one does."""
        bad, is_after, is_first = self._ask("batch_bad", {"id": batch}).fetchone()
        return Halt(bad, is_first=not is_after) if is_after or is_first else None

    def hold_batch(self, batch: int, at: int, halt: Halt) -> None:
        """Record `lifecycle.HoldAsked` for all queued jobs of a batch at once: there may be 100,000."""
        self._ask("tell_batch_held", {"batch": batch, "at": at, "why": halt.why})
        self._ask("hold_batch", {"batch": batch, "why": halt.why})

    # -- sweeps

    def add_sweep(self, wanted: SweepSubmission, batch: int, now: int) -> int:
        """Store a new sweep; return its id."""
        row = rows.sweep_row(wanted) | {"batch": batch, "created_at": now}
        return int(self._ask("add_sweep", row).lastrowid or 0)

    def update_sweep(self, sweep_id: int, wanted: SweepSubmission) -> None:
        """Store the values of a sweep that may differ when it is submitted again."""
        self._ask("update_sweep", rows.sweep_row(wanted) | {"id": sweep_id})

    def keep_search(self, sweep_id: int, search: Search | None) -> None:
        """Store how the points of a sweep are chosen while it runs; None: they are not."""
        if search is None:
            self._ask("drop_search", {"sweep": sweep_id})
            return
        told = {"sampler": search.sampler, "trials": search.trials, "seed": search.seed, "space": search.space}
        self._ask("keep_search", told | {"sweep": sweep_id})

    def end_search(self, sweep_id: int, why: str) -> bool:
        """Let a search take no more trials; tell whether it did until now."""
        return self._ask("end_search", {"sweep": sweep_id, "why": why}).rowcount > 0

    def end_halted_search(self, batch: int, why: str) -> bool:
        """Let the search of a batch take no more trials, unless its runs are held; tell whether it did until now."""
        return self._ask("end_halted_search", {"batch": batch, "why": why}).rowcount > 0

    def open_batch(self, batch: int, now: int) -> None:
        """Let a batch grow until `close_batch`, and reset its count of bad ends."""
        self._ask("open_batch", {"id": batch, "at": now})

    def close_batch(self, batch: int) -> Job | None:
        """Mark a batch as complete; return the last job that ended while it grew, if any."""
        row = self._ask("ended_while_open", {"id": batch}).fetchone()
        self._ask("close_batch", {"id": batch})
        return None if row is None else self.job(JobId(row[0]))

    def grow_batch(self, batch: int, more: int) -> None:
        """Add `more` to the size of a batch."""
        self._ask("grow_batch", {"id": batch, "more": more})

    def keep_numbers(self, job_id: JobId, attempt: int, numbers: str, summaries: str) -> None:
        """Store the numbers of an attempt, and the summaries of a run, as JSON; once."""
        told = {"job": job_id, "attempt": attempt, "numbers": numbers}
        self._ask("keep_numbers", told)
        self._ask("keep_numbers_of_run", told | {"summaries": summaries})

    # -- many jobs at once: there may be 100,000, and a turn must stay short

    def cancel_waiting(self, chosen: selectors.Selection, now: int) -> Ended:
        """Record `lifecycle.CancelAsked` for waiting jobs, `lifecycle.NeedFailed` for their dependents."""
        self._gather(selectors.within(chosen, WAITING), now)
        self._ask("gather_doomed")
        values = {"at": now, "remark": lifecycle.NEED_FAILED}
        self._ask("tell_crowd", {"at": now, "kind": "CancelAsked", "detail": ""})
        self._ask("tell_doomed", values)
        self._ask("cancel_crowd", {"at": now})
        self._ask("cancel_doomed", values)
        self._ask("keep_attempts_of_crowd")
        return Ended(*self._crowd(), [JobId(row[0]) for row in self._ask("waiters_of_crowd")])

    def retry(self, chosen: selectors.Selection, outcomes: Iterable[Outcome], now: int) -> Retried:
        """Record `lifecycle.RetryAsked` for jobs with these outcomes, `lifecycle.NeedRetried` for their dependents.

        Runs that were stopped early count as done.
        """
        kinds = set(outcomes)
        self._gather(selectors.within(chosen, kinds), now)
        if Outcome.DONE not in kinds:
            self._ask("spare_early")
        self._ask("gather_revived")
        self._ask("tell_crowd", {"at": now, "kind": "RetryAsked", "detail": ""})
        self._ask("tell_revived", {"at": now})
        ran_out = [JobId(row[0]) for row in self._ask("ran_out_of_crowd")]
        self._ask("retry_crowd")
        return Retried(*self._crowd(), [JobId(row[0]) for row in self._ask("unsure_of_crowd")], ran_out)

    def noticed(self, is_for_all: bool, most: int) -> list[Job]:
        """Return the jobs of the last `cancel_waiting` whose end causes a notice, at most `most`."""
        found = self._ask("noticed_of_crowd", {"is_for_all": is_for_all, "most": most})
        return [rows.job_of(row) for row in found.fetchall()][::-1]

    def hold(self, chosen: selectors.Selection, now: int, why: str = "") -> list[JobId]:
        """Record `lifecycle.HoldAsked` for the queued jobs of a selection; return them."""
        return self._shift(chosen, State.QUEUED, State.HELD, lifecycle.HoldAsked, now, why)

    def unhold(self, chosen: selectors.Selection, now: int) -> tuple[list[JobId], list[JobId]]:
        """Record `lifecycle.UnholdAsked` for the held jobs of a selection; return them, and the unready ones."""
        changed = self._shift(chosen, State.HELD, State.QUEUED, lifecycle.UnholdAsked, now)
        return changed, [JobId(row[0]) for row in self._ask("unready_of_crowd")]

    def _shift(
        self, chosen: selectors.Selection, before: State, after: State, event: type, now: int, why: str = ""
    ) -> list[JobId]:
        self._gather(selectors.within(chosen, (before,)), now)
        self._ask("tell_crowd", {"at": now, "kind": event.__name__, "detail": why})
        self._ask("shift_crowd", {"state": after.value, "remark": why or None})
        return [JobId(row[0]) for row in self._ask("crowd")]

    def _crowd(self) -> tuple[list[JobId], list[JobId]]:
        """Return the selected jobs, and the dependents that changed because of them."""
        crowd = self._ask("crowd").fetchall()
        named = [JobId(job_id) for job_id, need in crowd if need is None]
        return named, [JobId(job_id) for job_id, need in crowd if need is not None]

    def _begin_crowd(self) -> None:
        """Begin a change of many jobs; the cache becomes invalid."""
        self._known.clear()
        self._ask("make_crowd")
        self._ask("clear_crowd")

    def _gather(self, chosen: selectors.Selection, now: int) -> None:
        self._begin_crowd()
        self._ask_about("gather", chosen, now)

    # -- edits

    def edit(self, job: Job, spec: JobSpec, at: int, detail: str) -> None:
        """Store a new spec of a job; a new priority resets its rank to that of its id."""
        row = rows.submitted_row(job.id, spec, self._keep_request(spec.request), at, is_ready=False)
        self._known.pop(job.id, None)
        self._ask("edit_job", row)
        if spec.after != job.spec.after:
            self._ask("forget_needs", {"job": job.id})
            needs = [{"job": job.id, "needs": need.id, "when": need.when.value} for need in spec.after]
            self.connection.executemany(self.queries["add_dependency"], needs)
        if spec.priority != job.spec.priority:
            self._ask("set_rank", row)
        self.note(job.id, at, "Edited", detail)

    def set_rule(self, batch: int, name: str, value: int | None) -> bool:
        """Change a rule of a batch by its name; tell whether the limit of bad ends is now reached."""
        self._ask(f"set_{name}", {"id": batch, "value": value})
        return bool(self._ask("is_over_limit", {"id": batch}).fetchone()[0])

    def set_group(self, name: str, at_once: int | None) -> None:
        """Set how many jobs of a group may be active at once; None: any number."""
        self._ask("set_group_at_once", {"name": name, "value": at_once})
        self._ask("drop_plain_groups")

    def pause_group(self, name: str, is_paused: bool) -> None:
        """Start nothing new of a group, or start its jobs again."""
        self._ask("set_group_paused", {"name": name, "value": int(is_paused)})
        self._ask("drop_plain_groups")

    # -- the order of waiting jobs

    def move(self, job: Job, where: str, other: Job | None = None) -> None:
        """Move a waiting job `first` or `last` in its priority, or `before` or `after` another job of it."""
        anchor = other.rank if other else ""
        place = {"id": job.id, "priority": job.spec.priority, "rank": anchor}
        if where in ("first", "last"):
            found = self._ask(f"{where}_rank", place).fetchone()
            if found is None:
                return
            rank = (
                ranks.ahead_of(found[0], job.id)
                if where == "first"
                else ranks.between(found[0], self._next_rank(), job.id)
            )
        elif where == "before":
            found = self._ask("rank_before", place).fetchone()
            rank = ranks.between(found[0], anchor, job.id) if found else ranks.ahead_of(anchor, job.id)
        else:
            found = self._ask("rank_after", place).fetchone()
            rank = ranks.between(anchor, found[0] if found else self._next_rank(), job.id)
        self._ask("set_rank", {"id": job.id, "rank": rank})

    def put_first(self, ids: Sequence[JobId], first: JobId) -> None:
        """Rank new jobs, in the order of their ids, before all others of a submission that begins with `first`."""
        low, high = ranks.rank_of_id(first - 1), ranks.rank_of_id(first)
        rows = [{"id": job_id, "rank": ranks.between(low, high, job_id)} for job_id in ids]
        self.connection.executemany(self.queries["set_rank"], rows)

    def _next_rank(self) -> str:
        return ranks.rank_of_id(self.last_id() + 1)

    def is_outranked(self, priority: int) -> bool:
        """Tell whether a job with a higher priority waits."""
        return bool(self._ask("is_outranked", {"priority": priority}).fetchone()[0])

    # -- drained devices

    def drain(self, device: str, reason: str, at: int) -> None:
        """Start nothing new on a device."""
        self._ask("drain", {"device": device, "reason": reason, "at": at})

    def undrain(self, device: str) -> bool:
        """Start jobs on a device again; tell whether it was drained."""
        return self._ask("undrain", {"device": device}).rowcount > 0

    def keep_people(self, rows: Iterable[tuple[int, int, float]]) -> None:
        """Store the device time of users: the day, the uid, and milliseconds; the larger number stays."""
        self.connection.executemany(
            self.queries["keep_person_day"], [{"day": day, "uid": uid, "ms": ms} for day, uid, ms in rows]
        )

    # -- device health and usage

    def put_out(self, device: str, why: str, at: int) -> None:
        """Start nothing on a device until a user brings it back."""
        self._ask("put_out", {"device": device, "why": why, "at": at})

    def bring_back(self, device: str, accepted: str | None) -> bool:
        """Use a device again, with an accepted concern; tell whether it was out."""
        if accepted is not None:
            self._ask("accept", {"device": device, "why": accepted})
        return self._ask("bring_back", {"device": device}).rowcount > 0

    def keep_uses(self, over: Mapping[Key, Use], minutes: Mapping[Minute, Sample], before: int) -> None:
        """Store the device usage of attempts and of minutes; delete minutes before `before`."""
        for (job_id, attempt, device), use in over.items():
            row = {"job": job_id, "attempt": attempt, "device": device}
            self._ask("keep_use", row | {"peak": use.peak, "mean": use.mean, "looks": use.looks})
        for (device, minute), sample in minutes.items():
            row = {"device": device, "minute": minute, "memory": sample.memory, "utilization": sample.utilization}
            self._ask("keep_minute", row | {"power": sample.power, "temperature": sample.temperature})
        if minutes:
            self._ask("forget_minutes", {"before": before})

    # -- deletion

    def forget(self, ids: Sequence[JobId], with_checkpoints: bool) -> list[JobId]:
        """Delete the rows of those jobs that are finished and that no job waits for; return their ids.

        Until `forgot` is called, the store notes that their files must still be removed. Ids are never reused.
        """
        self._begin_crowd()
        self._ask("gather_forgettable", {"ids": json.dumps(list(ids))})
        self._ask("note_forgotten", {"with_checkpoints": with_checkpoints})
        for name in ("forget_events", "forget_dependencies", "forget_jobs"):
            self._ask(name)
        return [JobId(row[0]) for row in self._ask("crowd")]

    def forgot(self, ids: Sequence[JobId]) -> None:
        """Record that the files of deleted jobs are gone."""
        self._ask("forgot", {"ids": json.dumps(list(ids))})

    def tidy(self) -> list[str]:
        """Delete what only deleted jobs needed; return the keys of submissions without jobs."""
        self._ask("forget_environs")
        self._ask("forget_scripts")
        return [key for (key,) in self._ask("forget_submissions").fetchall()]

    # -- after a loss

    def adopt(self, job_id: JobId, spec: JobSpec, now: int) -> None:
        """Store a job whose folder exists but whose row was lost."""
        row = rows.submitted_row(job_id, spec, self._keep_request(spec.request), now, is_ready=True)
        self.connection.execute(self.queries["add_job"], row)

    def rewind(self, job_id: JobId, attempt: int, start: int) -> Job:
        """Set a job back to the moment before a start that its row does not know; return it."""
        self._known.pop(job_id, None)
        self._ask("rewind", {"id": job_id, "attempt": attempt, "start": start - 1})
        return self.job(job_id)

    def skip_to(self, job_id: int) -> None:
        """Assign no id up to this one: folders of such jobs exist, and new jobs would inherit their files."""
        if job_id > self.last_id():
            self._ask("forget_last_id")
            self._ask("set_last_id", {"id": job_id})

    def set_fact(self, name: str, value: str) -> None:
        """Set a fact about the queue as a whole."""
        self._ask("set_fact", {"name": name, "value": value})


def _is_ready(spec: JobSpec, now: int) -> bool:
    """Tell whether a new job may join the line at once; its dependencies are checked after it is stored."""
    return not spec.after and (spec.begin_at is None or spec.begin_at <= now)
