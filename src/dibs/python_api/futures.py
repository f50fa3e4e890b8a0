"""Futures of calls that run as jobs: how the end of the job becomes a value or an exception, and how to cancel.

A complete result file counts, however the process ended after writing it. Without one, the state of the job decides:
`CancelledError` or `BrokenJob`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent import futures
from concurrent.futures import BrokenExecutor, CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.errors import DibsError, MachineError
from dibs.python_api import pickling
from dibs.store import call_files

if TYPE_CHECKING:
    from dibs.client.answers import Job as JobAnswer
    from dibs.python_api.calls.submission_queue import SubmissionQueue
    from dibs.python_api.jobs import Job

T = TypeVar("T")

#: Attribute of an exception: the values of the calls before it in the same job.
VALUES = "__dibs_values__"


class BrokenJob(MachineError, BrokenExecutor):
    """The job of a call ended without a result: it was lost or killed, timed out, or could not start."""

    kind = "broken_job"


class CallFailed(DibsError):
    """The value or exception of a call cannot be read in this process."""

    kind = "call"


class RemoteTraceback(Exception):
    """The traceback from inside the job; set as the cause of its exception."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0].rstrip()}\n"""'


class Future(futures.Future[T]):
    """The future of a call that runs as a job."""

    def __init__(self, queue: SubmissionQueue) -> None:
        super().__init__()
        self._queue = queue
        self._pid = os.getpid()
        #: The submission queue and a cancelling thread may both end the future; the first one wins.
        self._end_lock = threading.RLock()
        self._job_id: int | None = None
        #: The first attempt of the job that runs this call; a run of a sweep may have had others.
        self.first_attempt = 0

    @property
    def job(self) -> Job:
        """Return the job, submitting the call if needed; raise the error if it was refused."""
        from dibs.python_api import jobs

        if self._job_id is None:
            self._check_process()
            self._queue.send()
        if self._job_id is None:
            # Refused or cancelled before it was submitted: this raises.
            self.result()
        assert self._job_id is not None
        return jobs.Job(self._job_id)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait without blocking the event loop: `value = await future`."""
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def cancel(self) -> bool:
        """Cancel the call if it has not started; stop a running one with `future.job.cancel()`."""
        if self.done() or self.running():
            return self.cancelled()
        self._check_process()
        if not self._queue.withdraw([self]):
            return self.cancelled()
        self.drop()
        return True

    def cancelled(self) -> bool:
        """Return whether the call was cancelled, before or after it started."""
        return super().cancelled() or (self.done() and isinstance(super().exception(), CancelledError))

    def result(self, timeout: float | None = None) -> T:
        """Return what the call returned, or raise what it raised."""
        self._check_process()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the call raised; None if it returned."""
        self._check_process()
        error = super().exception(timeout)
        if isinstance(error, CancelledError):
            raise error
        return error

    def _check_process(self) -> None:
        if self._pid != os.getpid() and not self.done():
            raise RuntimeError(
                "this future was made before a fork; only the parent process can wait for it. "
                "Use dibs.Executor.attach([future.job.id]) here."
            )

    # -- called by the submission queue

    def set_job(self, job_id: int, first_attempt: int) -> None:
        """Store the id of its job, and its first attempt of this call."""
        self._job_id = job_id
        self.first_attempt = first_attempt

    def begin(self) -> None:
        """Mark the call as running."""
        with self._end_lock:
            if not self.done() and not self.running():
                self.set_running_or_notify_cancel()

    def drop(self) -> None:
        """Mark the call as cancelled."""
        with self._end_lock:
            if self.done():
                return
            if super().cancel():
                self.set_running_or_notify_cancel()
            else:
                self.set_exception(CancelledError(f"job {self._job_id} was cancelled while it ran"))

    def fail(self, error: BaseException) -> None:
        """Set the exception."""
        with self._end_lock:
            if not self.done():
                self.begin()
                self.set_exception(error)

    def settle(self, state: str, path: str, details: Callable[[], JobAnswer | None]) -> None:
        """Set the result from the file, or an error from the job's state; `details` fetches the job."""
        try:
            value, error = read(path, self._job_id or 0)
        except FileNotFoundError:
            is_cancelled = state == "cancelled"
            value, error = None, CancelledError() if is_cancelled else broken(self._job_id or 0, state, details())
        if isinstance(error, CancelledError):
            self.drop()
        elif error is not None:
            self.fail(error)
        else:
            self._succeed(value)

    def _succeed(self, value: T) -> None:
        with self._end_lock:
            if not self.done():
                self.begin()
                self.set_result(value)


def cancel_all(calls: Sequence[Future[Any]]) -> None:
    """Cancel the calls of one executor that have not started, with one request."""
    if left := [future for future in calls if not future.done()]:
        for future in left[0]._queue.withdraw(left):
            future.drop()


def read(path: str, job_id: int) -> tuple[Any, BaseException | None]:
    """Return the value or the exception in a result file; raise FileNotFoundError if there is no file."""
    try:
        kind, body, traceback = call_files.read_result(path)
    except FileNotFoundError:
        raise
    except (call_files.Untrusted, ValueError, OSError) as error:
        return None, BrokenJob(f"job {job_id}: {error}")
    try:
        found = pickling.loads(body) if body else None
    except Exception as error:  # noqa: BLE001 (user code in __setstate__)
        return None, _unreadable(job_id, path, traceback, error)
    if kind == call_files.VALUE:
        return found, None
    return None, _raised(job_id, traceback, *(found or ([], None)))


def _raised(job_id: int, traceback: str, values: list[object], error: BaseException | None) -> BaseException:
    """Return the exception of a call, with the remote traceback as its cause."""
    if error is None:
        last = traceback.rstrip().rpartition("\n")[2]
        error = CallFailed(f"job {job_id} raised an exception that cannot be pickled: {last}")
    error.__cause__ = RemoteTraceback(traceback)
    if values:
        error.__dict__[VALUES] = values
    return error


def _unreadable(job_id: int, path: str, traceback: str, why: Exception) -> CallFailed:
    found = CallFailed(
        f"job {job_id} left a result that cannot be read here ({type(why).__name__}: {why}).", f"It is in {path}."
    )
    found.__cause__ = RemoteTraceback(traceback) if traceback else why
    return found


def broken(job_id: int, state: str, job: JobAnswer | None) -> BrokenJob:
    """Return the error for a job that ended in this state without a result."""
    if job is None:
        return BrokenJob(f"job {job_id} is {state}, and left no result.")
    code, signal = job["exit_code"], job["signal"]
    how = f"signal {signal}" if signal is not None else f"exit code {code}" if code is not None else None
    why = ", ".join(filter(None, (how, job["remark"])))
    return BrokenJob(
        f"job {job_id}, {job['name']}, is {state} and left no result{why and f' ({why})'}. Its log is {job['log']}."
    )
