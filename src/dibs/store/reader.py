"""Read the store: jobs by id and by selection, the heads of the lines, events.

It changes nothing; `writer.Store` inherits it and runs the same queries inside its transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dibs.errors import NotFound, UserError
from dibs.model import selectors, suggestions, units
from dibs.model.jobs import LOCAL, Cause, Job, JobId, Outcome, When, holder_of
from dibs.scheduling import vram_advice
from dibs.scheduling.views import Active, Limit, WaitingJob
from dibs.scheduling.vram_advice import Earlier
from dibs.store import database, rows, where
from dibs.store.histories import Histories
from dibs.store.query_results import (
    BatchTally,
    EventRow,
    Glance,
    GroupRow,
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
        self.histories = Histories(connection, self.runtimes, self.jobs)
        #: Where large groups are, by their keys; kept by `groups`.
        self.spans: dict[Any, Any] = {}
        #: Called between the steps of long computations, so that readers can yield to the writer.
        self.pause: Callable[[], None] = lambda: None

    @classmethod
    def open(cls, path: Path) -> Reader:
        """Open a read-only connection; the writer has created the file."""
        return cls(database.open_reader(path))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _ask(self, name: str, values: Mapping[str, Any] | None = None) -> sqlite3.Cursor:
        return self.connection.execute(self.queries[name], values or {})

    def _ask_about(self, name: str, chosen: selectors.Selection, now: int) -> sqlite3.Cursor:
        """Run a query about the jobs of a selection."""
        where, values = self.where(chosen, now)
        return self.connection.execute(self.queries[name].replace("{where}", where), values)

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
            Active(
                JobId(i),
                rows.devices_of(devices),
                cpus,
                mem,
                limit_s or None,
                at,
                batch,
                units.mib_of(vram),
                bool(is_evictable),
                evicted_by,
                leaves_at,
                group=g,
                project=p,
            )
            for i, devices, cpus, mem, limit_s, at, batch, vram, is_evictable, evicted_by, leaves_at, g, p in self._ask(
                "active_devices"
            )
        ]

    def waiting_engines(self) -> list[str]:
        """Return the engines beside this machine for which jobs wait."""
        return [engine for (engine,) in self._ask("waiting_engines")]

    def waiting_on(self) -> dict[str, int]:
        """Return how many jobs wait for each engine."""
        return dict(self._ask("waiting_on").fetchall())

    def to_overflow(self, most: int) -> list[Job]:
        """Return the first jobs that wait on this machine and may go to another engine."""
        return self._listed(self._ask("to_overflow", {"most": most}))

    def active_on(self, engine: str) -> list[tuple[JobId, int, int]]:
        """Return the active jobs of an engine: id, GPUs and cores."""
        return [(JobId(job_id), gpus, cpus) for job_id, gpus, cpus in self._ask("active_on", {"engine": engine})]

    def head(self, most: int, most_shared: int | None = None, *, engine: str = LOCAL) -> list[WaitingJob]:
        """Return the first `most` jobs of each line, or `most_shared` of a line that shares devices, for one plan."""
        found = []
        bounds = self.group_bounds()
        for request_id, *request, batch, room, group, project in self._ask("lines", {"engine": engine}).fetchall():
            shape = rows.request_of(request)
            many = most_shared if shape.vram and most_shared else most
            line = {"request": request_id, "batch": batch, "group": group, "project": project, "most": many}
            lane = group, project, bounds.get(group, ())
            found += [
                WaitingJob(JobId(i), shape, p, batch, room, r, *lane) for i, p, r in self._ask("head_of_line", line)
            ]
        return found

    def waiting(self, job: Job) -> WaitingJob:
        """Return a job as it waits in its line, which need not be one of the first."""
        spec = job.spec
        room, bounds = self.batch_room(spec.batch), self.group_bounds().get(spec.group, ())
        lane = spec.group, spec.project, bounds
        return WaitingJob(job.id, spec.request, spec.priority, spec.batch, room, job.rank, *lane)

    def group_bounds(self) -> dict[str, tuple[Limit, ...]]:
        """Return the limits of the groups that have one."""
        return {
            name: (Limit(("group", name), 0 if is_paused else room, is_paused=bool(is_paused)),)
            for name, room, is_paused in self._ask("group_bounds").fetchall()
            if is_paused or room is not None
        }

    def groups(self) -> list[GroupRow]:
        """Return the groups of jobs that have a rule or an unfinished job."""
        found = self._ask("groups").fetchall()
        return [GroupRow(name, at_once, bool(is_paused), *counts) for name, at_once, is_paused, *counts in found]

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
        return [(JobId(job_id), word) for job_id, word in self._ask_about("selected_words", chosen, now)]

    def select_ids(self, chosen: selectors.Selection, now: int) -> list[JobId]:
        """Return the ids of the jobs of a selection."""
        return [JobId(row[0]) for row in self._ask_about("selected_ids", chosen, now)]

    def tally(self, chosen: selectors.Selection, now: int) -> dict[str, int]:
        """Count the jobs of a selection by displayed state."""
        if chosen == ((selectors.Everything(),),):
            return {word: count for word, count in self.counts().items() if count}
        return dict(self._ask_about("tally", chosen, now).fetchall())

    def failed_since(self, since: int) -> dict[str, int]:
        """Return the number of jobs that ended badly since a time, per outcome."""
        return dict(self._ask("failed_since", {"since": since}).fetchall())

    def lately_finished(self, most: int) -> Iterable[tuple[int, int | None, int, int]]:
        """Return the latest finished jobs one by one: id, sweep, batch and time of submission."""
        return self._ask("ended_last", {"most": most})

    def first_unfinished(self, most: int) -> Iterable[tuple[int, int | None, int, int]]:
        """Return the oldest unfinished jobs one by one: id, sweep, batch and time of submission."""
        return self._ask("groups_of_unfinished", {"most": most})

    def tally_group(self, job: Job, first: int, last: int) -> list[tuple[str, int, int, int]]:
        """Count the jobs of a sweep, a batch or a submission per displayed state, with the first and last id of each.

        `job` is one of them; `first` and `last` are the outermost known ones.
        """
        if job.spec.sweep_id is not None:
            return self._ask("tally_sweep", {"sweep": job.spec.sweep_id}).fetchall()
        which = {"batch": job.spec.batch, "at": job.submitted_at, "first": first, "last": last}
        return self._ask("tally_submission", which).fetchall()

    def strangers(self, job: Job, first: int, after: int) -> tuple[int, int | None, int]:
        """Return the nearest jobs below `first` (0: none) and above `after` (None: none) outside the group of `job`.

        The last number is the id of the last job of all.
        """
        group = {"sweep": job.spec.sweep_id, "batch": job.spec.batch, "at": job.submitted_at}
        low, high, last = self._ask("strangers", {**group, "first": first, "after": after}).fetchone()
        return low, high, last or 0

    def tally_span(self, low: int, high: int) -> list[tuple[str, int]]:
        """Count all jobs between two ids per displayed state, without reading their rows."""
        return self._ask("tally_span", {"low": low, "high": high}).fetchall()

    def ends_of_span(self, low: int, high: int) -> tuple[int | None, int | None]:
        """Return the first and the last job between two ids."""
        first, last = self._ask("ends_of_span", {"low": low, "high": high}).fetchone()
        return first, last

    def held_among(self, chosen: selectors.Selection, now: int) -> list[list[JobId]]:
        """Return the held jobs that keep a selection from finishing, those that are held for one reason together.

        They include jobs that the selected ones wait for. Empty while any other job may still run.
        """
        if self._ask_about("can_go_on", chosen, now).fetchone()[0]:
            return []
        groups: dict[object, list[JobId]] = {}
        for job_id, why, batch, tags in self._ask_about("held_among", chosen, now):
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
            PastAttempt(n, outcome, Cause(cause) if cause else None, code, sig, rows.devices_of(allocation), *rest)
            for n, outcome, cause, code, sig, allocation, *rest in self._ask("attempts_of", {"job": job_id})
        ]

    def unread_evictions(self, most: int) -> list[tuple[JobId, int, int, int]]:
        """Return evicted attempts whose checkpoints were not looked at: job, attempt, begin and end."""
        found = self._ask("unread_evictions", {"most": most})
        return [(JobId(job), attempt, began or ended, ended) for job, attempt, began, ended in found]

    def automatic(self) -> list[tuple[JobId, int, int, bool]]:
        """Return running jobs that are evictable once they write checkpoints: attempt, begin, whether they do."""
        return [(JobId(job), attempt, at, bool(known)) for job, attempt, at, known in self._ask("automatic")]

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

    def people_days(self, since: int, most: int = 100_000) -> list[tuple[int, int, float]]:
        """Return the device time of all users since a day: the day, the uid, and milliseconds."""
        return self._ask("people_days", {"since": since, "most": most}).fetchall()

    def project_times(self, since: int) -> Iterable[tuple[str, int, int, int]]:
        """Return the attempts that had devices and ended since a time: project, devices, start and end."""
        return self._ask("project_times", {"since": since}).fetchall()

    def ordinary_times(self, since: int) -> Iterable[tuple[str, int, int, int]]:
        """Return the same of jobs that are not evictable, the first to end first."""
        return self._ask("ordinary_times", {"since": since}).fetchall()

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

    def runtimes(self, likeness: bytes) -> list[float]:
        """Return the durations in seconds of the latest successful jobs of a likeness."""
        return [took_ms / 1000 for (took_ms,) in self._ask("runtimes", {"likeness": likeness})]

    def due(self, since: int, now: int) -> list[JobId]:
        """Return the jobs whose begin time is between two times."""
        return [JobId(row[0]) for row in self._ask("due", {"since": since, "now": now}).fetchall()]

    def next_begin(self, now: int) -> int | None:
        """Return the next begin time; None if no job waits for one."""
        found = self._ask("next_begin", {"now": now}).fetchone()[0]
        return None if found is None else int(found)

    def batch_limit(self, batch: int) -> int | None:
        """Return how many jobs of a batch may be active at once; None: any number."""
        row = self._ask("batch_limit", {"id": batch}).fetchone()
        return None if row is None else row[0]

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
        return [Glance(*row) for row in self._ask_about("selected_states", chosen, now)]

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
            raise NotFound(
                f'there is no sweep "{word}".', suggestions.did_you_mean(word, known) or "`dibs results` lists them."
            )
        if len(exact) > 1:
            places = " and ".join(f"sweep:{project}/{name}" for _, project, name in exact)
            raise UserError(f'there are {len(exact)} sweeps "{word}".', f"Write {places}.")
        return [row[0] for row in exact or found]

    def trials_left(self) -> dict[int, int]:
        """Return how many more trials searches take, by sweep; without those that have ended."""
        return dict(self._ask("trials_left").fetchall())

    def has_run_under_way(self, sweep_id: int) -> bool:
        """Tell whether a run of a sweep waits or runs, and is not being stopped."""
        return bool(self._ask("unfinished_of_sweep", {"sweep": sweep_id}).fetchone()[0])

    def newest_run(self, sweep_id: int) -> Job | None:
        """Return the newest run of a sweep; None if all were deleted."""
        found = self._ask("newest_of_sweep", {"sweep": sweep_id}).fetchone()[0]
        return None if found is None else self.job(JobId(found))

    def sweeps_to_judge(self) -> list[Sweep]:
        """Return the sweeps with a rule that stops runs early, and with unfinished runs."""
        return [self.sweep(row[0]) for row in self._ask("stopping_rules").fetchall()]

    def runs_to_compare(self, sweep_id: int) -> list[Job]:
        """Return the runs of a sweep that have begun and did not fail."""
        return [rows.job_of(row) for row in self._ask("runs_with_curves", {"sweep": sweep_id})]

    def count_early(self, chosen: selectors.Selection, now: int) -> int:
        """Return how many jobs of a selection were stopped early."""
        return int(self._ask_about("count_early", chosen, now).fetchone()[0])

    def next_index(self, sweep_id: int) -> int:
        """Return the index of the next run of a sweep."""
        return int(self._ask("next_index", {"sweep": sweep_id}).fetchone()[0])

    def runs_of_points(self, sweep_id: int, points: Iterable[str]) -> dict[str, tuple[JobId | None, str]]:
        """Return the job of the newest run of each of these points (None if deleted) and its state.

        A run that was stopped early counts as done.
        """
        found = self._ask("runs_of_points", {"sweep": sweep_id, "points": json.dumps(list(points))})
        return {
            point: (None if job_id is None else JobId(job_id), Outcome.DONE.value if is_early else word)
            for point, job_id, word, is_early in found.fetchall()
        }

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
        return runs, since._replace(after=since.after + most if since.is_forgotten else runs[-1].job or 0)

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
