"""`dibs.jobs`, and the list of jobs that it returns, with verbs that take one request for all of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from typing import Self, SupportsIndex, overload

from dibs.client import job_waits, queries
from dibs.client.answers import Job as JobAnswer
from dibs.errors import NotFound, TimedOut
from dibs.model import selectors
from dibs.python_api import display
from dibs.python_api import jobs as handles
from dibs.python_api.jobs import Job, JobVerbs

#: What follows the last job.
OVER = object()


class JobList(list[Job], JobVerbs["JobList"]):
    """A list of jobs. Its verbs act on all of them with one request, and return those that were changed.

    Jobs whose state does not allow the verb are not changed.

    >>> waiting = dibs.submit_many(["true", "true"], gpus=0, hold=True)
    >>> len(waiting[:1].unhold().wait())
    1
    >>> len(waiting.cancel())
    1
    """

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> Job: ...
    @overload
    def __getitem__(self, place: slice, /) -> Self: ...
    def __getitem__(self, place: SupportsIndex | slice, /) -> Job | Self:
        """Return one job, or a list of some."""
        return type(self)(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)

    @property
    def ids(self) -> list[int]:
        """Return their ids."""
        return [job.id for job in self]

    def wait(self, timeout: float | None = None, *, held: handles.Held = "leave") -> Self:
        """Wait until all of them finish; raise `errors.TimedOut` after `timeout` seconds.

        As soon as only held jobs remain raise `errors.OnlyHeld`; with `held="wait"` wait until they continue.
        """
        handles.wait(self, timeout, held=held)
        return self

    def as_finished(self, timeout: float | None = None) -> FinishedJobs:
        """Return the jobs one by one as they finish, with `for` or, in a coroutine, with `async for`.

        Raise `errors.TimedOut` if some have not finished after `timeout` seconds.

        >>> [job.state for job in dibs.submit_many(["true", "true"], gpus=0).as_finished()]
        ['done', 'done']
        """
        return FinishedJobs(self, timeout)

    def __await__(self) -> Generator[object, None, Self]:
        """Wait for all of them without blocking the event loop: `await jobs`."""
        return self._wait_in_parts().__await__()

    async def _wait_in_parts(self) -> Self:
        async for _ in self.as_finished():
            pass
        return self

    def _listed(self) -> dict[int, JobAnswer]:
        """Return the present state of the first jobs, by id; see `display`."""
        if not self:
            return {}
        word = selectors.ranges(self.ids[: display.MOST_ROWS])
        answer = display.ask("/v1/jobs", [("select", word)])
        return {each["id"]: each for each in answer["jobs"]} if answer else {}

    def __repr__(self) -> str:
        found, first = self._listed(), self[: display.MOST_ROWS].ids
        items = [display.job_line(found[job_id]) if job_id in found else f"<Job {job_id}>" for job_id in first]
        return display.lines(items, len(self) - len(items))

    def _repr_html_(self) -> str:
        found, first = self._listed(), self[: display.MOST_ROWS].ids
        unknown = [""] * (len(display.JOB_TITLES) - 1)
        rows = [display.job_row(found[job_id]) if job_id in found else [job_id, *unknown] for job_id in first]
        caption = f"{len(self)} jobs, the first {len(rows)} are shown" if len(self) > len(rows) else ""
        return display.html_table(display.JOB_TITLES, rows, caption)

    def _act(self, verb: str, **fields: object) -> JobList:
        if not self:
            return JobList()
        acted = queries.act(handles.client(), verb, [selectors.ranges(self.ids)], **fields)
        for job in self:
            job.forget()
        changed = {each["id"] for each in acted["changed"]}
        return JobList(job for job in self if job.id in changed)


class FinishedJobs:
    """Jobs in the order in which they finish."""

    def __init__(self, jobs: Sequence[Job], timeout: float | None = None) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._timeout = timeout

    def __iter__(self) -> Iterator[Job]:
        for job_id in self._ended(job_waits.POLL_FOR_S):
            if job_id is not None:
                yield self._found(job_id)

    async def __aiter__(self) -> AsyncIterator[Job]:
        import asyncio

        # A thread cannot be cancelled, so it never waits for long.
        ended = self._ended(handles.PART_S)
        while (found := await asyncio.to_thread(next, ended, OVER)) is not OVER:
            if isinstance(found, int):
                yield self._found(found)

    def _ended(self, poll_for_s: float) -> Iterator[int | None]:
        until = None if self._timeout is None else time.monotonic() + self._timeout
        left = len(self._jobs)
        for job_id in job_waits.finished(handles.client(), list(self._jobs), until, poll_for_s):
            left -= job_id is not None
            yield job_id
        if left:
            raise TimedOut(f"{left} of {len(self._jobs)} jobs are not finished after {self._timeout:g} s.")

    def _found(self, job_id: int) -> Job:
        job = self._jobs[job_id]
        job.forget()
        return job


def jobs(*selectors: str | int) -> JobList:
    """Return the selected jobs; without selectors the unfinished and the latest finished ones.

    >>> dibs.jobs("failed", "name:vit*").retry()
    [...]
    >>> dibs.jobs("tag:nobody")
    []
    """
    words = [str(word) for word in selectors]
    try:
        found = queries.overview(handles.client(), words)["jobs"]
    except NotFound:
        if all(queries.is_id(word) for word in words):
            raise
        # A selector of states or names may match nothing.
        return JobList()
    return JobList(Job(each["id"]) for each in found)
