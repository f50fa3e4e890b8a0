"""How long jobs like a job took, read from the store for plans and forecasts and kept between them.

A plan is made many times a second, mostly of the same jobs: what they are like is read once, and how long those like
them took is read again only after a job has finished.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dibs.model.jobs import Job, JobId
from dibs.scheduling import durations
from dibs.scheduling.durations import History
from dibs.scheduling.views import Active, WaitingJob

#: Jobs that are remembered beside those of the latest plan.
MOST_REMEMBERED = 2000


@dataclass(frozen=True, slots=True)
class _Fact:
    """What decides how long a job may take."""

    submitted_at: int
    gpus: int
    #: The stored keys of its likenesses, the closest first.
    keys: tuple[bytes, ...]


class Histories:
    """The run times of jobs like a job. Like its connection, it belongs to one thread at a time."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        runtimes: Callable[[bytes], Iterable[float]],
        jobs: Callable[[Iterable[JobId]], list[Job]],
    ) -> None:
        self._connection, self._runtimes, self._jobs = connection, runtimes, jobs
        self._facts: dict[JobId, _Fact] = {}
        self._known: dict[bytes, History] = {}
        self._version = -1

    def in_plan(self, waiting: list[WaitingJob], active: list[Active]) -> tuple[list[WaitingJob], list[Active]]:
        """Return the jobs of a plan with what is known about their run times.

        Where all jobs ask for the same, nobody can pass anybody, and nothing is read.
        """
        if len({job.request for job in waiting}) < 2:
            return waiting, active
        self._refresh()
        self._remember(waiting, active)
        return [self._expected(job) for job in waiting], [self._expected_active(job) for job in active]

    def of(self, jobs: Iterable[Job]) -> dict[JobId, History]:
        """Return the run times of jobs like each of these."""
        self._refresh()
        return {job.id: self._history(_keys(job)) for job in jobs}

    def forget(self) -> None:
        """Read all run times again: a job has finished, or a change was undone."""
        self._known.clear()

    def _refresh(self) -> None:
        """Forget run times if another connection has changed the database."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self.forget()

    def _remember(self, waiting: Sequence[WaitingJob], active: Sequence[Active]) -> None:
        """Read what is new; a job that was edited to use other GPUs is read again."""
        gpus = {job.id: job.request.gpus for job in waiting} | {job.id: len(job.devices) for job in active}
        new = [i for i, count in gpus.items() if (fact := self._facts.get(i)) is None or fact.gpus != count]
        if len(self._facts) > len(gpus) + MOST_REMEMBERED:
            self._facts = {i: self._facts[i] for i in gpus if i in self._facts}
        for job in self._jobs(new) if new else ():
            self._facts[job.id] = _Fact(job.submitted_at, gpus[job.id], _keys(job))

    def _expected(self, job: WaitingJob) -> WaitingJob:
        fact = self._facts.get(job.id)
        return job if fact is None else replace(job, since=fact.submitted_at, history=self._history(fact.keys))

    def _expected_active(self, job: Active) -> Active:
        fact = self._facts.get(job.id)
        return job if fact is None else replace(job, history=self._history(fact.keys))

    def _history(self, keys: Iterable[bytes]) -> History:
        """Return the run times of the closest likeness that is known well enough, else of the closest."""
        found = [self._of_key(key) for key in keys]
        return next((history for history in found if len(history) >= durations.LEAST_ENDS), found[0])

    def _of_key(self, key: bytes) -> History:
        if key not in self._known:
            self._known[key] = tuple(sorted(self._runtimes(key)))
        return self._known[key]


def _keys(job: Job) -> tuple[bytes, ...]:
    return tuple(map(digest, durations.likenesses(job.spec)))


@lru_cache(maxsize=256)
def digest(text: str) -> bytes:
    """Return the short key under which a long text is stored."""
    return hashlib.sha256(text.encode()).digest()[:16]
