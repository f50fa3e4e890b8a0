"""Delete finished jobs and their files, on request or as the settings say.

Works in small steps, each a short turn of the queue; a separate thread removes the files, because a disk may be slow.
A crash in between leaves a note in the store, and the next daemon continues. A job that an unfinished job depends on
stays, because its outcome is still needed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dibs.daemon import job_folders
from dibs.errors import Conflict
from dibs.jobqueue import turns
from dibs.jobqueue.thread import now_ms
from dibs.jobqueue.turns import Turn
from dibs.model import selectors
from dibs.model.jobs import JobId, Outcome
from dibs.store import call_files
from dibs.store.writer import Reader

if TYPE_CHECKING:
    from dibs.daemon.service import Daemon

log = logging.getLogger("dibs.daemon.cleanup")

#: `job_folders.size` or `job_folders.remove`.
FolderWork = Callable[[Sequence[Path], int, bool], int]
#: Seconds after which call files that were never submitted count as abandoned.
STRAY_AFTER_S = 3600.0
FINISHED_WORDS = frozenset(outcome.value for outcome in Outcome)
#: Jobs in one turn, which must stay short.
MOST_IN_A_STEP = 200


class CleanupResult(NamedTuple):
    """The number of removed jobs and bytes, and the jobs that stay because others depend on them."""

    jobs: int
    bytes: int
    needed: list[JobId]


async def clean(
    daemon: Daemon, chosen: selectors.Selection, *, with_checkpoints: bool, is_dry_run: bool
) -> CleanupResult:
    """Delete the finished jobs of a selection, or only report what would be deleted."""
    choice = await daemon.ask(lambda reader: choose(reader, chosen, now_ms()))
    if is_dry_run:
        freed = await _in_thread(daemon, _total, job_folders.size, daemon.files.roots, choice.ids, with_checkpoints)
        return CleanupResult(len(choice.ids), freed, choice.needed)
    count, freed = await forget(daemon, choice.ids, with_checkpoints)
    return CleanupResult(count, freed, choice.needed)


async def forget(daemon: Daemon, ids: Sequence[JobId], with_checkpoints: bool) -> tuple[int, int]:
    """Delete jobs and their files, step by step; return the number of jobs and bytes."""
    count = freed = 0
    for first in range(0, len(ids), MOST_IN_A_STEP):
        step = ids[first : first + MOST_IN_A_STEP]
        gone = await daemon.do(partial(forget_rows, ids=step, with_checkpoints=with_checkpoints))
        freed += await _remove(daemon, gone, with_checkpoints)
        count += len(gone)
    if count:
        keys = await daemon.do(lambda turn: turn.store.tidy())
        freed += await _in_thread(daemon, call_files.remove, str(daemon.identity.home), keys)
        log.info("forgot %s jobs, %s bytes of files", count, freed)
    return count, freed


async def _remove(daemon: Daemon, gone: Sequence[JobId], with_checkpoints: bool) -> int:
    freed = await _in_thread(daemon, _total, job_folders.remove, daemon.files.roots, gone, with_checkpoints)
    await daemon.do(lambda turn: turn.store.forgot(gone))
    return freed


def _total(work: FolderWork, where: Sequence[Path], ids: Sequence[JobId], with_checkpoints: bool) -> int:
    """Return the bytes of all jobs."""
    return sum(work(where, job_id, with_checkpoints) for job_id in ids)


async def _in_thread(daemon: Daemon, work: Callable[..., int], *args: object) -> int:
    return await asyncio.get_running_loop().run_in_executor(daemon.remover, work, *args)


async def remove_strays(daemon: Daemon) -> None:
    """Remove call files of programs that died before the submission, and those that a crash left behind."""
    keys = await daemon.ask(lambda reader: reader.submission_keys())
    await _in_thread(daemon, call_files.remove_strays, str(daemon.identity.home), keys, time.time() - STRAY_AFTER_S)


async def keep_house(daemon: Daemon) -> None:
    """Finish what a crash interrupted, then delete jobs beyond the age and the number that the settings keep."""
    for with_checkpoints in (False, True):
        left = await daemon.ask(partial(Reader.forgotten, with_checkpoints=with_checkpoints))
        for first in range(0, len(left), MOST_IN_A_STEP):
            await _remove(daemon, left[first : first + MOST_IN_A_STEP], with_checkpoints)
    values = daemon.settings
    while ids := await daemon.ask(lambda reader: overdue(reader, now_ms(), values.keep_for, values.keep_jobs)):
        count, _ = await forget(daemon, ids, with_checkpoints=False)
        if not count:
            return


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


def forget_rows(turn: Turn, ids: Sequence[JobId], with_checkpoints: bool) -> list[JobId]:
    """Delete finished jobs from the store; return their ids, so that the caller can remove their files."""
    gone = turn.store.forget(ids, with_checkpoints)
    turn.changed += gone
    return gone
