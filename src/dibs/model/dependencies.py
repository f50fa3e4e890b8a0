"""What a job waits for among other jobs: whether it is there, still to come, or will never be.

Pure: the outcomes come in, a verdict goes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dibs.model.jobs import JobId, Outcome, When

Outcomes = Sequence[tuple[JobId, When, Outcome | None]]


@dataclass(frozen=True, slots=True)
class Met:
    """All that it waited for is there."""


@dataclass(frozen=True, slots=True)
class Open:
    """It waits for these."""

    ids: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Hopeless:
    """It will never be able to start, because of this one."""

    because: JobId


def see(job_id: JobId) -> str:
    """Say where to learn more about a job that another waits for."""
    return f"`dibs why {job_id}` says how that one stands."


def judge(outcomes: Outcomes) -> Met | Open | Hopeless:
    """Return how it stands. A job that ended badly is no hope for those who need it done."""
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
