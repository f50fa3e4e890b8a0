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
class Search:
    """How the points of a sweep are chosen while it runs."""

    #: One of `search.trials.SAMPLERS`.
    sampler: str
    #: The number of runs in total.
    trials: int
    seed: int
    #: As `search.codec.encode` makes it, in JSON.
    space: str
    #: Why it takes no more trials; empty: it does.
    ended: str = ""


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
    #: The rule that stops runs early (`search.early_stop.RULES`); None: none does.
    early_stop: str | None = None
    #: The complete definition as JSON.
    definition: str = "{}"
    #: How its points are chosen while it runs; None: they are known in advance.
    search: Search | None = None


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
    early_stop: str | None
    batch: int
    created_at: int
    #: The points that a random search drew when it was submitted; None: it is no such search.
    drawn: int | None = None
    search: Search | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The current state of one run of a sweep. Without a job, the job was deleted and only its result is left."""

    job: JobId | None
    attempt: int
    index: int
    params: dict[str, Any]
    word: str
    #: Why it did not succeed, as in a job.
    cause: str | None
    #: None: nothing was read yet.
    numbers: Numbers | None
    #: Minimum, maximum, mean and count of all values of a name. Missing while the run is active.
    summaries: dict[str, tuple[float, float, float, int]]
    started_at: int | None
    finished_at: int | None
    #: Where it ran; None: its job was deleted.
    engine: str | None = None
