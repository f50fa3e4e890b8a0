"""The futures of calls that run as jobs: what becomes of one when its job has ended, and how it is cancelled.

A result that was written whole is the answer, however the process ended after it. Without one, the state of the job
says why: `CancelledError`, or `BrokenJob`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import BrokenExecutor, CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.errors import DibsError, MachineError
from dibs.python_api import pickling
from dibs.store import call_files

if TYPE_CHECKING:
    from dibs.client.answers import Job as Told
    from dibs.python_api.courier import Courier
    from dibs.python_api.jobs import Job

T = TypeVar("T")

#: What the calls returned that came before an exception in the same job; an attribute of the exception.
VALUES = "__dibs_values__"


class BrokenJob(MachineError, BrokenExecutor):
    """A call whose job ended without a result: it was lost, killed, out of time, or could not be started."""

    kind = "broken_job"


class CallFailed(DibsError):
    """A call whose value or exception cannot be read here."""

    kind = "call"


class RemoteTraceback(Exception):
    """Where in the job an exception was raised; the cause of that exception here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0].rstrip()}\n"""'


class Future(futures.Future[T]):
    """The future of a call, which has a job in the queue."""

    def __init__(self, courier: Courier) -> None:
        super().__init__()
        self._courier = courier
        self._pid = os.getpid()
        #: Whoever has it decides the end: the courier that hears of it, or somebody who cancels.
        self._settling = threading.RLock()
        self._job_id: int | None = None

    @property
    def job(self) -> Job:
        """Return the job, as soon as it is in the queue; raise what kept it from getting there."""
        from dibs.python_api import jobs

        if self._job_id is None:
            self._check_process()
            self._courier.send()
        if self._job_id is None:
            # It is over, and was never queued.
            self.result()
        assert self._job_id is not None
        return jobs.Job(self._job_id)

    def cancel(self) -> bool:
        """Cancel the call if it does not run yet; a running one is stopped with `future.job.cancel()`."""
        if self.done() or self.running():
            return self.cancelled()
        self._check_process()
        if not self._courier.withdraw(self):
            return self.cancelled()
        self.drop()
        return True

    def cancelled(self) -> bool:
        """Tell whether it was cancelled, also while it ran."""
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
                "this future was made before a fork, and only the parent hears of its end. "
                "Find it again here with dibs.Executor.attach([future.job.id])."
            )

    # -- for the courier

    def queued(self, job_id: int) -> None:
        """Take note of the job that was made for it."""
        self._job_id = job_id

    def begin(self) -> None:
        """Take note that the job runs."""
        with self._settling:
            if not self.done() and not self.running():
                self.set_running_or_notify_cancel()

    def drop(self) -> None:
        """End as cancelled."""
        with self._settling:
            if self.done():
                return
            if super().cancel():
                self.set_running_or_notify_cancel()
            else:
                self.set_exception(CancelledError(f"job {self._job_id} was cancelled while it ran"))

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        with self._settling:
            if not self.done():
                self.begin()
                self.set_exception(error)

    def settle(self, state: str, path: str, tell: Callable[[], Told | None]) -> None:
        """End as the result in a file says, or without one as the job did, of which `tell` knows more."""
        try:
            value, error = read(path, self._job_id or 0)
        except FileNotFoundError:
            value, error = None, CancelledError() if state == "cancelled" else broken(self._job_id or 0, state, tell())
        if isinstance(error, CancelledError):
            self.drop()
        elif error is not None:
            self.fail(error)
        else:
            self._succeed(value)

    def _succeed(self, value: T) -> None:
        with self._settling:
            if not self.done():
                self.begin()
                self.set_result(value)


def cancel_all(many: Sequence[Future[Any]]) -> None:
    """Cancel those of some calls of one executor that do not run yet, by one request."""
    if left := [future for future in many if not future.done()]:
        for future in left[0]._courier.withdraw_all(left):
            future.drop()


def read(path: str, job_id: int) -> tuple[Any, BaseException | None]:
    """Return what the file of a result holds, a value or an exception; raise FileNotFoundError if there is none."""
    try:
        kind, body, told = call_files.read_result(path)
    except FileNotFoundError:
        raise
    except (call_files.Untrusted, ValueError, OSError) as error:
        return None, BrokenJob(f"job {job_id}: {error}")
    try:
        found = pickling.loads(body) if body else None
    except Exception as error:  # noqa: BLE001 (whatever a stranger's __setstate__ raises)
        return None, _unreadable(job_id, path, told, error)
    if kind == call_files.VALUE:
        return found, None
    return None, _raised(job_id, told, *(found or ([], None)))


def _raised(job_id: int, told: str, values: list[object], error: BaseException | None) -> BaseException:
    """Return what a call raised, with the place where it did as its cause."""
    if error is None:
        last = told.rstrip().rpartition("\n")[2]
        error = CallFailed(f"job {job_id} raised what cannot be sent from process to process: {last}")
    error.__cause__ = RemoteTraceback(told)
    if values:
        error.__dict__[VALUES] = values
    return error


def _unreadable(job_id: int, path: str, told: str, why: Exception) -> CallFailed:
    found = CallFailed(
        f"job {job_id} left a result that cannot be read here ({type(why).__name__}: {why}).", f"It is in {path}."
    )
    found.__cause__ = RemoteTraceback(told) if told else why
    return found


def broken(job_id: int, state: str, tell: Told | None) -> BrokenJob:
    """Return the error of a job that ended in this state and left no result."""
    if tell is None:
        return BrokenJob(f"job {job_id} is {state}, and left no result.")
    code, signal = tell["exit_code"], tell["signal"]
    how = f"signal {signal}" if signal is not None else f"exit code {code}" if code is not None else None
    why = ", ".join(filter(None, (how, tell["remark"])))
    return BrokenJob(
        f"job {job_id}, {tell['name']}, is {state} and left no result{why and f' ({why})'}. Its log is {tell['log']}."
    )
