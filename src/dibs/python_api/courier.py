"""Carrying calls to the queue, many in one submission, and the news of all of them back, in one long poll.

One thread does both for as long as there is something to do. It is a daemon thread: a program may end while calls are
under way, for the queue has them. The daemon may die and come back meanwhile: a submission is said again with its key,
and means the same jobs; events are numbered for good.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dibs.client.connection import Client, Pending
from dibs.client.job_waits import Absence
from dibs.errors import DibsError, MachineError, NotFound, UserError
from dibs.model import selectors
from dibs.python_api.futures import BrokenJob, Future
from dibs.store import call_files

#: Calls, and about how many bytes of them, in one submission.
MOST_CALLS = 1000
MOST_BYTES = 8 * 1024 * 1024
#: Seconds of one long poll, after which everything is looked at anew: what was forgotten makes no news.
POLL_FOR_S = 30.0
#: Seconds between two polls at least: hundreds of calls that end in one second are not hundreds of answers.
REST_S = 0.01
#: Seconds until a submission that got no answer is said again.
AGAIN_S = 0.1
#: Seconds that the thread stays when it has nothing to do.
LINGER_S = 2.0

FINISHED = frozenset(selectors.GROUP_WORDS["finished"])
ACTIVE = frozenset(("starting", "running", "paused", "stopping"))


class Limit:
    """At most so many jobs of some executor at once; the queue counts them as one batch."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.batch: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Terms:
    """What calls have in common that may share a submission."""

    #: The fields of their jobs.
    defaults: dict[str, object]
    #: The words that start Python.
    program: tuple[str, ...]
    #: What the worker has to know before it can read the call.
    context: bytes
    limit: Limit | None


@dataclass(eq=False, slots=True)
class Parcel:
    """A call on its way to the queue."""

    future: Future[Any]
    call: bytes
    name: str
    terms: Terms


class Courier:
    """The way to one user's queue and back."""

    def __init__(self, queue: Client) -> None:
        self._queue = queue
        self._pid = os.getpid()
        #: Held while calls are sent and while news is heard: news of a job never comes before its future has it.
        self._carrying = threading.RLock()
        #: Guards what follows, for moments only.
        self._lock = threading.Lock()
        self._gathered: deque[Parcel] = deque()
        self._waiting: dict[int, Future[Any]] = {}
        self._thread: threading.Thread | None = None
        self._wake = -1
        #: The last event that was heard of; None: nothing is known yet.
        self._cursor: int | None = None
        self._poll: Pending | None = None
        queue.prepare_home()
        atexit.register(_send_at_exit, weakref.ref(self))

    # -- for futures and executors, in their threads

    def take(self, parcel: Parcel) -> None:
        """Accept a call; it is sent in a moment, together with others."""
        with self._lock:
            self._gathered.append(parcel)
            self._rouse()

    def follow(self, known: Iterable[tuple[int, Future[Any]]]) -> None:
        """Wait for jobs that exist already; nothing else was asked of this courier before."""
        with self._lock:
            for job_id, future in known:
                future.queued(job_id)
                self._waiting[job_id] = future
            self._rouse()

    def send(self) -> None:
        """Send all that was accepted until now; returns when every such call has its job, or an error."""
        refused: list[tuple[Future[Any], Exception]] = []
        with self._carrying:
            while parcels := self._together():
                refused += self._submit(parcels)
        for future, error in refused:
            future.fail(error)

    def withdraw(self, future: Future[Any]) -> bool:
        """Take a call back that does not run yet; False if it does, or has ended."""
        return bool(self.withdraw_all([future]))

    def withdraw_all(self, wanted: Sequence[Future[Any]]) -> list[Future[Any]]:
        """Take those of some calls back that do not run yet; return them."""
        chosen = set(wanted)
        with self._carrying:
            with self._lock:
                gone = [parcel.future for parcel in self._gathered if parcel.future in chosen]
                self._gathered = deque(parcel for parcel in self._gathered if parcel.future not in chosen)
                queued = {job_id: future for job_id, future in self._waiting.items() if future in chosen}
            ids = self._cancel(queued) if queued else []
            with self._lock:
                for job_id in ids:
                    self._waiting.pop(job_id, None)
        return [*gone, *(queued[job_id] for job_id in ids)]

    def _cancel(self, ids: Iterable[int]) -> list[int]:
        """Cancel those of some jobs that do not run yet; return them."""
        word = selectors.ranges(ids)
        body = {"verb": "cancel", "select": [f"{word}+queued", f"{word}+held"]}
        try:
            acted = self._queue.post("/v1/jobs/actions", body)
        except NotFound:
            return []
        return [job["id"] for job in acted["changed"]]

    # -- the thread

    def _rouse(self) -> None:
        """Start the thread, or wake it. The lock is held."""
        if self._thread is None:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            thread = threading.Thread(target=self._run, name="dibs-courier", daemon=True)
            # Refused while the interpreter ends; what was accepted is then sent by `_send_at_exit`.
            thread.start()
            self._thread = thread
        else:
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            while not self._may_leave():
                self.send()
                self._listen()
        except BaseException as error:
            self._give_up(error)
            if not isinstance(error, DibsError):
                raise

    def _is_idle(self) -> bool:
        return not self._gathered and not self._waiting

    def _may_leave(self) -> bool:
        """Tell whether nothing is to be done, and nothing came for a while; then the thread is as good as gone."""
        until = time.monotonic() + LINGER_S
        while self._is_idle() and (left_s := until - time.monotonic()) > 0:
            _sleep(self._wake, left_s)
        with self._lock:
            if not self._is_idle():
                return False
            self._leave()
            return True

    def _leave(self) -> None:
        """Let go of everything that belongs to the thread; the next one begins anew. The lock is held."""
        os.close(self._wake)
        if self._poll is not None:
            self._poll.close()
        self._thread = self._cursor = self._poll = None

    def _give_up(self, error: BaseException) -> None:
        """End all futures with an error: there is nobody any more to hear of their jobs."""
        with self._lock:
            left = [*(parcel.future for parcel in self._gathered), *self._waiting.values()]
            self._gathered.clear()
            self._waiting.clear()
            self._leave()
        for future in left:
            broken = BrokenJob(f"lost touch with the queue: {error}", "Executor.attach(...) finds the calls again.")
            broken.__cause__ = error
            future.fail(broken)

    # -- out

    def _together(self) -> list[Parcel]:
        """Take the next calls that can share a submission."""
        with self._lock:
            found: list[Parcel] = []
            size = 0
            while self._gathered and len(found) < MOST_CALLS and size < MOST_BYTES:
                if found and self._gathered[0].terms is not found[0].terms:
                    break
                found.append(self._gathered.popleft())
                size += len(found[-1].call)
        return found

    def _submit(self, parcels: list[Parcel]) -> list[tuple[Future[Any], Exception]]:
        """Submit calls; return those that were refused, and why."""
        key = os.urandom(16).hex()
        try:
            call_files.write(str(self._queue.home), key, parcels[0].terms.context, [parcel.call for parcel in parcels])
            answer = self._post(_body(parcels, key))
        except (DibsError, OSError) as error:
            if isinstance(error, UserError | OSError):
                # Refused: nobody will ever come for them.
                call_files.remove(str(self._queue.home), [key])
            return [(parcel.future, error) for parcel in parcels]
        if (limit := parcels[0].terms.limit) is not None:
            limit.batch = answer["batch"]
        with self._lock:
            for job_id, parcel in zip(answer["ids"], parcels, strict=True):
                parcel.future.queued(job_id)
                self._waiting[job_id] = parcel.future
            if threading.current_thread() is not self._thread:
                # It may have seen nothing to do while this was under way, and be gone.
                self._rouse()
        return []

    def _post(self, body: dict[str, object]) -> Any:
        """Submit; when no answer comes, say the same again: its key makes sure that it is heeded once."""
        absence = Absence(self._queue)
        while True:
            try:
                return self._queue.post("/v1/jobs", body)
            except MachineError as error:
                absence.record_failure(error)
                time.sleep(AGAIN_S)

    # -- back

    def _listen(self) -> None:
        """Wait for news, or for calls to be sent; let the futures know."""
        absence: Absence | None = None
        while not self._gathered and self._waiting:
            try:
                if absence is None or absence.is_over():
                    self._look() if self._cursor is None else self._hear()
                    absence = None
                    continue
            except MachineError as error:
                absence = absence or Absence(self._queue)
                absence.record_failure(error)
                self._cursor = None
            _sleep(self._wake, REST_S)

    def _look(self) -> None:
        """See how all jobs stand that are waited for."""
        with self._carrying:
            with self._lock:
                known = dict(self._waiting)
            if not known:
                # Cancelled meanwhile.
                return
            answer = self._queue.get("/v1/jobs/changes", [("select", selectors.ranges(known))])
            self._cursor = answer["cursor"]
            news = self._heard(answer)
            found = {job["id"] for job in answer["jobs"]}
            with self._lock:
                forgotten = [(i, self._waiting.pop(i)) for i in known if i not in found]
        for job_id, future in forgotten:
            future.fail(BrokenJob(f"job {job_id} was forgotten, and its result with it."))
        self._settle(news, answer["files"])

    def _hear(self) -> None:
        """Wait for what happens after the last event that we know of, or until there is something to send."""
        if self._poll is None:
            query = [("since", str(self._cursor)), ("wait_s", f"{POLL_FOR_S:g}")]
            self._poll = self._queue.begin_get("/v1/jobs/changes", query)
        if not _sleep(self._wake, POLL_FOR_S * 2, self._poll):
            # It goes on; what is sent meanwhile will be in its answer.
            return
        poll, self._poll = self._poll, None
        answer = poll.finish()
        with self._carrying:
            # Nothing for so long: jobs may have been forgotten.
            self._cursor = answer["cursor"] if answer["jobs"] else None
            news = self._heard(answer)
        self._settle(news, answer["files"])
        if any(job["state"] in FINISHED for _, job in news):
            _sleep(self._wake, REST_S)

    def _heard(self, answer: Any) -> list[tuple[Future[Any], Any]]:
        """Return the futures of which there is news; those that have ended are no longer waited for."""
        with self._lock:
            news = [(self._waiting[job["id"]], job) for job in answer["jobs"] if job["id"] in self._waiting]
            for _, job in news:
                if job["state"] in FINISHED:
                    del self._waiting[job["id"]]
        return news

    def _settle(self, news: list[tuple[Future[Any], Any]], files: str) -> None:
        """Let futures know, without any lock: what is to be done then is the user's."""
        for future, job in news:
            if job["state"] in ACTIVE:
                future.begin()
            elif job["state"] in FINISHED:
                path = call_files.result_path(f"{files}/{job['id']}", job["attempt"])
                future.settle(job["state"], path, partial(self._told, job["id"]))

    def _told(self, job_id: int) -> Any:
        """Return all that the queue knows of a job; None: nothing."""
        try:
            return self._queue.get(f"/v1/jobs/{job_id}")
        except (MachineError, NotFound):
            return None


def _body(parcels: list[Parcel], key: str) -> dict[str, object]:
    terms = parcels[0].terms
    jobs = [
        {"argv": call_files.words(terms.program, key, number), "name": parcel.name}
        for number, parcel in enumerate(parcels)
    ]
    body: dict[str, object] = {"defaults": terms.defaults, "jobs": jobs, "key": key}
    if terms.limit is not None:
        body |= {"at_once": terms.limit.at_once} if terms.limit.batch is None else {"batch": terms.limit.batch}
    return body


def _sleep(wake: int, for_s: float, poll: Pending | None = None) -> bool:
    """Sleep until woken, until the answer of a poll is there, or so long; tell whether an answer is there."""
    sleeper = select.poll()
    sleeper.register(wake, select.POLLIN)
    if poll is not None:
        sleeper.register(poll, select.POLLIN)
    readable = {fd for fd, _ in sleeper.poll(for_s * 1000)}
    if wake in readable:
        os.eventfd_read(wake)
    return poll is not None and poll.fileno() in readable


def _send_at_exit(held: weakref.ref[Courier]) -> None:
    """Send what the program submitted in its last moments; the queue is where it goes on."""
    courier = held()
    # A child after a fork has the list, but not the calls.
    if courier is not None and courier._pid == os.getpid():
        courier.send()
