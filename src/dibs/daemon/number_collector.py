"""Collect the numbers of ended jobs in a separate thread: files may be slow, and the queue thread never waits.

The store knows which attempts are unread, so a crash loses nothing: the next daemon reads them.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from dibs.engines.job_files import JobFiles
from dibs.errors import DibsError, NotFound
from dibs.jobqueue.thread import QueueThread
from dibs.jobqueue.turns import Turn
from dibs.logs import numbers_child, reports, tails
from dibs.logs.numbers_child import Printed
from dibs.model.jobs import Job, JobId
from dibs.store.database import DatabaseError
from dibs.store.writer import Reader

log = logging.getLogger("dibs.daemon.number_collector")

#: Attempts whose numbers are stored in one turn.
MOST_AT_ONCE = 200
#: Seconds until a retry after an error.
AGAIN_S = 5.0
#: Seconds that the daemon waits at its end for the thread: it may hang on a disk.
END_WITHIN_S = 2.0

#: By job and attempt.
Found = dict[tuple[JobId, int], Printed]


class NumberCollector:
    """The thread that reads numbers. `wake` it when jobs may have ended; it finds them in the store."""

    def __init__(self, files: JobFiles, database: Path) -> None:
        self._files = files
        self._database = database
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        # A daemon thread: if it hangs on a disk, it is left until the process ends.
        self._thread: threading.Thread | None = None

    def start(self, queue_thread: QueueThread) -> None:
        """Begin with attempts that an earlier daemon left unread; turns of the queue store the numbers."""
        self._thread = threading.Thread(target=self._run, args=[queue_thread], name="numbers", daemon=True)
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Look for ended jobs. From any thread."""
        self._calls.put(True)

    def stop(self) -> None:
        """End the thread after its current work. From any thread."""
        self._calls.put(False)

    def join(self) -> None:
        """Wait until the thread has closed its connection: SQLite removes its log with the last one."""
        if self._thread is not None:
            self._thread.join(END_WITHIN_S)

    def _run(self, queue_thread: QueueThread) -> None:
        reader = Reader.open(self._database)
        timeout_s: float | None = None
        while self._is_called(timeout_s):
            try:
                while self._gather(reader, queue_thread):
                    pass
                timeout_s = None
            except (OSError, DatabaseError, DibsError):
                log.exception("numbers could not be gathered")
                timeout_s = AGAIN_S
        reader.close()

    def _is_called(self, timeout_s: float | None) -> bool:
        try:
            goes_on = self._calls.get(timeout=timeout_s)
            while goes_on and not self._calls.empty():
                goes_on = self._calls.get()
        except queue.Empty:
            return True
        return goes_on

    def _gather(self, reader: Reader, queue_thread: QueueThread) -> bool:
        """Read and store the numbers of some attempts; tell whether there may be more."""
        unread = reader.unread_results(MOST_AT_ONCE)
        found = self._read(reader, unread)
        if found:
            queue_thread.ask(_keep(found)).result()
        return len(unread) == MOST_AT_ONCE

    def _read(self, reader: Reader, unread: Sequence[tuple[JobId, int]]) -> Found:
        """Return the numbers of attempts; reported numbers override printed ones."""
        found: Found = {}
        to_search: dict[tuple[tuple[str, str], ...], list[tuple[JobId, int, str]]] = {}
        for job_id, attempt in unread:
            found[job_id, attempt] = {}, {}
            try:
                job = reader.job(job_id)
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


def _keep(found: Found) -> Callable[[Turn], None]:
    def keep(turn: Turn) -> None:
        for (job_id, attempt), (last, summaries) in found.items():
            turn.store.keep_numbers(job_id, attempt, json.dumps(last), json.dumps(summaries))
            turn.changed.append(job_id)

    return keep
