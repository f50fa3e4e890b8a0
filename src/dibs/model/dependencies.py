"""Decide whether the dependencies of a job are met, still open, or can never be met.

Pure: outcomes in, verdict out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dibs.model.jobs import JobId, Outcome, When

Outcomes = Sequence[tuple[JobId, When, Outcome | None]]


@dataclass(frozen=True, slots=True)
class Met:
    """All dependencies are met."""


@dataclass(frozen=True, slots=True)
class Open:
    """The job still waits for these jobs."""

    ids: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Hopeless:
    """The job can never start, because of this job."""

    because: JobId


def see(job_id: JobId) -> str:
    """Return a hint that tells how to learn more about a dependency."""
    return f"`dibs why {job_id}` explains its state."


def judge(outcomes: Outcomes) -> Met | Open | Hopeless:
    """Return the state of the dependencies. A dependency that failed can no longer be met."""
    spoiled = [job for job, when, outcome in outcomes if when is When.DONE and outcome not in (None, Outcome.DONE)]
    either = [(job, outcome) for job, when, outcome in outcomes if when is When.ANY]
    if either and all(outcome not in (None, Outcome.DONE) for _, outcome in either):
        spoiled += [job for job, _ in either]
    if spoiled:
        return Hopeless(spoiled[0])
    waits = [job for job, when, outcome in outcomes if when is not When.ANY and outcome is None]
    if either and not any(outcome is Outcome.DONE for _, outcome in either):
        waits += [job for job, outcome in either if outcome is None]
    return Open(tuple(waits)) if waits else Met()
