"""Answers about sweeps and their runs; see `job_answers`."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from dibs.http_api.schemas.job_answers import Counts, Moment, Numbers


class Search(Struct):
    """How the points of a sweep are chosen; `ended` says why it takes no more trials, null: it does.

    Those of a random search are drawn when it is submitted, and have no seed here.
    """

    sampler: str
    trials: int
    seed: int | None
    ended: str | None


class Sweep(Struct):
    """A sweep."""

    id: int
    project: str
    name: str
    command: str
    argv: list[str] | None
    dir: str | None
    metric: str | None
    goal: str | None
    early_stop: str | None
    search: Search | None
    batch: int
    created_at: Moment


class SweepCounts(Sweep):
    """A sweep; in a list of all sweeps with the number of its runs in each state."""

    states: Counts | UnsetType = UNSET


class Sweeps(Struct):
    """A list of sweeps."""

    sweeps: list[SweepCounts]


class SweepReceipt(Sweep):
    """A sweep that was created or found; of a document also the number of points that are new, done, and so on."""

    notes: list[str]
    counts: Counts | UnsetType = UNSET


class SweepCheck(Struct):
    """Whether a sweep would be new, and the largest number of points that a document can have."""

    is_new: bool
    notes: list[str]
    points: int | UnsetType = UNSET


class Points(Struct):
    """The number of points that are new, retried, done, and so on."""

    counts: Counts
    notes: list[str]


class CallJob(Struct):
    """The job of a call: its id, its state, and its newest attempt."""

    id: int
    state: str
    attempt: int


class Calls(Points):
    """The number of calls that are new, retried, done, and so on, and the job of each."""

    jobs: list[CallJob]


class Summary(Struct):
    """A summary of all values of a metric."""

    min: float
    max: float
    mean: float
    count: int


class Run(Struct, gc=False):
    """A run of a sweep; `job` is null if the job was deleted."""

    job: int | None
    attempt: int
    index: int
    params: dict[str, Any]
    state: str
    cause: str | None
    numbers: Numbers
    summaries: dict[str, Summary]
    started_at: Moment | None
    finished_at: Moment | None
    #: Where it ran; null: its job was deleted.
    engine: str | None


class Curve(Struct, gc=False):
    """A metric of one run: places and values, thinned."""

    index: int
    job: int | None
    x: list[float]
    y: list[float]


class Curves(Struct):
    """A metric of all runs; `x` counts steps, or seconds since the start. `more`: the newest are missing."""

    metric: str
    x: str
    curves: list[Curve]
    more: bool


class Results(Struct):
    """The runs of a sweep, and the value of `after` for more; null at the end."""

    sweep: Sweep
    runs: list[Run]
    next: str | None
