"""Choose finished jobs to delete, and delete their rows from the store. Their files are removed afterwards.

A job that an unfinished job depends on stays, because its outcome is still needed.
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
#: Jobs in one turn, which must stay short.
MOST_IN_A_STEP = 200


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that can be deleted, and those that must stay because others depend on them."""

    ids: list[JobId]
    needed: list[JobId]


def choose(reader: Reader, chosen: selectors.Selection, now: int) -> Choice:
    """Return the jobs of a selection to delete; raise if one of them is unfinished."""
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
    """Return finished jobs beyond the age or the number to keep, at most one step of them."""
    counts = reader.counts()
    excess = sum(counts[word] for word in FINISHED_WORDS) - keep_jobs
    found = reader.finished_first(min(excess, MOST_IN_A_STEP)) if excess > 0 else []
    if keep_for_s is not None:
        found += reader.finished_before(now - round(keep_for_s * 1000), MOST_IN_A_STEP)
    return list(dict.fromkeys(found))[:MOST_IN_A_STEP]


def forget(turn: Turn, ids: Sequence[JobId], with_checkpoints: bool) -> list[JobId]:
    """Delete finished jobs from the store; return their ids, so that the caller can remove their files."""
    gone = turn.store.forget(ids, with_checkpoints)
    turn.changed += gone
    return gone
