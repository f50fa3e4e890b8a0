"""Questions to the durable memory: jobs by id and by selection, the heads of the lines, what happened.

Changes nothing; what does is `store`, whose writer asks the same questions inside its transaction.
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
from dibs.model import selectors, spelling, units
from dibs.model.jobs import Cause, Job, JobId, Outcome, When
from dibs.scheduling import vram_advice
from dibs.scheduling.views import Active, Waiting
from dibs.scheduling.vram_advice import Earlier
from dibs.store import database, rows, where
from dibs.store.query_results import (
    BatchTally,
    EventRow,
    Glance,
    Numbered,
    PastAttempt,
    RunsSince,
    Stay,
    Used,
    Waited,
    Waits,
)
from dibs.sweeps.records import Run, Sweep


class Reader:
    """Questions to the store. Each connection belongs to one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.queries = database.named_queries()
        #: Called between the steps of what takes long to compute, by readers who are to give way to others.
        self.pause: Callable[[], None] = _go_on

    @classmethod
    def open(cls, path: Path) -> Reader:
        """Open read-only; the writer has made the file."""
        return cls(database.open_reader(path))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _ask(self, name: str, values: Mapping[str, Any] | None = None) -> sqlite3.Cursor:
        return self.connection.execute(self.queries[name], values or {})

    def jobs(self, ids: Iterable[JobId]) -> list[Job]:
        """Return those of some jobs that there are, in the order in which they are named."""
        return self._listed(self._ask("jobs_by_id", {"ids": json.dumps(list(ids))}))

    def _listed(self, found: Iterable[Sequence[Any]]) -> list[Job]:
        jobs = []
        for row in found:
            self.pause()
            jobs.append(rows.listed_job_of(row))
        return jobs

    def job(self, job_id: JobId) -> Job:
        """Return one job; there being none is an error that names the newest."""
        row = self._ask("job", {"id": job_id}).fetchone() if -(2**63) <= job_id < 2**63 else None
        if row is None:
            last = self.last_id()
            gone = " any more" if 0 < job_id <= last else ""
            newest = f" (the newest is {last})." if last else ": no job yet."
            raise NotFound(f"there is no job {job_id}{gone}{newest}")
        return rows.job_of(row)

    def last_id(self) -> int:
        """Return the newest id ever given; 0 before the first."""
        return int(self._ask("last_id").fetchone()[0])

    def active(self) -> list[Job]:
        """Return the jobs with an attempt under way."""
        return self._listed(self._ask("active"))

    def active_devices(self) -> list[Active]:
        """Return who uses what, as the plan sees it."""
        return [
            Active(JobId(i), rows.devices_of(allocation), cpus, mem, limit_s or None, at, batch, units.mib_of(vram))
            for i, allocation, cpus, mem, limit_s, at, batch, vram in self._ask("active_devices")
        ]

    def head(self, most: int, most_shared: int | None = None) -> list[Waiting]:
        """Return the first `most` jobs of each line, or of one that shares devices more: what can start in one plan."""
        found = []
        for request_id, *request, batch, room in self._ask("lines").fetchall():
            shape = rows.request_of(request)
            many = most_shared if shape.vram and most_shared else most
            line = {"request": request_id, "batch": batch, "most": many}
            found += [Waiting(JobId(i), shape, p, batch, room, r) for i, p, r in self._ask("head_of_line", line)]
        return found

    def overview(self, unfinished: int, finished: int) -> list[Job]:
        """Return unfinished jobs and the latest finished ones, in order of id."""
        found = self._ask("unfinished", {"most": unfinished}).fetchall()
        found += self._ask("lately_finished", {"most": finished}).fetchall()
        return sorted(self._listed(found), key=lambda job: job.id)

    def select(self, chosen: selectors.Selection, now: int, most: int = -1) -> list[Job]:
        """Return the jobs that a selection means, in order of id."""
        where, values = self.where(chosen, now)
        query = self.queries["selected"].replace("{where}", where).replace(":most", "?")
        return [rows.job_of(row) for row in self.connection.execute(query, [*values, most])]

    def words(self, chosen: selectors.Selection, now: int) -> list[tuple[JobId, str]]:
        """Return id and word of the jobs that a selection means, in order of id: of a million that is all one wants."""
        where, values = self.where(chosen, now)
        query = self.queries["selected_words"].replace("{where}", where)
        return [(JobId(job_id), word) for job_id, word in self.connection.execute(query, values)]

    def select_ids(self, chosen: selectors.Selection, now: int) -> list[JobId]:
        """Return the ids of the jobs that a selection means."""
        where, values = self.where(chosen, now)
        query = self.queries["selected_ids"].replace("{where}", where)
        return [JobId(row[0]) for row in self.connection.execute(query, values)]

    def tally(self, chosen: selectors.Selection, now: int) -> dict[str, int]:
        """Count the jobs of a selection by the word that outputs show."""
        if chosen == ((selectors.Everything(),),):
            return {word: count for word, count in self.counts().items() if count}
        where, values = self.where(chosen, now)
        query = self.queries["tally"].replace("{where}", where)
        return dict(self.connection.execute(query, values).fetchall())

    def counts(self) -> dict[str, int]:
        """Return how many jobs show each word."""
        return dict(self._ask("counts").fetchall())

    def events(self, job_id: JobId) -> list[EventRow]:
        """Return all that happened to a job."""
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
        """Return the finished attempts that had devices in between, those that ended last first."""
        found = self._ask("attempts_between", {"since": since, "until": until, "most": most})
        return [
            Stay(JobId(job_id), name, attempt, word, rows.devices_of(allocation), began, ended)
            for job_id, name, attempt, word, allocation, began, ended in found
        ]

    def usage(self, days: Sequence[tuple[int, int]], now: int, idle_below: int, most: int) -> list[Used]:
        """Return who had devices on some days that follow each other, each from and to; the longest first."""
        which = {"days": json.dumps(days), "since": days[0][0], "until": days[-1][1]}
        return [Used(*row) for row in self._ask("usage", which | {"now": now, "idle_below": idle_below, "most": most})]

    def waits(self, since: int, until: int, most: int) -> Waits:
        """Return how long the jobs with devices waited whose first start was in between."""
        found = self._ask("waits", {"since": since, "until": until, "most": most}).fetchall()
        middle = [wait for _, _, wait, _, is_middle in found if is_middle]
        longest = [Waited(JobId(job_id), name, wait) for job_id, name, wait, *_ in found[:most]]
        return Waits(found[0][3] if found else 0, middle[0] if middle else None, longest)

    def outcomes(self, job_id: JobId) -> list[tuple[JobId, When, Outcome | None]]:
        """Return what became of the jobs that a job waits for; None: nothing yet."""
        found = self._ask("outcomes", {"id": job_id})
        return [(JobId(n), When(when), Outcome(outcome) if outcome else None) for n, when, outcome in found]

    def needs_in_turn(self, ids: Iterable[JobId]) -> set[JobId]:
        """Return these jobs and all that they wait for, however far away."""
        found = self._ask("needs_in_turn", {"ids": json.dumps(list(ids))})
        return {JobId(row[0]) for row in found}

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
        return [took_ms / 1000 for (took_ms,) in self._ask("runtimes", {"likeness": digest(likeness)})]

    def due(self, since: int, now: int) -> list[JobId]:
        """Return the jobs whose time has come in between."""
        return [JobId(row[0]) for row in self._ask("due", {"since": since, "now": now}).fetchall()]

    def next_begin(self, now: int) -> int | None:
        """Return the moment at which the next job may begin; None if none waits for its time."""
        found = self._ask("next_begin", {"now": now}).fetchone()[0]
        return None if found is None else int(found)

    def batch_tally(self, batch: int) -> BatchTally:
        """Return how a batch stands."""
        size, finished, done, bad, is_open = self._ask("batch", {"id": batch}).fetchone()
        return BatchTally(size, finished, done, bad, bool(is_open))

    def is_batch(self, batch: int) -> bool:
        """Tell whether there is a batch with rules of its own that has this id."""
        return -(2**63) <= batch < 2**63 and self._ask("is_batch", {"id": batch}).fetchone() is not None

    def submission(self, key: str) -> list[JobId]:
        """Return the jobs that were submitted with a key; none if there was no such submission."""
        row = self._ask("submission", {"key": key}).fetchone()
        return [] if row is None else [JobId(n) for n in range(row[0], row[1] + 1)]

    def submission_keys(self) -> set[str]:
        """Return the keys of all submissions that had one and of which a job is kept."""
        return {row[0] for row in self._ask("submission_keys")}

    def last_event(self) -> int:
        """Return the number of the newest event; 0 before the first."""
        return int(self._ask("last_event").fetchone()[0])

    def changes(self, since: int, until: int) -> list[Glance]:
        """Return how the jobs stand to which something happened after one event, up to another."""
        return [Glance(*row) for row in self._ask("changed_since", {"since": since, "until": until})]

    def happened(self, since: int, until: int, job_id: JobId | None, most: int) -> list[Numbered]:
        """Return what happened after one event, up to another, to one job or to all."""
        query = "happened" if job_id is None else "happened_to_job"
        values = {"since": since, "until": until, "job": job_id, "most": most}
        return [Numbered(*row) for row in self._ask(query, values)]

    def standings(self, chosen: selectors.Selection, now: int) -> list[Glance]:
        """Return how the jobs of a selection stand, in no order."""
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
        """Return the sweep of a project by its name; None: there is none."""
        row = self._ask("find_sweep", {"project": project, "name": name}).fetchone()
        return None if row is None else self.sweep(row[0])

    def sweep_ids(self, word: str) -> list[int]:
        """Return the sweeps that a word means: a name, or a glob of it, with or without its project."""
        # SQLite takes no longer globs, and no name is as long.
        found = self._ask("sweeps_like", {"word": word[: selectors.LONGEST_PATTERN]}).fetchall()
        exact = [row for row in found if word in (row[2], f"{row[1]}/{row[2]}")]
        if not found:
            known = [
                each for row in self._ask("sweep_names", {"most": 1000}) for each in (row[1], f"{row[0]}/{row[1]}")
            ]
            raise NotFound(f'there is no sweep "{word}".', spelling.did_you_mean(word, known))
        if len(exact) > 1:
            places = " and ".join(f"sweep:{project}/{name}" for _, project, name in exact)
            raise UserError(f'there are {len(exact)} sweeps "{word}".', f"Write {places}.")
        return [row[0] for row in exact or found]

    def next_index(self, sweep_id: int) -> int:
        """Return the index of the next run of a sweep."""
        return int(self._ask("next_index", {"sweep": sweep_id}).fetchone()[0])

    def runs_of_points(self, sweep_id: int, points: Iterable[str]) -> dict[str, tuple[JobId | None, str]]:
        """Return the newest run of each of these points, None if it was forgotten, and its word."""
        found = self._ask("runs_of_points", {"sweep": sweep_id, "points": json.dumps(list(points))})
        return {point: (None if job_id is None else JobId(job_id), word) for point, job_id, word in found.fetchall()}

    def runs(self, sweep_id: int, since: RunsSince, most: int) -> tuple[list[Run], RunsSince | None]:
        """Return some runs of a sweep, at last those whose job was forgotten, and where the next ones begin, if any."""
        query = "forgotten_runs_of_sweep" if since.is_forgotten else "runs_of_sweep"
        found = self._ask(query, {"sweep": sweep_id, "after": since.after, "most": most})
        runs = [rows.run_of(row) for row in found]
        if len(runs) < most:
            return runs, None if since.is_forgotten else RunsSince(0, is_forgotten=True)
        # Those that are left only as results have no id to go on from.
        return runs, replace(since, after=since.after + most if since.is_forgotten else runs[-1].job or 0)

    def states_of_sweeps(self) -> dict[int, dict[str, int]]:
        """Return how many runs of each sweep show which word."""
        found: dict[int, dict[str, int]] = {}
        for sweep_id, word, count in self._ask("states_of_sweeps"):
            states = found.setdefault(sweep_id, {})
            states[word] = states.get(word, 0) + count
        return found

    def numbers(self, job: Job) -> dict[str, float | None] | None:
        """Return the numbers that are kept of a finished job; None: there are none, or they are still to be read."""
        spec = job.spec
        if not spec.metrics and spec.sweep_id is None:
            return None
        which = {"job": job.id, "attempt": job.attempt, "sweep": spec.sweep_id, "point": spec.point}
        row = self._ask("numbers_of", which).fetchone()
        return None if row is None or row[0] is None else dict(json.loads(row[0]))

    def unread_results(self, most: int) -> list[tuple[JobId, int]]:
        """Return attempts that have ended and whose numbers are still to be read."""
        return [(JobId(job_id), attempt) for job_id, attempt in self._ask("unread_results", {"most": most})]

    def is_unread(self, job_id: JobId) -> bool:
        """Tell whether the numbers of a job that has ended are still to be read."""
        return bool(self._ask("is_unread", {"job": job_id}).fetchone()[0])

    def count_unread(self, sweep_id: int) -> int:
        """Return how many runs of a sweep have ended while their numbers are still to be read."""
        return int(self._ask("count_unread", {"sweep": sweep_id}).fetchone()[0])

    def drained(self) -> dict[str, str]:
        """Return the devices that this user drained, and why."""
        return dict(self._ask("drained").fetchall())

    def unwell(self) -> dict[str, str]:
        """Return the devices that somebody has to bring back, and why."""
        return dict(self._ask("unwell").fetchall())

    def accepted(self) -> dict[str, str]:
        """Return what was accepted of devices that are not quite well."""
        return dict(self._ask("accepted").fetchall())

    def uses(self, job_id: JobId, attempt: int) -> list[tuple[str, int | None, float | None, int]]:
        """Return how an attempt used its devices: the id, peak bytes, mean percent, and how often it was looked at."""
        return self._ask("uses_of", {"job": job_id, "attempt": attempt}).fetchall()

    def earlier_uses(self, job_id: JobId) -> list[Earlier]:
        """Return what finished runs of the same command in the same folder used, by some of the newest."""
        rows = self._ask("earlier_uses", {"job": job_id, "most": vram_advice.MOST_ROWS})
        return [Earlier(peak, looks, bool(is_done)) for peak, looks, is_done in rows]

    def minutes(self, since: int) -> list[tuple[Any, ...]]:
        """Return how devices were used, minute by minute since that one: id, minute, and what `usage.Sample` has."""
        return self._ask("minutes_since", {"since": since}).fetchall()

    def needed(self) -> set[JobId]:
        """Return the jobs that unfinished ones wait for."""
        return {JobId(row[0]) for row in self._ask("needed")}

    def finished_first(self, most: int) -> list[JobId]:
        """Return the jobs that finished first and that nobody waits for."""
        return [JobId(row[0]) for row in self._ask("finished_first", {"most": most})]

    def finished_before(self, moment: int, most: int) -> list[JobId]:
        """Return the jobs that finished before a moment and that nobody waits for, the first ones first."""
        return [JobId(row[0]) for row in self._ask("finished_before", {"moment": moment, "most": most})]

    def forgotten(self, with_checkpoints: bool) -> list[JobId]:
        """Return the jobs that are forgotten while their files are not removed yet."""
        return [JobId(row[0]) for row in self._ask("forgotten", {"with_checkpoints": with_checkpoints})]

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

    def where(self, chosen: selectors.Selection, now: int) -> tuple[str, list[Any]]:
        """Return the condition that a selection means, and the values in it."""
        return where.where(chosen, now, self.queries, self.sweep_ids)


def _go_on() -> None:
    """Give way to nobody."""


def digest(text: str) -> bytes:
    """Return the short name under which a long text is kept."""
    return hashlib.sha256(text.encode()).digest()[:16]
