"""`dibs.Executor`: functions of Python as jobs, behind the interface of `concurrent.futures`.

    with dibs.Executor(gpus=1) as pool:
        best = max(pool.map(train, [0.1, 0.01]))

Each call is a job of its own, with devices, log, time limit and retries as any other. It outlives the program that made
it: `Executor.attach` finds the futures again.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from dibs.client import connection, queries
from dibs.client.connection import Client
from dibs.errors import DibsError, UserError
from dibs.python_api import call_label, call_worker, keywords, pickling
from dibs.python_api.courier import Courier, Limit, Parcel, Terms
from dibs.python_api.futures import VALUES, Future, cancel_all
from dibs.python_api.keywords import Options
from dibs.store import call_files
from dibs.submission import drafts, job_options
from dibs.submission.options import Args

T = TypeVar("T")
P = ParamSpec("P")

#: What other executors take, and what stands for it here.
HABITS = {
    "max_workers": "Did you mean max_jobs?",
    "initializer": "Each call has a process of its own: do it at the top of the module, or in the function.",
    "initargs": "Each call has a process of its own: do it at the top of the module, or in the function.",
    "mp_context": "Each call has a process of its own.",
}


class Pool:
    """What an executor and all that `with_options` made of it have in common."""

    def __init__(self, queue: Client, max_jobs: int | None) -> None:
        self.courier = Courier(queue)
        self.limit = None if max_jobs is None else Limit(max_jobs)
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.is_closed = False
        self.unfinished: set[Future[Any]] = set()

    def add(self, future: Future[Any]) -> None:
        """Remember a future until it is done."""
        with self.lock:
            if self.is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self.unfinished.add(future)
        future.add_done_callback(self._forget)

    def _forget(self, future: futures.Future[Any]) -> None:
        with self.lock:
            self.unfinished.discard(future)

    def check_process(self) -> None:
        """Refuse to work in a child: the thread that does the work stayed in the parent."""
        if self.pid != os.getpid():
            raise RuntimeError("this dibs.Executor was made before a fork; make another one in this process.")


class Executor(futures.Executor):
    """Runs functions as jobs of the queue; an executor as the standard library knows it."""

    def __init__(self, *, max_jobs: int | None = None, **options: Unpack[Options]) -> None:
        """Take the options of `dibs.submit` for every call; at most `max_jobs` of the calls run at once."""
        if max_jobs is not None and (type(max_jobs) is not int or max_jobs < 1):
            raise UserError(f"max_jobs expected a whole number from 1 up, got {max_jobs!r}.")
        self._options: Mapping[str, object] = dict(options)
        self._args = _read(self._options)
        self._pool = Pool(connection.connect(os.environ), max_jobs)
        self._terms = _Capture(self._args, self._pool.limit)

    def with_options(self, **options: Unpack[Options]) -> Self:
        """Return the same executor with other options: `pool.with_options(gpus=2, time="1h").submit(...)`."""
        other = type(self).__new__(type(self))
        other._options = {**self._options, **options}
        other._args = _read(other._options)
        other._pool = self._pool
        other._terms = _Capture(other._args, self._pool.limit)
        return other

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; its future is there at once, its job in a moment."""
        return self._submit(fn, args, kwargs, call_label.of(fn, args, kwargs))

    def _submit(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str) -> Future[T]:
        self._pool.check_process()
        future: Future[T] = Future(self._pool.courier)
        self._pool.add(future)
        try:
            terms = self._terms.now()
            call = pickling.dump((fn, args, kwargs), f"the call {name}")
        except (pickling.Unpicklable, DibsError) as error:
            future.fail(error)
        else:
            self._pool.courier.take(Parcel(future, call, str(self._options.get("name") or name), terms))
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Return the results in the order of the arguments; `chunksize` calls share a job.

        All calls are queued at once. An exception is raised in the place of its call.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        until = None if timeout is None else time.monotonic() + timeout
        every = zip(*iterables, strict=False)
        if chunksize == 1:
            return _in_order([self._submit(fn, args, {}, call_label.of(fn, args, {})) for args in every], until)
        chunks = iter(lambda: tuple(itertools.islice(every, chunksize)), ())
        many = [self._submit(call_worker.run_all, (fn, chunk), {}, _name_of(fn, chunk)) for chunk in chunks]
        return _one_by_one(_in_order(many, until))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; those that were made go on, unless they are cancelled before they run.

        Without `wait` this returns as soon as all calls are in the queue: the program may end.
        """
        pool = self._pool
        if pool.pid != os.getpid():
            # It is the parent's, which goes on with it.
            return
        with pool.lock:
            pool.is_closed = True
            left = list(pool.unfinished)
        if cancel_futures:
            cancel_all(left)
        if wait:
            futures.wait(left)
        else:
            pool.courier.send()

    @classmethod
    def attach(cls, jobs: str | Iterable[int | str]) -> list[Future[Any]]:
        """Return the futures of calls that were made before, by this program or another.

        `jobs` are ids, in whose order they come, or a selector such as "name:train*", of which all calls are meant.
        """
        is_selector = isinstance(jobs, str)
        words = [jobs] if isinstance(jobs, str) else [str(getattr(job, "id", job)) for job in jobs]
        if not words:
            return []
        queue = connection.connect(os.environ)
        found = {job["id"]: job for job in queue.get("/v1/jobs", queries.select(words))["jobs"]}
        ids = list(found) if is_selector else [int(word) for word in words]
        for job_id in ids:
            if job_id not in found:
                raise UserError(f"there is no job {job_id}.")
            if not is_selector and not call_files.is_call(found[job_id]["argv"]):
                raise UserError(f"job {job_id} is not a call of dibs.Executor.", f"It is dibs.job({job_id}).")
        courier = Courier(queue)
        known = {job_id: Future[Any](courier) for job_id in ids if call_files.is_call(found[job_id]["argv"])}
        courier.follow(known.items())
        return list(known.values())


class _Capture:
    """What every call of an executor has in common: its options, and how the program stands when it is made."""

    def __init__(self, args: Args, limit: Limit | None) -> None:
        self._args = args
        self._limit = limit
        self._last: tuple[tuple[object, ...], Terms] | None = None

    def now(self) -> Terms:
        """Return the terms of a call that is made now; the same as before if nothing has changed."""
        folder = os.getcwd()
        seen = (folder, list(sys.path), os.environ.copy())
        last = self._last
        if last is None or last[0] != seen:
            with keywords.spoken():
                defaults = drafts.common(self._args, [])
            # The folder may have changed by the time that the worker looks.
            path = [os.path.join(folder, entry) if entry else folder for entry in sys.path]
            context = pickling.dump((path, tuple(sys.version_info[:2])), "sys.path")
            last = self._last = (seen, Terms(defaults, _program(), context, self._limit))
        return last[1]


def _program() -> tuple[str, ...]:
    """Return the words that start this Python once more, with its own options."""
    if not sys.executable:
        raise UserError("this Python does not say where its interpreter is (sys.executable is empty).")
    # What multiprocessing starts its own children with.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return (sys.executable, *flags, "-P")


def _read(options: Mapping[str, object]) -> Args:
    for word in options.keys() & HABITS:
        raise UserError(f"there is no option {word}.", HABITS[word])
    return keywords.read(options, job_options.OPTIONS)


def _name_of(fn: Callable[..., object], chunk: tuple[tuple[Any, ...], ...]) -> str:
    return f"{call_label.of(fn, chunk[0], {})} +{len(chunk) - 1}" if len(chunk) > 1 else call_label.of(fn, chunk[0], {})


def _in_order(many: list[Future[T]], until: float | None) -> Generator[T, None, None]:
    """Yield results in order; whoever stops asking cancels what does not run yet."""
    many.reverse()
    try:
        while many:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            value = many[-1].result(left_s)
            many.pop()
            yield value
    finally:
        cancel_all(many)


def _one_by_one(chunks: Generator[list[T], None, None]) -> Iterator[T]:
    """Yield the results of calls that shared jobs; those before an exception in the same job come before it."""
    try:
        for values in chunks:
            yield from values
    except BaseException as error:
        yield from error.__dict__.pop(VALUES, ())
        raise
    finally:
        chunks.close()
