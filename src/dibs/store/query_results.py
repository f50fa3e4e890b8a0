"""Results of the reader's queries, besides jobs, sweeps and runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dibs.model import selectors
from dibs.model.devices import DeviceId
from dibs.model.jobs import LOCAL, Cause, JobId


class EventRow(NamedTuple):
    """One row of the event table."""

    at: int
    kind: str
    detail: str


class NumberedEvent(NamedTuple):
    """One row of the event table, with the current state of its job; None: the job was deleted."""

    number: int
    job: JobId
    at: int
    kind: str
    detail: str
    word: str | None
    attempt: int | None


class Halt(NamedTuple):
    """The rule of a batch that holds its queued jobs, and how many of it ended badly."""

    bad: int
    #: The first jobs to end all ended badly; else as many as `--halt` allows.
    is_first: bool = False

    @property
    def why(self) -> str:
        """Return why the jobs are held, to follow "held: "."""
        return f"the first {self.bad} runs failed" if self.is_first else f"{self.bad} of its batch failed (--halt)"


class PastAttempt(NamedTuple):
    """One finished attempt of a job."""

    attempt: int
    #: Its outcome, or "evicted".
    outcome: str
    cause: Cause | None
    exit_code: int | None
    signal: int | None
    allocation: tuple[DeviceId, ...]
    started_at: int | None
    finished_at: int
    engine: str = LOCAL
    node: str | None = None


class Stay(NamedTuple):
    """A finished attempt and its devices."""

    job: JobId
    name: str
    attempt: int
    word: str
    devices: tuple[DeviceId, ...]
    started_at: int
    finished_at: int


class GroupRow(NamedTuple):
    """A named group of jobs: its rule, and how many of its jobs are active and wait."""

    name: str
    #: How many may be active at once; None: any number.
    at_once: int | None
    is_paused: bool
    active: int
    waiting: int


class UsageRow(NamedTuple):
    """How long the jobs of a project and a group, or of a sweep in them, had devices on one day."""

    #: The index of the day, from 0.
    day: int
    project: str
    sweep: str | None
    held_ms: int
    #: Minutes in which the devices were watched, and how many of these were idle.
    watched: int
    idle: int
    group: str
    #: Device minutes that were used, by utilization, of those that were watched.
    busy: float
    jobs: int
    #: How long the jobs that began on that day had waited.
    waited_ms: int


class Waited(NamedTuple):
    """How long a job waited for its first start."""

    job: JobId
    name: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Waits:
    """How long some jobs waited: their number, the median, and the longest waits."""

    count: int
    median_ms: int | None
    longest: list[Waited]


class BatchTally(NamedTuple):
    """The progress of a batch; `bad` counts bad ends, of which one job may have several."""

    size: int
    finished: int
    done: int
    bad: int
    #: More jobs may be added.
    is_open: bool = False

    @property
    def is_over(self) -> bool:
        """Tell whether all jobs have ended."""
        return self.finished >= self.size and not self.is_open


class RunsSince(NamedTuple):
    """Where a page of a sweep's runs begins: after a job id, or after a number of runs whose job was deleted."""

    after: int = 0
    is_forgotten: bool = False


class Glance(NamedTuple):
    """A job in short: its displayed state."""

    id: JobId
    word: str
    attempt: int
    engine: str

    @property
    def is_finished(self) -> bool:
        """Tell whether it will not change by itself any more."""
        return self.word in selectors.GROUP_WORDS["finished"]
