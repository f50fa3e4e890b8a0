"""Send calls to the daemon in batches, and follow all their jobs with one long poll.

One thread does both while there are unfinished calls. It is a daemon thread: the program may exit, the jobs continue.
The daemon may restart meanwhile: a submission is repeated with its key and yields the same jobs, and event numbers
persist.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from dibs.client.connection import Client, PendingResponse
from dibs.client.job_waits import Absence
from dibs.errors import DibsError, MachineError, NotFound, UserError
from dibs.model import selectors
from dibs.python_api.calls import requests
from dibs.python_api.calls.requests import FINISHED, CallJob, PendingCall
from dibs.python_api.futures import BrokenJob, Future
from dibs.store import call_files

#: Limits of one submission: calls, and approximately bytes.
MOST_CALLS = 1000
MOST_BYTES = 8 * 1024 * 1024
#: Seconds of one long poll. After an empty one all jobs are listed again: a deleted job makes no event.
POLL_FOR_S = 30.0
#: Seconds between two polls at least, so that one answer covers many calls that finish at the same time.
POLL_PAUSE_S = 0.01
#: Seconds that an idle thread waits for new calls before it exits.
LINGER_S = 2.0

ACTIVE = frozenset(("starting", "running", "paused", "stopping"))


class SubmissionQueue:
    """Submits calls to one user's daemon and sets their futures."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pid = os.getpid()
        #: Held while sending and while reading changes, so that a future has its job id before the first change.
        self._exchange = threading.RLock()
        #: Guards the fields below; never held during I/O.
        self._lock = threading.Lock()
        self._unsent: deque[PendingCall] = deque()
        #: By job: calls of a sweep with equal parameters are one job.
        self._unfinished: dict[int, list[Future[Any]]] = {}
        self._thread: threading.Thread | None = None
        self._wake_fd = -1
        #: The last event received; None: list all jobs first.
        self._cursor: int | None = None
        self._poll: PendingResponse | None = None
        client.prepare_home()
        atexit.register(_send_at_exit, weakref.ref(self))

    # -- called by futures and executors, in their threads

    def add(self, pending: PendingCall) -> None:
        """Queue a call for the next submission."""
        with self._lock:
            self._unsent.append(pending)
            self._wake_thread()

    def follow(self, jobs: Iterable[tuple[int, Future[Any]]]) -> None:
        """Follow existing jobs; must be the first call on this object."""
        with self._lock:
            for job_id, future in jobs:
                self._follow(CallJob(job_id, 0), future)
            self._wake_thread()

    def _follow(self, job: CallJob, future: Future[Any]) -> None:
        """Follow the job of a future. Needs the lock."""
        future.set_job(job.id, job.attempt)
        self._unfinished.setdefault(job.id, []).append(future)

    def send(self) -> None:
        """Submit all pending calls; return when each of them has a job or an error."""
        refused: list[tuple[Future[Any], Exception]] = []
        with self._exchange:
            while calls := self._next_batch():
                refused += self._submit(calls)
        for future, error in refused:
            future.fail(error)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Submit the calls that are added inside in one request: the thread cannot send the first ones before."""
        with self._exchange:
            yield
            self.send()

    def withdraw(self, futures: Sequence[Future[Any]]) -> list[Future[Any]]:
        """Cancel the calls that have not started; return them."""
        chosen = set(futures)
        with self._exchange:
            with self._lock:
                gone = [pending.future for pending in self._unsent if pending.future in chosen]
                self._unsent = deque(pending for pending in self._unsent if pending.future not in chosen)
                queued = [job_id for job_id, calls in self._unfinished.items() if not chosen.isdisjoint(calls)]
            ids = self._cancel(queued) if queued else []
            with self._lock:
                return gone + [future for job_id in ids for future in self._unfinished.pop(job_id, [])]

    def _cancel(self, ids: Iterable[int]) -> list[int]:
        """Cancel the jobs that have not started; return their ids."""
        word = selectors.ranges(ids)
        body = {"verb": "cancel", "select": [f"{word}+queued", f"{word}+held"]}
        try:
            acted = self._client.post("/v1/jobs/actions", body)
        except NotFound:
            return []
        return [job["id"] for job in acted["changed"]]

    # -- the thread

    def _wake_thread(self) -> None:
        """Start the thread, or wake it. Needs the lock."""
        if self._thread is None:
            self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            thread = threading.Thread(target=self._run, name="dibs-submission-queue", daemon=True)
            # Raises while the interpreter shuts down; then `_send_at_exit` sends the pending calls.
            thread.start()
            self._thread = thread
        else:
            os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        try:
            while not self._is_done():
                self.send()
                self._receive()
        except BaseException as error:
            self._fail_all(error)
            if not isinstance(error, DibsError):
                raise

    def _is_idle(self) -> bool:
        return not self._unsent and not self._unfinished

    def _is_done(self) -> bool:
        """Return True, and reset the thread's fields, after `LINGER_S` without work."""
        until = time.monotonic() + LINGER_S
        while self._is_idle() and (left_s := until - time.monotonic()) > 0:
            _sleep(self._wake_fd, left_s)
        with self._lock:
            if not self._is_idle():
                return False
            self._reset()
            return True

    def _reset(self) -> None:
        """Close and clear what belongs to the thread. Needs the lock."""
        os.close(self._wake_fd)
        if self._poll is not None:
            self._poll.close()
        self._thread = self._cursor = self._poll = None

    def _fail_all(self, error: BaseException) -> None:
        """Fail all futures: the thread that follows their jobs is about to exit."""
        with self._lock:
            left = [pending.future for pending in self._unsent]
            left += [future for calls in self._unfinished.values() for future in calls]
            self._unsent.clear()
            self._unfinished.clear()
            self._reset()
        for future in left:
            broken = BrokenJob(f"lost contact with the daemon: {error}", "Executor.attach(...) returns the calls.")
            broken.__cause__ = error
            future.fail(broken)

    # -- submit

    def _next_batch(self) -> list[PendingCall]:
        """Remove and return the next calls that can share a submission."""
        with self._lock:
            found: list[PendingCall] = []
            size = 0
            while self._unsent and len(found) < MOST_CALLS and size < MOST_BYTES:
                if found and self._unsent[0].options is not found[0].options:
                    break
                found.append(self._unsent.popleft())
                size += len(found[-1].call)
        return found

    def _submit(self, calls: list[PendingCall]) -> list[tuple[Future[Any], Exception]]:
        """Submit calls; return the refused ones with their errors."""
        key = os.urandom(16).hex()
        try:
            call_files.write(str(self._client.home), key, calls[0].options.context, [pending.call for pending in calls])
            jobs = requests.post(self._client, calls, key)
        except (DibsError, OSError) as error:
            if isinstance(error, UserError | OSError):
                # No job will read these files.
                call_files.remove(str(self._client.home), [key])
            return [(pending.future, error) for pending in calls]
        with self._lock:
            for job, pending in zip(jobs, calls, strict=True):
                self._follow(job, pending.future)
            if any(job.is_finished for job in jobs):
                # They make no event: list all jobs.
                self._cursor = None
            if threading.current_thread() is not self._thread:
                # The thread may have seen no work during the request, and exited.
                self._wake_thread()
        return []

    # -- receive

    def _receive(self) -> None:
        """Wait for changes and pass them to the futures, until there are calls to send or none to follow."""
        absence: Absence | None = None
        while not self._unsent and self._unfinished:
            try:
                if absence is None or absence.is_over():
                    self._poll_all() if self._cursor is None else self._poll_changes()
                    absence = None
                    continue
            except MachineError as error:
                absence = absence or Absence(self._client)
                absence.record_failure(error)
                self._cursor = None
            _sleep(self._wake_fd, POLL_PAUSE_S)

    def _poll_all(self) -> None:
        """Ask for the state of all unfinished jobs."""
        with self._exchange:
            with self._lock:
                known = dict(self._unfinished)
            if not known:
                # All were cancelled meanwhile.
                return
            answer = self._client.get("/v1/jobs/changes", [("select", selectors.ranges(known))])
            self._cursor = answer["cursor"]
            news = self._match(answer)
            found = {job["id"] for job in answer["jobs"]}
            with self._lock:
                forgotten = [(i, one) for i in known if i not in found for one in self._unfinished.pop(i, [])]
        for job_id, future in forgotten:
            future.fail(BrokenJob(f"job {job_id} was deleted, with its result."))
        self._notify(news, answer["files"])

    def _poll_changes(self) -> None:
        """Wait for events after the cursor, or until there are calls to send."""
        if self._poll is None:
            query = [("since", str(self._cursor)), ("wait_s", f"{POLL_FOR_S:g}")]
            self._poll = self._client.begin_get("/v1/jobs/changes", query)
        if not _sleep(self._wake_fd, POLL_FOR_S * 2, self._poll):
            # The poll stays open; its answer includes jobs that are submitted meanwhile.
            return
        poll, self._poll = self._poll, None
        answer = poll.finish()
        with self._exchange:
            # No change for `POLL_FOR_S`: list all, because jobs may have been deleted.
            self._cursor = answer["cursor"] if answer["jobs"] else None
            news = self._match(answer)
        self._notify(news, answer["files"])
        if any(job["state"] in FINISHED for _, job in news):
            _sleep(self._wake_fd, POLL_PAUSE_S)

    def _match(self, answer: Any) -> list[tuple[Future[Any], Any]]:
        """Return the changed futures with their jobs; stop following finished ones."""
        with self._lock:
            news = [
                (future, job)
                for job in answer["jobs"]
                for future in self._unfinished.get(job["id"], ())
                # An answer from before a retry describes an earlier attempt.
                if job["attempt"] >= future.first_attempt
            ]
            for future, job in news:
                if job["state"] in FINISHED:
                    self._unfinished[job["id"]].remove(future)
                    if not self._unfinished[job["id"]]:
                        del self._unfinished[job["id"]]
        return news

    def _notify(self, news: list[tuple[Future[Any], Any]], files: str) -> None:
        """Update futures, without a lock: their callbacks are user code."""
        for future, job in news:
            if job["state"] in ACTIVE:
                future.begin()
            elif job["state"] in FINISHED:
                path = call_files.result_path(job["files"] or f"{files}/{job['id']}", job["attempt"])
                future.settle(job["state"], path, partial(self._details, job["id"]))

    def _details(self, job_id: int) -> Any:
        """Return the job in full; None if the daemon does not answer or does not know it."""
        try:
            return self._client.get(f"/v1/jobs/{job_id}")
        except (MachineError, NotFound):
            return None


def _sleep(wake: int, for_s: float, poll: PendingResponse | None = None) -> bool:
    """Sleep until woken, until the poll has an answer, or `for_s` seconds; return whether it has an answer."""
    sleeper = select.poll()
    sleeper.register(wake, select.POLLIN)
    if poll is not None:
        sleeper.register(poll, select.POLLIN)
    readable = {fd for fd, _ in sleeper.poll(for_s * 1000)}
    if wake in readable:
        os.eventfd_read(wake)
    return poll is not None and poll.fileno() in readable


def _send_at_exit(reference: weakref.ref[SubmissionQueue]) -> None:
    """Submit the calls that are still pending when the program exits."""
    queue = reference()
    # A forked child has a copy of the calls, which the parent submits.
    if queue is not None and queue._pid == os.getpid():
        queue.send()
