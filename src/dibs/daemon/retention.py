"""Forgetting finished jobs: which may go, and taking their rows out of the store. Their files go afterwards.

A job that an unfinished one still waits for stays, for nobody could know any more how it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dibs.errors import Conflict
from dibs.jobqueue import turns
from dibs.jobqueue.turns import Turn
from dibs.model import selectors
from dibs.model.jobs import JobId, Outcome
from dibs.store.writer import Reader

FINISHED_WORDS = frozenset(outcome.value for outcome in Outcome)
#: Jobs in one turn: forgetting takes its time in small steps.
MOST_IN_A_STEP = 200


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that may be forgotten, and those that must stay because others wait for them."""

    ids: list[JobId]
    needed: list[JobId]


def choose(reader: Reader, chosen: selectors.Selection, now: int) -> Choice:
    """Return what a selection means to forget; an unfinished job in it is an error."""
    found = turns.require(reader.words(chosen, now), chosen, reader.last_id())
    for job_id, word in found:
        if word not in FINISHED_WORDS:
            raise Conflict(
                f"job {job_id} is {word}: only finished jobs can be forgotten. Nothing was changed.",
                "Name those that are finished: SELECTOR+finished",
            )
    needed = reader.needed()
    return Choice([i for i, _ in found if i not in needed], [i for i, _ in found if i in needed])


def overdue(reader: Reader, now: int, keep_for_s: float | None, keep_jobs: int) -> list[JobId]:
    """Return a step's worth of finished jobs that are older, or more, than the settings want to keep."""
    counts = reader.counts()
    excess = sum(counts[word] for word in FINISHED_WORDS) - keep_jobs
    found = reader.finished_first(min(excess, MOST_IN_A_STEP)) if excess > 0 else []
    if keep_for_s is not None:
        found += reader.finished_before(now - round(keep_for_s * 1000), MOST_IN_A_STEP)
    return list(dict.fromkeys(found))[:MOST_IN_A_STEP]


def forget(turn: Turn, ids: Sequence[JobId], with_checkpoints: bool) -> list[JobId]:
    """Take finished jobs out of the store; return their ids, so that the caller removes their files."""
    gone = turn.store.forget(ids, with_checkpoints)
    turn.changed += gone
    return gone
