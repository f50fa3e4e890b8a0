"""Delete finished jobs and their files, on request or as the settings say.

Works in small steps, each a short turn of the queue; a separate thread removes the files, because a disk may be slow.
A crash in between leaves a note in the store, and the next daemon continues. A job that an unfinished job depends on
stays, because its outcome is still needed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dibs.errors import Conflict
from dibs.jobqueue import turns
from dibs.jobqueue.control import FINISHED_WORDS
from dibs.jobqueue.thread import now_ms
from dibs.jobqueue.turns import QUESTION, Turn
from dibs.model import selectors, units
from dibs.model.jobs import JobId
from dibs.store import call_files
from dibs.store.writer import Reader
from dibs.system.settings import Settings

if TYPE_CHECKING:
    from dibs.daemon.service import Daemon

log = logging.getLogger("dibs.daemon.cleanup")

#: `folder_size` or `remove_folder`.
FolderWork = Callable[[Sequence[Path], int, bool], int]
#: Shared by all attempts of a job; removed only on request.
CHECKPOINT = "checkpoint"
#: Seconds after which call files that were never submitted count as abandoned.
STRAY_AFTER_S = 3600.0
#: Jobs in one turn, which must stay short.
MOST_IN_A_STEP = 200
#: The fact with the time that daemons have run, by which the age of jobs is counted.
SEEN = "seen"
#: Moments of it that are remembered within the longest age that matters: an age is exact to this part of it.
MARKS = 16
#: Most seconds of a daemon's life that a crash may leave uncounted.
LONGEST_S = 300.0
#: The share of finished jobs that may be deleted for their age at once, and a number that always may.
MOST_SHARE = 0.5
FEW = 20


class SeenTime(NamedTuple):
    """Seconds that daemons ran so far, and moments: each with the number of the last event before it.

    The wall clock may be set a year ahead for a minute; what is deleted then stays deleted. So ages are counted in
    seconds of daemons' lives, and jobs are compared with the number of the last event at some moments.
    """

    seconds: float
    moments: tuple[tuple[float, int], ...]

    @classmethod
    def read(cls, text: str | None, last_event: int) -> SeenTime:
        """Return what the store knows; at first, all that happened so far counts as new."""
        if not text:
            return cls(0.0, ((0.0, last_event),))
        seconds, moments = json.loads(text)
        return cls(seconds, tuple((at, event) for at, event in moments))

    def written(self) -> str:
        """Return it as the store keeps it."""
        return json.dumps([self.seconds, self.moments])

    def later(self, passed_s: float, last_event: int, longest_s: float) -> SeenTime:
        """Return it after `passed_s` more; forget moments that are older than ages up to `longest_s` need."""
        now = self.seconds + passed_s
        moments = list(self.moments)
        if now - moments[-1][0] >= longest_s / MARKS:
            moments.append((now, last_event))
        while len(moments) > 1 and now - moments[1][0] >= longest_s:
            del moments[0]
        return SeenTime(now, tuple(moments))

    def event_before(self, age_s: float) -> int:
        """Return the number of the last event that is at least `age_s` old; 0 if none is known to be."""
        return max((event for at, event in self.moments if self.seconds - at >= age_s), default=0)


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
        freed = await _in_thread(daemon, _total, folder_size, daemon.files.roots, choice.ids, with_checkpoints)
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
        for home in (daemon.identity.home, *daemon.files.shared.values()):
            freed += await _in_thread(daemon, call_files.remove, str(home), keys)
        log.info("deleted %s jobs, %s bytes of files", count, freed)
    return count, freed


async def _remove(daemon: Daemon, gone: Sequence[JobId], with_checkpoints: bool) -> int:
    freed = await _in_thread(daemon, _total, remove_folder, daemon.files.roots, gone, with_checkpoints)
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
    event = await _last_old_event(daemon, daemon.settings.keep_for)
    while ids := await daemon.ask(lambda reader: overdue(reader, now_ms(), daemon.settings, event)):
        count, _ = await forget(daemon, ids, with_checkpoints=False)
        if not count:
            return


async def _last_old_event(daemon: Daemon, keep_for_s: float | None) -> int:
    """Return the last event that is old enough for deletion; 0 if there is none, or if a user must agree first."""
    if keep_for_s is None:
        return 0
    event = (await count_time(daemon, keep_for_s)).event_before(keep_for_s)
    daemon.question = question = await daemon.ask(lambda reader: doubt(reader, now_ms(), keep_for_s, event))
    if question != await daemon.ask(lambda reader: reader.fact(QUESTION) or ""):
        await daemon.do(lambda turn: turn.store.set_fact(QUESTION, question))
    return 0 if question else event


async def count_time(daemon: Daemon, keep_for_s: float, *, is_last: bool = False) -> SeenTime:
    """Add the time since it was last counted, and store it now and then; `is_last`: store it, the daemon ends."""
    now = time.monotonic()
    passed_s = now - daemon.counted_at
    seen, last_event = await daemon.ask(lambda reader: (reader.fact(SEEN), reader.last_event()))
    counted = SeenTime.read(seen, last_event).later(passed_s, last_event, keep_for_s)
    # What passed since then is lost in a crash.
    if is_last or passed_s >= min(keep_for_s / MARKS, LONGEST_S):
        daemon.counted_at = now
        await daemon.do(lambda turn: turn.store.set_fact(SEEN, counted.written()))
    return counted


def doubt(reader: Reader, now: int, keep_for_s: float, event: int) -> str:
    """Return why the jobs that are too old are not deleted without asking; empty: they are few enough."""
    old = reader.count_finished_before(now - round(keep_for_s * 1000), event)
    counts = reader.counts()
    finished = sum(counts[word] for word in FINISHED_WORDS)
    if old <= max(FEW, finished * MOST_SHARE):
        return ""
    return (
        f"{old} of {finished} finished jobs are older than keep_for ({units.format_duration(keep_for_s)}), "
        "too many to delete without asking: `dibs clean` does"
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that can be deleted, and those that must stay because others depend on them."""

    ids: list[JobId]
    needed: list[JobId]


def choose(reader: Reader, chosen: selectors.Selection, now: int) -> Choice:
    """Return the jobs of a selection to delete; raise if one of them is unfinished."""
    found = turns.require(reader.words(chosen, now), chosen, reader, now)
    for job_id, word in found:
        if word not in FINISHED_WORDS:
            raise Conflict(
                f"job {job_id} is {word}: only finished jobs can be deleted. Nothing was changed.",
                "Name those that are finished: SELECTOR+finished",
            )
    needed = reader.needed()
    return Choice([i for i, _ in found if i not in needed], [i for i, _ in found if i in needed])


def overdue(reader: Reader, now: int, values: Settings, event: int) -> list[JobId]:
    """Return finished jobs beyond the number to keep, or too old and untouched since `event`, at most one step."""
    counts = reader.counts()
    excess = sum(counts[word] for word in FINISHED_WORDS) - values.keep_jobs
    found = reader.finished_first(min(excess, MOST_IN_A_STEP)) if excess > 0 else []
    if values.keep_for is not None and event:
        found += reader.finished_before(now - round(values.keep_for * 1000), event, MOST_IN_A_STEP)
    return list(dict.fromkeys(found))[:MOST_IN_A_STEP]


def forget_rows(turn: Turn, ids: Sequence[JobId], with_checkpoints: bool) -> list[JobId]:
    """Delete finished jobs from the store; return their ids, so that the caller can remove their files."""
    gone = turn.store.forget(ids, with_checkpoints)
    turn.changed += gone
    return gone


# -- the folders of jobs


def _parts(roots: Iterable[Path], job_id: int, with_checkpoint: bool) -> Iterator[os.DirEntry[str]]:
    for root in roots:
        try:
            entries = list(os.scandir(root / str(job_id)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        yield from (entry for entry in entries if with_checkpoint or entry.name != CHECKPOINT)


def folder_size(roots: Sequence[Path], job_id: int, with_checkpoint: bool) -> int:
    """Return the bytes of a job's files that `remove_folder` would free."""
    return sum(_size(entry) for entry in _parts(roots, job_id, with_checkpoint))


def _size(entry: os.DirEntry[str]) -> int:
    try:
        if not entry.is_dir(follow_symlinks=False):
            return entry.stat(follow_symlinks=False).st_size
        with os.scandir(entry.path) as inside:
            return sum(_size(one) for one in inside)
    except FileNotFoundError:
        # Another process removed it; it takes no space any more.
        return 0


def remove_folder(roots: Sequence[Path], job_id: int, with_checkpoint: bool) -> int:
    """Remove the files of a job; return the number of freed bytes. Links are removed, never followed."""
    freed = 0
    for entry in _parts(roots, job_id, with_checkpoint):
        freed += _size(entry)
        try:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        except FileNotFoundError:
            continue
    for root in roots:
        _remove_empty(root / str(job_id))
    return freed


def _remove_empty(folder: Path) -> None:
    """Remove empty folders; a checkpoint with files keeps its folder."""
    for path in (folder / CHECKPOINT, folder):
        try:
            path.rmdir()
        except OSError:
            # Not empty, missing, or not a folder.
            continue
