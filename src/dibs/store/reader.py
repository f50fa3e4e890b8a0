"""Read the store: jobs by id and by selection, the heads of the lines, events.

It changes nothing; `writer.Store` inherits it and runs the same queries inside its transaction.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dibs.errors import NotFound, UserError
from dibs.model import selectors, suggestions, units
from dibs.model.jobs import Cause, Job, JobId, Outcome, When, holder_of
from dibs.scheduling import vram_advice
from dibs.scheduling.views import Active, WaitingJob
from dibs.scheduling.vram_advice import Earlier
from dibs.store import database, rows, where
from dibs.store.query_results import (
    BatchTally,
    EventRow,
    Glance,
    NumberedEvent,
    PastAttempt,
    RunsSince,
    Stay,
    UsageRow,
    Waited,
    Waits,
)
from dibs.sweeps.records import Run, Sweep


class Reader:
    """Queries of the store. Each connection belongs to one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.queries = database.named_queries()
        #: Called between the steps of long computations, so that readers can yield to the writer.
        self.pause: Callable[[], None] = _go_on

    @classmethod
    def open(cls, path: Path) -> Reader:
        """Open a read-only connection; the writer has created the file."""
        return cls(database.open_reader(path))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _ask(self, name: str, values: Mapping[str, Any] | None = None) -> sqlite3.Cursor:
        return self.connection.execute(self.queries[name], values or {})

    def jobs(self, ids: Iterable[JobId]) -> list[Job]:
        """Return the jobs with these ids, in their order; skip missing ones."""
        return self._listed(self._ask("jobs_by_id", {"ids": json.dumps(list(ids))}))

    def _listed(self, found: Iterable[Sequence[Any]]) -> list[Job]:
        jobs = []
        for row in found:
            self.pause()
            jobs.append(rows.listed_job_of(row))
        return jobs

    def job(self, job_id: JobId) -> Job:
        """Return one job; if there is none, raise an error that names the newest."""
        row = self._ask("job", {"id": job_id}).fetchone() if -(2**63) <= job_id < 2**63 else None
        if row is None:
            last = self.last_id()
            gone = " any more" if 0 < job_id <= last else ""
            newest = f" (the newest is {last})." if last else ": no job yet."
            raise NotFound(f"there is no job {job_id}{gone}{newest}")
        return rows.job_of(row)

    def last_id(self) -> int:
        """Return the newest id ever assigned; 0 before the first."""
        return int(self._ask("last_id").fetchone()[0])

    def active(self) -> list[Job]:
        """Return the active jobs."""
        return self._listed(self._ask("active"))

    def active_devices(self) -> list[Active]:
        """Return the resources of the active jobs, as the planner needs them."""
        return [
            Active(JobId(i), rows.devices_of(allocation), cpus, mem, limit_s or None, at, batch, units.mib_of(vram))
            for i, allocation, cpus, mem, limit_s, at, batch, vram in self._ask("active_devices")
        ]

    def head(self, most: int, most_shared: int | None = None) -> list[WaitingJob]:
        """Return the first `most` jobs of each line, or `most_shared` of a line that shares devices, for one plan."""
        found = []
        for request_id, *request, batch, room in self._ask("lines").fetchall():
            shape = rows.request_of(request)
            many = most_shared if shape.vram and most_shared else most
            line = {"request": request_id, "batch": batch, "most": many}
            found += [WaitingJob(JobId(i), shape, p, batch, room, r) for i, p, r in self._ask("head_of_line", line)]
        return found

    def overview(self, unfinished: int, finished: int) -> list[Job]:
        """Return unfinished jobs and the latest finished ones, in order of id."""
        found = self._ask("unfinished", {"most": unfinished}).fetchall()
        found += self._ask("lately_finished", {"most": finished}).fetchall()
        return sorted(self._listed(found), key=lambda job: job.id)

    def select(self, chosen: selectors.Selection, now: int, most: int = -1) -> list[Job]:
        """Return the jobs of a selection, in order of id."""
        where, values = self.where(chosen, now)
        query = self.queries["selected"].replace("{where}", where).replace(":most", "?")
        return [rows.job_of(row) for row in self.connection.execute(query, [*values, most])]

    def words(self, chosen: selectors.Selection, now: int) -> list[tuple[JobId, str]]:
        """Return id and displayed state of the jobs of a selection, in order of id; there may be a million."""
        where, values = self.where(chosen, now)
        query = self.queries["selected_words"].replace("{where}", where)
        return [(JobId(job_id), word) for job_id, word in self.connection.execute(query, values)]

    def select_ids(self, chosen: selectors.Selection, now: int) -> list[JobId]:
        """Return the ids of the jobs of a selection."""
        where, values = self.where(chosen, now)
        query = self.queries["selected_ids"].replace("{where}", where)
        return [JobId(row[0]) for row in self.connection.execute(query, values)]

    def tally(self, chosen: selectors.Selection, now: int) -> dict[str, int]:
        """Count the jobs of a selection by displayed state."""
        if chosen == ((selectors.Everything(),),):
            return {word: count for word, count in self.counts().items() if count}
        where, values = self.where(chosen, now)
        query = self.queries["tally"].replace("{where}", where)
        return dict(self.connection.execute(query, values).fetchall())

    def failed_since(self, since: int) -> dict[str, int]:
        """Return the number of jobs that ended badly since a time, per outcome."""
        return dict(self._ask("failed_since", {"since": since}).fetchall())

    def lately_finished(self, most: int) -> Iterable[tuple[int, int | None, int, int]]:
        """Return the latest finished jobs one by one: id, sweep, batch and time of submission."""
        return self._ask("ended_last", {"most": most})

    def tally_group(self, job: Job, first: int, last: int) -> list[tuple[str, int, int, int]]:
        """Count the jobs of a sweep, a batch or a submission per displayed state, with the first and last id of each.

        `job` is one of them; `first` and `last` are the outermost known ones.
        """
        if job.spec.sweep_id is not None:
            return self._ask("tally_sweep", {"sweep": job.spec.sweep_id}).fetchall()
        which = {"batch": job.spec.batch, "at": job.submitted_at, "first": first, "last": last}
        return self._ask("tally_submission", which).fetchall()

    def held_among(self, chosen: selectors.Selection, now: int) -> list[list[JobId]]:
        """Return the held jobs that keep a selection from finishing, those that are held for one reason together.

        They include jobs that the selected ones wait for. Empty while any other job may still run.
        """
        where, values = self.where(chosen, now)
        queries = [self.queries[name].replace("{where}", where) for name in ("can_go_on", "held_among")]
        if self.connection.execute(queries[0], values).fetchone()[0]:
            return []
        groups: dict[object, list[JobId]] = {}
        for job_id, why, batch, tags in self.connection.execute(queries[1], values):
            groups.setdefault((why, why and batch, holder_of(json.loads(tags))), []).append(JobId(job_id))
        return list(groups.values())

    def is_any_held(self, why: str) -> bool:
        """Tell whether any job is held for this reason."""
        return bool(self._ask("is_any_held", {"why": why}).fetchone()[0])

    def held_of_batch(self, batch: int) -> str:
        """Return the first and the last held job of a batch as a selector."""
        first, last = self._ask("held_of_batch", {"batch": batch}).fetchone()
        return str(first) if first == last else f"{first}-{last}"

    def counts(self) -> dict[str, int]:
        """Return the number of jobs per displayed state."""
        return dict(self._ask("counts").fetchall())

    def events(self, job_id: JobId) -> list[EventRow]:
        """Return the events of a job."""
        return [EventRow(*row) for row in self._ask("events_of", {"job": job_id})]

    def attempts(self, job_id: JobId) -> list[PastAttempt]:
        """Return the finished attempts of a job."""
        return [
            PastAttempt(
                n, Outcome(outcome), Cause(cause) if cause else None, code, sig, rows.devices_of(allocation), *times
            )
            for n, outcome, cause, code, sig, allocation, *times in self._ask("attempts_of", {"job": job_id})
        ]

    def attempts_between(self, since: int, until: int, most: int) -> list[Stay]:
        """Return the finished attempts that had devices between two times, the last ended first."""
        found = self._ask("attempts_between", {"since": since, "until": until, "most": most})
        return [
            Stay(JobId(job_id), name, attempt, word, rows.devices_of(allocation), began, ended)
            for job_id, name, attempt, word, allocation, began, ended in found
        ]

    def usage(self, days: Sequence[tuple[int, int]], now: int, idle_below: int, most: int) -> list[UsageRow]:
        """Return the use of devices on consecutive days, given as (from, to); the longest first."""
        which = {"days": json.dumps(days), "since": days[0][0], "until": days[-1][1]}
        return [
            UsageRow(*row) for row in self._ask("usage", which | {"now": now, "idle_below": idle_below, "most": most})
        ]

    def waits(self, since: int, until: int, most: int) -> Waits:
        """Return how long jobs with devices waited whose first start was between two times."""
        found = self._ask("waits", {"since": since, "until": until, "most": most}).fetchall()
        middle = [wait for _, _, wait, _, is_middle in found if is_middle]
        longest = [Waited(JobId(job_id), name, wait) for job_id, name, wait, *_ in found[:most]]
        return Waits(found[0][3] if found else 0, middle[0] if middle else None, longest)

    def outcomes(self, job_id: JobId) -> list[tuple[JobId, When, Outcome | None]]:
        """Return the outcomes of a job's dependencies; None: not finished."""
        found = self._ask("outcomes", {"id": job_id})
        return [(JobId(n), When(when), Outcome(outcome) if outcome else None) for n, when, outcome in found]

    def needs_in_turn(self, ids: Iterable[JobId]) -> set[JobId]:
        """Return these jobs and all their dependencies, transitively."""
        found = self._ask("needs_in_turn", {"ids": json.dumps(list(ids))})
        return {JobId(row[0]) for row in found}

    def dependants(self, job_id: JobId) -> list[JobId]:
        """Return the jobs that depend on this one, finished or not."""
        return [JobId(row[0]) for row in self._ask("dependants", {"id": job_id}).fetchall()]

    def first_dependants(self, job_id: JobId, most: int) -> list[JobId]:
        """Return the oldest jobs that depend on this one, finished or not."""
        return [JobId(row[0]) for row in self._ask("first_dependants", {"id": job_id, "most": most}).fetchall()]

    def to_begin(self, now: int, most: int) -> list[tuple[JobId, int]]:
        """Return the jobs with the next begin times, and these times."""
        found = self._ask("to_begin", {"now": now, "most": most})
        return [(JobId(job_id), begin_at) for job_id, begin_at in found.fetchall()]

    def batch_room(self, batch: int) -> int | None:
        """Return how many more jobs of a batch may be active; None: any number."""
        row = self._ask("batch_room", {"id": batch}).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def runtimes(self, likeness: str) -> list[float]:
        """Return the durations in seconds of the latest successful jobs of a likeness."""
        return [took_ms / 1000 for (took_ms,) in self._ask("runtimes", {"likeness": digest(likeness)})]

    def due(self, since: int, now: int) -> list[JobId]:
        """Return the jobs whose begin time is between two times."""
        return [JobId(row[0]) for row in self._ask("due", {"since": since, "now": now}).fetchall()]

    def next_begin(self, now: int) -> int | None:
        """Return the next begin time; None if no job waits for one."""
        found = self._ask("next_begin", {"now": now}).fetchone()[0]
        return None if found is None else int(found)

    def batch_tally(self, batch: int) -> BatchTally:
        """Return the progress of a batch."""
        size, finished, done, bad, is_open = self._ask("batch", {"id": batch}).fetchone()
        return BatchTally(size, finished, done, bad, bool(is_open))

    def is_batch(self, batch: int) -> bool:
        """Tell whether a batch with rules has this id."""
        return -(2**63) <= batch < 2**63 and self._ask("is_batch", {"id": batch}).fetchone() is not None

    def submission(self, key: str) -> list[JobId]:
        """Return the jobs submitted with a key; none if there was no such submission."""
        row = self._ask("submission", {"key": key}).fetchone()
        return [] if row is None else [JobId(n) for n in range(row[0], row[1] + 1)]

    def submission_keys(self) -> set[str]:
        """Return the keys of all submissions of which a job is still stored."""
        return {row[0] for row in self._ask("submission_keys")}

    def last_event(self) -> int:
        """Return the number of the newest event; 0 before the first."""
        return int(self._ask("last_event").fetchone()[0])

    def changes(self, since: int, until: int) -> list[Glance]:
        """Return the states of the jobs with events after `since`, up to `until`."""
        return [Glance(*row) for row in self._ask("changed_since", {"since": since, "until": until})]

    def happened(self, since: int, until: int, job_id: JobId | None, most: int) -> list[NumberedEvent]:
        """Return the events after `since`, up to `until`, of one job or of all."""
        query = "happened" if job_id is None else "happened_to_job"
        values = {"since": since, "until": until, "job": job_id, "most": most}
        return [NumberedEvent(*row) for row in self._ask(query, values)]

    def standings(self, chosen: selectors.Selection, now: int) -> list[Glance]:
        """Return the states of the jobs of a selection, in no order."""
        where, values = self.where(chosen, now)
        query = self.queries["selected_states"].replace("{where}", where)
        return [Glance(*row) for row in self.connection.execute(query, values)]

    def sweep(self, sweep_id: int) -> Sweep:
        """Return one sweep."""
        row = self._ask("sweep", {"id": sweep_id}).fetchone()
        if row is None:
            raise NotFound(f"there is no sweep {sweep_id}.")
        return rows.sweep_of(row)

    def sweeps(self) -> list[Sweep]:
        """Return all sweeps."""
        return [rows.sweep_of(row) for row in self._ask("sweeps")]

    def find_sweep(self, project: str, name: str) -> Sweep | None:
        """Return the sweep of a project by its name; None if there is none."""
        row = self._ask("find_sweep", {"project": project, "name": name}).fetchone()
        return None if row is None else self.sweep(row[0])

    def sweep_ids(self, word: str) -> list[int]:
        """Return the sweeps that a word means: a name or a glob, with or without the project."""
        # SQLite accepts no longer glob, and no name is that long.
        found = self._ask("sweeps_like", {"word": word[: selectors.LONGEST_PATTERN]}).fetchall()
        exact = [row for row in found if word in (row[2], f"{row[1]}/{row[2]}")]
        if not found:
            known = [
                each for row in self._ask("sweep_names", {"most": 1000}) for each in (row[1], f"{row[0]}/{row[1]}")
            ]
            raise NotFound(f'there is no sweep "{word}".', suggestions.did_you_mean(word, known))
        if len(exact) > 1:
            places = " and ".join(f"sweep:{project}/{name}" for _, project, name in exact)
            raise UserError(f'there are {len(exact)} sweeps "{word}".', f"Write {places}.")
        return [row[0] for row in exact or found]

    def next_index(self, sweep_id: int) -> int:
        """Return the index of the next run of a sweep."""
        return int(self._ask("next_index", {"sweep": sweep_id}).fetchone()[0])

    def runs_of_points(self, sweep_id: int, points: Iterable[str]) -> dict[str, tuple[JobId | None, str]]:
        """Return the job of the newest run of each of these points (None if deleted) and its state."""
        found = self._ask("runs_of_points", {"sweep": sweep_id, "points": json.dumps(list(points))})
        return {point: (None if job_id is None else JobId(job_id), word) for point, job_id, word in found.fetchall()}

    def runs_in_folders(self, sweep_id: int, folders: Iterable[str]) -> list[tuple[str, str, JobId]]:
        """Return folder, point and job of the runs of a sweep that use these folders."""
        found = self._ask("runs_in_folders", {"sweep": sweep_id, "folders": json.dumps(list(folders))})
        return [(folder, point, JobId(job_id)) for folder, point, job_id in found]

    def runs(self, sweep_id: int, since: RunsSince, most: int) -> tuple[list[Run], RunsSince | None]:
        """Return a page of a sweep's runs, those of deleted jobs last, and where the next page begins, if any."""
        query = "forgotten_runs_of_sweep" if since.is_forgotten else "runs_of_sweep"
        found = self._ask(query, {"sweep": sweep_id, "after": since.after, "most": most})
        runs = [rows.run_of(row) for row in found]
        if len(runs) < most:
            return runs, None if since.is_forgotten else RunsSince(0, is_forgotten=True)
        # Runs of deleted jobs have no id to continue from, so they are counted.
        return runs, replace(since, after=since.after + most if since.is_forgotten else runs[-1].job or 0)

    def states_of_sweeps(self) -> dict[int, dict[str, int]]:
        """Return the number of runs per state of each sweep."""
        found: dict[int, dict[str, int]] = {}
        for sweep_id, word, count in self._ask("states_of_sweeps"):
            states = found.setdefault(sweep_id, {})
            states[word] = states.get(word, 0) + count
        return found

    def numbers(self, job: Job) -> dict[str, float | None] | None:
        """Return the stored numbers of a finished job; None: there are none, or they are not read yet."""
        spec = job.spec
        if not spec.metrics and spec.sweep_id is None:
            return None
        which = {"job": job.id, "attempt": job.attempt, "sweep": spec.sweep_id, "point": spec.point}
        row = self._ask("numbers_of", which).fetchone()
        return None if row is None or row[0] is None else dict(json.loads(row[0]))

    def unread_results(self, most: int) -> list[tuple[JobId, int]]:
        """Return ended attempts whose numbers are not read yet."""
        return [(JobId(job_id), attempt) for job_id, attempt in self._ask("unread_results", {"most": most})]

    def is_unread(self, job_id: JobId) -> bool:
        """Tell whether the numbers of an ended job are not read yet."""
        return bool(self._ask("is_unread", {"job": job_id}).fetchone()[0])

    def count_unread(self, sweep_id: int) -> int:
        """Return how many ended runs of a sweep have unread numbers."""
        return int(self._ask("count_unread", {"sweep": sweep_id}).fetchone()[0])

    def drained(self) -> dict[str, str]:
        """Return the devices that this user drained, and why."""
        return dict(self._ask("drained").fetchall())

    def unwell(self) -> dict[str, str]:
        """Return the unhealthy devices that a user must bring back, and why."""
        return dict(self._ask("unwell").fetchall())

    def accepted(self) -> dict[str, str]:
        """Return the accepted concerns about devices."""
        return dict(self._ask("accepted").fetchall())

    def uses(self, job_id: JobId, attempt: int) -> list[tuple[str, int | None, float | None, int]]:
        """Return how an attempt used its devices: id, peak bytes, mean percent, and number of readings."""
        return self._ask("uses_of", {"job": job_id, "attempt": attempt}).fetchall()

    def earlier_uses(self, job_id: JobId) -> list[Earlier]:
        """Return the GPU memory that the newest finished runs of the same command in the same folder used."""
        rows = self._ask("earlier_uses", {"job": job_id, "most": vram_advice.MOST_ROWS})
        return [Earlier(peak, looks, bool(is_done)) for peak, looks, is_done in rows]

    def minutes(self, since: int) -> list[tuple[Any, ...]]:
        """Return the use of devices per minute since a minute: id, minute, and the fields of `usage.Sample`."""
        return self._ask("minutes_since", {"since": since}).fetchall()

    def needed(self) -> set[JobId]:
        """Return the jobs that unfinished jobs depend on."""
        return {JobId(row[0]) for row in self._ask("needed")}

    def finished_first(self, most: int) -> list[JobId]:
        """Return the jobs that finished first and that no job waits for."""
        return [JobId(row[0]) for row in self._ask("finished_first", {"most": most})]

    def finished_before(self, moment: int, event: int, most: int) -> list[JobId]:
        """Return the jobs that finished before `moment` and `event`, for which no job waits, in order of their end."""
        values = {"moment": moment, "event": event, "most": most}
        return [JobId(row[0]) for row in self._ask("finished_before", values)]

    def count_finished_before(self, moment: int, event: int) -> int:
        """Return the number of the jobs that finished before `moment` and `event`."""
        return int(self._ask("count_finished_before", {"moment": moment, "event": event}).fetchone()[0])

    def forgotten(self, with_checkpoints: bool) -> list[JobId]:
        """Return the deleted jobs whose files are not removed yet."""
        return [JobId(row[0]) for row in self._ask("forgotten", {"with_checkpoints": with_checkpoints})]

    def environ(self, environ_id: int | None) -> bytes:
        """Return a captured environment; empty if none was captured."""
        row = self._ask("environ", {"id": environ_id}).fetchone()
        return bytes(row[0]) if row else b""

    def folders(self, most: int, cwd: str | None = None) -> list[tuple[str, JobId]]:
        """Return the latest folders, or this one, each with its newest job that brought its own environment."""
        return [(folder, JobId(job_id)) for folder, job_id in self._ask("folders", {"cwd": cwd, "most": most})]

    def script(self, script_id: int | None) -> bytes | None:
        """Return the text of a script; None if there is none."""
        row = None if script_id is None else self._ask("script", {"id": script_id}).fetchone()
        return None if row is None else bytes(row[0])

    def fact(self, name: str) -> str | None:
        """Return a fact about the queue as a whole; None if it was never set."""
        row = self._ask("fact", {"name": name}).fetchone()
        return None if row is None else str(row[0])

    def where(self, chosen: selectors.Selection, now: int) -> tuple[str, list[Any]]:
        """Return the SQL condition of a selection, and its values."""
        return where.where(chosen, now, self.queries, self.sweep_ids)


def _go_on() -> None:
    """Do not yield."""


def digest(text: str) -> bytes:
    """Return the short key under which a long text is stored."""
    return hashlib.sha256(text.encode()).digest()[:16]
