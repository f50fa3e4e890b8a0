"""Sweeps and their runs as plain values.

`grid` defines points; `jobqueue.sweeps` decides what is queued when a sweep is submitted again.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dibs.model.jobs import JobId

#: None: not a finite number.
Numbers = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class SweepSubmission:
    """A sweep as submitted."""

    project: str
    name: str
    #: As typed, with placeholders for parameters; `argv` has the words it was made of, if any.
    command: str
    argv: tuple[str, ...] | None = None
    folder: str | None = None
    #: The metric by which runs are compared, and the better direction: "minimize" or "maximize".
    metric: str | None = None
    goal: str | None = None
    #: The complete definition as JSON.
    definition: str = "{}"


@dataclass(frozen=True, slots=True)
class Sweep:
    """A set of jobs from one parameter space, identified by (project, name); its runs are one batch."""

    id: int
    project: str
    name: str
    command: str
    argv: tuple[str, ...] | None
    folder: str | None
    metric: str | None
    goal: str | None
    batch: int
    created_at: int


@dataclass(frozen=True, slots=True)
class Run:
    """The current state of one run of a sweep. Without a job, the job was deleted and only its result is left."""

    job: JobId | None
    attempt: int
    index: int
    params: dict[str, Any]
    word: str
    #: None: nothing was read yet.
    numbers: Numbers | None
    #: Minimum, maximum, mean and count of all values of a name. Missing while the run is active.
    summaries: dict[str, tuple[float, float, float, int]]
    started_at: int | None
    finished_at: int | None
