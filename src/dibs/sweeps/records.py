"""Sweeps and their runs as plain values: what a sweep is, how a run stands, and which runs are the best.

Pure. What the parameters of a point may be is in `grid`; what is queued when a sweep is submitted again, in `sweeps`.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dibs.model.jobs import JobId

#: None: the number is not a finite one.
Numbers = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class SweepSubmission:
    """A sweep as a door hands it in."""

    project: str
    name: str
    #: As typed, with places for parameters; with `argv` the words it was made of.
    command: str
    argv: tuple[str, ...] | None = None
    folder: str | None = None
    #: The number by which runs are compared, and which end is better: "minimize" or "maximize".
    metric: str | None = None
    goal: str | None = None
    #: All that was said about it, as JSON.
    definition: str = "{}"


@dataclass(frozen=True, slots=True)
class Sweep:
    """A set of jobs from one parameter space. It is (project, name); its runs are one batch."""

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
    """One run of a sweep as it stands. Without a job it was forgotten, and only its result is left."""

    job: JobId | None
    attempt: int
    index: int
    params: dict[str, Any]
    word: str
    #: None: nothing was read yet.
    numbers: Numbers | None
    #: What all values of a name come to: least, greatest, mean, and how many. Missing while the run is under way.
    summaries: dict[str, tuple[float, float, float, int]]
    started_at: int | None
    finished_at: int | None
