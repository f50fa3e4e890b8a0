"""`dibs.Executor`: run Python functions as jobs, with the interface of `concurrent.futures`.

    with dibs.Executor(gpus=1) as pool:
        best = max(pool.map(train, [0.1, 0.01]))

Each call is a job, with devices, log, time limit and retries. It outlives the program that submitted it:
`Executor.attach` returns its future.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from dibs.client import connection, queries
from dibs.client.connection import Client
from dibs.errors import DibsError, UserError
from dibs.model import fields
from dibs.python_api import call_worker, keywords, pickling, signatures
from dibs.python_api.calls import labels, points
from dibs.python_api.calls.points import CallSweep
from dibs.python_api.calls.progress import Progress
from dibs.python_api.calls.requests import CallOptions, ConcurrencyCap, PendingCall
from dibs.python_api.calls.submission_queue import SubmissionQueue
from dibs.python_api.futures import VALUES, Future, cancel_all
from dibs.python_api.keywords import Options
from dibs.store import call_files
from dibs.submission import drafts, job_options, options
from dibs.submission.options import Args
from dibs.system import commands

T = TypeVar("T")
P = ParamSpec("P")

#: Arguments of other executors, with the hint that we give.
FOREIGN_OPTIONS = {
    "max_workers": "Did you mean max_jobs?",
    "initializer": "Each call has a process of its own: do it at the top of the module, or in the function.",
    "initargs": "Each call has a process of its own: do it at the top of the module, or in the function.",
    "mp_context": "Each call has a process of its own.",
}


class Pool:
    """What an executor shares with those that `with_options` made from it."""

    def __init__(self, client: Client, max_jobs: int | None) -> None:
        self.queue = SubmissionQueue(client)
        self.cap = None if max_jobs is None else ConcurrencyCap(max_jobs)
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.is_closed = False
        self.unfinished: set[Future[Any]] = set()

    def add(self, future: Future[Any]) -> None:
        """Keep a future until it is done."""
        with self.lock:
            if self.is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self.unfinished.add(future)
        future.add_done_callback(self._forget)

    def _forget(self, future: futures.Future[Any]) -> None:
        with self.lock:
            self.unfinished.discard(future)

    def check_process(self) -> None:
        """Raise in a forked child: the submitting thread exists only in the parent."""
        if self.pid != os.getpid():
            raise RuntimeError("this dibs.Executor was made before a fork; make another one in this process.")


class Executor(futures.Executor):
    """Runs functions as jobs, with the interface of `concurrent.futures`.

    >>> with dibs.Executor(gpus=1) as pool:
    ...     future = pool.submit(square, 3)
    ...     future.result()
    9
    >>> future.job
    <Job ... square(3) done>
    """

    @signatures.describe(job_options.JOB_OPTIONS)
    def __init__(
        self,
        *,
        max_jobs: int | None = None,
        sweep: str | None = None,
        again: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Accept the options of `dibs.submit` for every call; run at most `max_jobs` calls at a time.

        With `sweep` calls are runs of the sweep with that name: `dibs results` shows their parameters and the numbers
        that they return. Calls whose run is done return its value; with `again` they run again.

        >>> pool = dibs.Executor(gpus=1, time="1h", retries=1, max_jobs=2)
        """
        if max_jobs is not None and (type(max_jobs) is not int or max_jobs < 1):
            raise UserError(f"max_jobs expected a whole number from 1 up, got {max_jobs!r}.")
        self._options: Mapping[str, object] = dict(options)
        args = _read(self._options)
        self._sweep = points.check_name(sweep, again)
        self._pool = Pool(connection.connect(os.environ), max_jobs)
        self._snapshot = _Snapshot(args, self._pool.cap, self._sweep)

    @signatures.describe(job_options.JOB_OPTIONS)
    def with_options(self, *, sweep: str | None = None, again: bool = False, **options: Unpack[Options]) -> Self:
        """Return the same executor with other options for some calls.

        >>> with dibs.Executor(gpus=1) as pool:
        ...     pool.with_options(gpus=0, name="small").submit(square, 2).result()
        4
        """
        other = type(self).__new__(type(self))
        other._options = {**self._options, **options}
        other._sweep = points.check_name(sweep, again) or self._sweep
        other._pool = self._pool
        other._snapshot = _Snapshot(_read(other._options), self._pool.cap, other._sweep)
        return other

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call. The future returns immediately; the job follows with the next submission.

        >>> with dibs.Executor(gpus=0) as pool:
        ...     pool.submit(square, x=5).result(timeout=600)
        25
        """
        return self._submit(fn, args, kwargs, labels.label(fn, args, kwargs))

    def submit_call(
        self,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Future[T]:
        """Submit a call with a name of its own, and with the parameters that identify it in its sweep.

        Calls are still sent in batches. Without `params` the arguments of the function are its parameters.

        >>> with dibs.Executor(gpus=0, sweep="named") as pool:
        ...     pool.submit_call(square, [4], name="four", params={"side": 4}).result()
        16
        """
        if name is not None:
            _check_name(name)
        if params is not None and self._sweep is None:
            raise UserError("params expected an executor with a sweep, got one without.", 'Executor(sweep="NAME").')
        point = None if params is None else points.given(params)
        args, kwargs = tuple(args), dict(kwargs or {})
        return self._submit(fn, args, kwargs, labels.label(fn, args, kwargs), name, point)

    def _submit(
        self,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        label: str,
        name: str | None = None,
        point: points.Point | None = None,
    ) -> Future[T]:
        self._pool.check_process()
        future: Future[T] = Future(self._pool.queue)
        self._pool.add(future)
        try:
            call_options = self._snapshot.now()
            call = pickling.dump((fn, args, kwargs), f"the call {label}")
            if self._sweep is not None and point is None:
                point = points.derived(fn, args, kwargs)
        except (pickling.Unpicklable, DibsError, OSError) as error:
            future.fail(error)
        else:
            shown = name or str(self._options.get("name") or labels.short(label))
            self._pool.queue.add(PendingCall(future, call, shown, label, call_options, point))
        return future

    def map_array(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> list[Future[T]]:
        """Submit one call for each row of arguments, all in one request; return their futures in the same order.

        >>> with dibs.Executor(gpus=0) as pool:
        ...     futures = pool.map_array(square, [1, 2, 3])
        >>> [future.result() for future in futures]
        [1, 4, 9]
        """
        rows = zip(*iterables, strict=False)
        with self._pool.queue.together():
            return [self._submit(fn, args, {}, labels.label(fn, args, {})) for args in rows]

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        progress: bool = False,
    ) -> Iterator[T]:
        """Submit all calls, `chunksize` of them per job; return the results in the order of the arguments.

        An exception is raised at the position of its call. With `progress` a terminal or a notebook shows how many
        calls have ended.

        >>> with dibs.Executor(gpus=0) as pool:
        ...     list(pool.map(square, [1, 2, 3]))
        [1, 4, 9]
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize > 1 and self._sweep is not None:
            raise UserError(f"chunksize expected 1 with a sweep, whose runs are single calls, got {chunksize}.")
        until = None if timeout is None else time.monotonic() + timeout
        every = zip(*iterables, strict=False)
        if chunksize == 1:
            single = [self._submit(fn, args, {}, labels.label(fn, args, {})) for args in every]
            return _in_order(single, until, _watched(fn, single, [1] * len(single)) if progress else None)
        chunks = list(iter(lambda: tuple(itertools.islice(every, chunksize)), ()))
        many = [self._submit(call_worker.run_all, (fn, chunk), {}, _chunk_label(fn, chunk)) for chunk in chunks]
        return _one_by_one(_in_order(many, until, _watched(fn, many, list(map(len, chunks))) if progress else None))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. With `cancel_futures` cancel those that have not started.

        Without `wait` return once all calls are submitted; then the program may exit.
        """
        pool = self._pool
        if pool.pid != os.getpid():
            # It belongs to the parent.
            return
        with pool.lock:
            pool.is_closed = True
            left = list(pool.unfinished)
        if cancel_futures:
            cancel_all(left)
        if wait:
            futures.wait(left)
        else:
            pool.queue.send()

    @classmethod
    def attach(cls, jobs: str | Iterable[int | str]) -> list[Future[Any]]:
        """Return the futures of calls that this or another program submitted.

        `jobs` is a list of ids, or a selector such as "name:train*". A selector skips jobs that are not calls.

        >>> pool = dibs.Executor(gpus=0, tags=["night"])
        >>> pool.submit(square, 6).job.wait()
        'done'
        >>> [future.result() for future in dibs.Executor.attach("tag:night")]
        [36]
        """
        is_selector = isinstance(jobs, str)
        words = [jobs] if isinstance(jobs, str) else [str(getattr(job, "id", job)) for job in jobs]
        if not words:
            return []
        client = connection.connect(os.environ)
        found = {job["id"]: job for job in client.get("/v1/jobs", queries.select(words))["jobs"]}
        ids = list(found) if is_selector else [int(word) for word in words]
        for job_id in ids:
            if job_id not in found:
                raise UserError(f"there is no job {job_id}.")
            if not is_selector and not call_files.is_call(found[job_id]["argv"]):
                raise UserError(f"job {job_id} is not a call of dibs.Executor.", f"It is dibs.job({job_id}).")
        queue = SubmissionQueue(client)
        attached = {job_id: Future[Any](queue) for job_id in ids if call_files.is_call(found[job_id]["argv"])}
        queue.follow(attached.items())
        return list(attached.values())


class _Snapshot:
    """The options of an executor's calls, with the working directory, environment and `sys.path` of the program."""

    def __init__(self, args: Args, cap: ConcurrencyCap | None, sweep: CallSweep | None) -> None:
        self._args = args
        self._cap = cap
        self._sweep = sweep
        self._last: tuple[tuple[object, ...], CallOptions] | None = None

    def now(self) -> CallOptions:
        """Return the options of a call made now; the same object as before if nothing has changed."""
        folder = self._args.caller.folder()
        seen = (folder, list(sys.path), os.environ.copy())
        last = self._last
        if last is None or last[0] != seen:
            with keywords.keyword_errors():
                defaults = drafts.common(self._args, [])
            # The worker may run in another directory.
            path = [os.path.join(folder, entry) if entry else folder for entry in sys.path]
            context = pickling.dump((path, tuple(sys.version_info[:2])), "sys.path")
            last = self._last = (seen, CallOptions(defaults, _program(), context, self._cap, self._sweep))
        return last[1]


def _program() -> tuple[str, ...]:
    """Return the argv that starts this Python with the same interpreter options."""
    if not sys.executable:
        raise UserError("cannot find the Python interpreter: sys.executable is empty.")
    # As `multiprocessing` does.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return (sys.executable, *flags, "-P")


def _read(options: Mapping[str, object]) -> Args:
    for word in options.keys() & FOREIGN_OPTIONS:
        raise UserError(f"there is no option {word}.", FOREIGN_OPTIONS[word])
    return keywords.read(options, job_options.JOB_OPTIONS)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or len(name) > fields.SHORT:
        raise UserError(f"name expected a text of up to {fields.SHORT} characters, got {options.shown(repr(name))}.")
    commands.check_text(name, "the name")


def _chunk_label(fn: Callable[..., object], chunk: tuple[tuple[Any, ...], ...]) -> str:
    label = labels.label(fn, chunk[0], {})
    return f"{label} +{len(chunk) - 1}" if len(chunk) > 1 else label


def _watched(fn: Callable[..., object], many: Sequence[Future[Any]], sizes: Sequence[int]) -> Progress:
    """Show the progress of futures, each of which has some calls."""
    shown = Progress(sum(sizes), getattr(fn, "__name__", "calls"))
    for future, size in zip(many, sizes, strict=True):
        shown.watch(future, size)
    return shown


def _in_order(many: list[Future[T]], until: float | None, progress: Progress | None = None) -> Generator[T, None, None]:
    """Yield results in order; closing the generator cancels the calls that have not started."""
    many.reverse()
    try:
        while many:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            value = many[-1].result(left_s)
            many.pop()
            yield value
    finally:
        cancel_all(many)
        if progress is not None:
            progress.close()


def _one_by_one(chunks: Generator[list[T], None, None]) -> Iterator[T]:
    """Yield the results of chunks; those that precede an exception in its chunk come first."""
    try:
        for values in chunks:
            yield from values
    except BaseException as error:
        yield from error.__dict__.pop(VALUES, ())
        raise
    finally:
        chunks.close()
