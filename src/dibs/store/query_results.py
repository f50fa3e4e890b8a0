"""What the reader finds besides jobs, sweeps and runs: one kind of value for each kind of question."""

from __future__ import annotations

from dataclasses import dataclass

from dibs.model import selectors
from dibs.model.devices import DeviceId
from dibs.model.jobs import Cause, JobId, Outcome


@dataclass(frozen=True, slots=True)
class EventRow:
    """One row of the event table."""

    at: int
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Numbered:
    """One row of the event table, and how its job stands now; None: it was forgotten."""

    number: int
    job: JobId
    at: int
    kind: str
    detail: str
    word: str | None
    attempt: int | None


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One finished attempt of a job."""

    attempt: int
    outcome: Outcome
    cause: Cause | None
    exit_code: int | None
    signal: int | None
    allocation: tuple[DeviceId, ...]
    started_at: int | None
    finished_at: int


@dataclass(frozen=True, slots=True)
class Stay:
    """A finished attempt on its devices."""

    job: JobId
    name: str
    attempt: int
    word: str
    devices: tuple[DeviceId, ...]
    started_at: int
    finished_at: int


@dataclass(frozen=True, slots=True)
class Used:
    """For how long the jobs of a project, or of a sweep in it, had devices on one of some days."""

    #: Which of the days, from 0 up.
    day: int
    project: str
    sweep: str | None
    held_ms: int
    #: Minutes in which devices were watched meanwhile, and in how many of them they were idle.
    watched: int
    idle: int


@dataclass(frozen=True, slots=True)
class Waited:
    """How long a job waited for its first start."""

    job: JobId
    name: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Waits:
    """How long some jobs waited: how many they were, the one in the middle, and those that waited longest."""

    count: int
    median_ms: int | None
    longest: list[Waited]


@dataclass(frozen=True, slots=True)
class BatchTally:
    """How a batch stands; `bad` counts bad ends, of which one job may have had several."""

    size: int
    finished: int
    done: int
    bad: int
    #: More of its jobs are to come.
    is_open: bool = False

    @property
    def is_over(self) -> bool:
        """Tell whether all of its jobs have ended."""
        return self.finished >= self.size and not self.is_open


@dataclass(frozen=True, slots=True)
class RunsSince:
    """Where a part of the runs of a sweep begins: after a job, or after so many of those whose job was forgotten."""

    after: int = 0
    is_forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Glance:
    """How a job stands, in short: the word that outputs show."""

    id: JobId
    word: str
    attempt: int

    @property
    def is_finished(self) -> bool:
        """Tell whether nothing more will happen to it by itself."""
        return self.word in selectors.GROUP_WORDS["finished"]
