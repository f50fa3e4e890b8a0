"""Collect the numbers of ended jobs in a separate thread: files may be slow, and the queue thread never waits.

Also what the checkpoints of evicted jobs kept, and which running jobs write some. The store knows which attempts are
unread, so a crash loses nothing: the next daemon reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from dibs.daemon.readers import StoreThread
from dibs.engines.job_files import JobFiles
from dibs.errors import NotFound
from dibs.jobqueue import evictions
from dibs.jobqueue.turns import Turn
from dibs.logs import checkpoint_times, numbers_child, reports, tails
from dibs.logs.checkpoint_times import Regularity
from dibs.logs.numbers_child import Printed
from dibs.model.jobs import Job, JobId

#: Attempts whose numbers are stored in one turn.
MOST_AT_ONCE = 200
#: Most and least seconds between two looks at the checkpoints of jobs that they make evictable.
CHECKPOINTS_EVERY_S, CHECKPOINTS_LEAST_S = 30.0, 0.2

#: By job and attempt.
Found = dict[tuple[JobId, int], Printed]


class NumberCollector(StoreThread):
    """The thread that reads numbers. It is woken when jobs may have ended, and finds them in the store."""

    name = "numbers"

    def __init__(self, files: JobFiles, database: Path, stored: Callable[[], None]) -> None:
        super().__init__(database)
        self._files = files
        #: Called when numbers were stored.
        self._stored = stored
        self._regularity = Regularity()

    def _look(self) -> float | None:
        while self._gather():
            pass
        while self._count_saved():
            pass
        return self._watch_checkpoints()

    def _gather(self) -> bool:
        """Read and store the numbers of some attempts; tell whether there may be more."""
        unread = self._reader.unread_results(MOST_AT_ONCE)
        found = self._read(unread)
        if found:
            self._queue.ask(partial(_keep, found=found)).result()
            self._stored()
        return len(unread) == MOST_AT_ONCE

    def _count_saved(self) -> bool:
        """Store what the checkpoints of some evicted attempts kept; tell whether there may be more."""
        unread = self._reader.unread_evictions(MOST_AT_ONCE)
        found = {}
        for job_id, attempt, began, ended in unread:
            newest = checkpoint_times.newest(self._checkpoints(job_id), ended)
            found[job_id, attempt] = checkpoint_times.kept(began, ended, newest)
        if found:
            self._queue.ask(partial(_keep_saved, found=found)).result()
        return len(unread) == MOST_AT_ONCE

    def _watch_checkpoints(self) -> float | None:
        """Make running jobs evictable that write checkpoints; return when to look again, None: on request."""
        watched, regularity = self._reader.automatic(), self._regularity
        regularity.keep_only({(job_id, attempt) for job_id, attempt, _, _ in watched})
        for job_id, attempt, began, is_known in watched:
            newest = None if is_known else checkpoint_times.newest(self._checkpoints(job_id))
            is_regular = is_known or regularity.see(job_id, attempt, began, newest)
            # Also if the store knows it: an earlier daemon may have ended before it told the runner.
            if is_regular and regularity.is_new(job_id, attempt):
                self._queue.tell(partial(evictions.make_evictable, job_id=job_id, attempt=attempt))
        if not watched:
            return None
        least_s = self._queue.settings.evict_min_run / 4
        return min(CHECKPOINTS_EVERY_S, max(CHECKPOINTS_LEAST_S, least_s))

    def _checkpoints(self, job_id: JobId) -> str:
        return f"{self._files.folder(self._reader.job(job_id))}/checkpoint"

    def _read(self, unread: Sequence[tuple[JobId, int]]) -> Found:
        """Return the numbers of attempts; reported numbers override printed ones."""
        found: Found = {}
        to_search: dict[tuple[tuple[str, str], ...], list[tuple[JobId, int, str]]] = {}
        for job_id, attempt in unread:
            found[job_id, attempt] = {}, {}
            try:
                job = self._reader.job(job_id)
            except NotFound:
                # The job was deleted, with its files.
                continue
            found[job_id, attempt] = _reported(job, self._files.report(job, attempt))
            if job.spec.metrics:
                to_search.setdefault(job.spec.metrics, []).append((job_id, attempt, self._files.log(job, attempt)))
        for metrics, runs in to_search.items():
            told = numbers_child.search([path for _, _, path in runs], dict(metrics))
            for (job_id, attempt, _), printed in zip(runs, told, strict=True):
                reported = found[job_id, attempt]
                found[job_id, attempt] = printed[0] | reported[0], printed[1] | reported[1]
        return found


def _reported(job: Job, path: str) -> Printed:
    """Return the last numbers and the summaries of a report; more of it is read for sweep runs, to compare them."""
    tail = tails.read(path, reports.TAIL_BYTES if job.spec.sweep_id is None else reports.COURSE_BYTES)
    last = reports.latest(tail[-reports.TAIL_BYTES :]) or {}
    return last, {name: one for name, one in reports.summaries(tail).items() if name in last}


def _keep_saved(turn: Turn, found: Mapping[tuple[JobId, int], tuple[int, int]]) -> None:
    for (job_id, attempt), (saved, lost) in found.items():
        turn.store.keep_saved(job_id, attempt, saved, lost)
        turn.changed.append(job_id)


def _keep(turn: Turn, found: Found) -> None:
    for (job_id, attempt), (last, summaries) in found.items():
        turn.store.keep_numbers(job_id, attempt, json.dumps(last), json.dumps(summaries))
        turn.changed.append(job_id)
