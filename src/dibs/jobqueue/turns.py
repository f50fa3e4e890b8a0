"""One turn of the core thread as a verb sees it: what it may read and change, and what is to be done after the commit.

Also what every verb that names jobs needs: finding them, and saying what became of each.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from dibs.engines.job_files import JobFiles
from dibs.engines.local import Local
from dibs.errors import NotFound
from dibs.model import lifecycle, selectors
from dibs.model.devices import Inventory
from dibs.model.jobs import Job, JobId
from dibs.runner.attempts import Shim
from dibs.runner.records import Running
from dibs.scheduling.views import Policy
from dibs.store.writer import Store
from dibs.system.settings import Settings

T = TypeVar("T")

#: The fact that says whether the queue is paused.
PAUSED = "paused"
#: The fact that names the run of the machine in which jobs were last started.
BOOT = "boot"


@dataclass(frozen=True, slots=True)
class StartRunner:
    """Start the runner of a job that was placed."""

    job: Job


@dataclass(frozen=True, slots=True)
class Order:
    """Tell a job's runner something; where it is gone, end what it left."""

    job: Job
    line: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Look at the job again when its runner ends."""

    job: Job
    #: None: somebody is deciding about the start right now; look again in a moment.
    shim: Shim | None


@dataclass(frozen=True, slots=True)
class WatchOrphan:
    """Look at the job again when its command ends; its runner is gone."""

    job: Job
    running: Running | None


@dataclass(frozen=True, slots=True)
class EndLeftovers:
    """End what may be left of a job whose runner is gone."""

    job: Job


Effect = StartRunner | Order | Watch | WatchOrphan | EndLeftovers


@dataclass(slots=True)
class Turn:
    """One turn of the core thread: what a verb may read and change, and what is to be done after the commit."""

    store: Store
    engine: Local
    files: JobFiles
    settings: Settings
    inventory: Inventory
    policy: Policy
    now: int
    #: When the turn before this one was; what became due until then was seen to.
    since: int = 0
    #: What is done after the commit.
    effects: list[Effect] = field(default_factory=list)
    #: Jobs that look different now to anyone who shows them.
    changed: list[JobId] = field(default_factory=list)
    #: Jobs that finished in this turn; `dispatch.follow_up` decides what follows.
    finished: list[Job] = field(default_factory=list)
    #: Jobs that finished and are not retried.
    finished_for_good: list[Job] = field(default_factory=list)
    #: Waiting jobs whose dependencies must be judged again.
    needs_check: list[JobId] = field(default_factory=list)
    #: Jobs that shared a GPU, ran out of memory and are retried.
    retry_alone: list[JobId] = field(default_factory=list)

    @property
    def has_unread_numbers(self) -> bool:
        """Tell whether a job finished whose numbers must be read from its files."""
        return any(job.spec.sweep_id is not None or job.spec.metrics for job in self.finished)

    def mark(self) -> tuple[int, ...]:
        """Return how far this turn has come, for `undo`: its lists only grow, so their lengths are all there is."""
        return tuple([len(getattr(self, name)) for name in LISTS])

    def undo(self, mark: tuple[int, ...]) -> None:
        """Forget everything after `mark`, as the store does when a step fails."""
        for name, length in zip(LISTS, mark, strict=True):
            del getattr(self, name)[length:]

    def record(self, job: Job, event: lifecycle.Event, detail: str = "") -> Job:
        """Record an event and remember that the job changed."""
        self.changed.append(job.id)
        moved = self.store.record(job, event, detail)
        if moved.is_finished:
            self.finished.append(moved)
        return moved


#: The fields of a turn that its work appends to.
LISTS = tuple(each.name for each in fields(Turn) if each.default_factory is list)


@dataclass(frozen=True, slots=True)
class Work:
    """Something to be done in a turn; without an `answer` it is news, which is tried again when the disk refuses."""

    run: Callable[[Turn], Any]
    answer: Future[Any] | None = None
    #: It lets nothing start that could not start before, and after a power cut nobody misses it.
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """A job that a verb changed, and the word that it shows now."""

    id: JobId
    word: str


@dataclass(frozen=True, slots=True)
class Left:
    """A job that a verb did not change, and why."""

    id: JobId
    word: str
    why: str


@dataclass(frozen=True, slots=True)
class Acted:
    """What a verb did to the jobs it was given."""

    changed: list[Changed]
    unchanged: list[Left]
    #: What else is worth knowing.
    note: str = ""


def pick(turn: Turn, chosen: selectors.Selection) -> list[Job]:
    """Return the jobs that a selection means; meaning none is an error."""
    return require(turn.store.select(chosen, turn.now), chosen, turn.store.last_id())


def pick_words(turn: Turn, chosen: selectors.Selection) -> list[tuple[JobId, str]]:
    """Return id and word of the jobs that a selection means; meaning none is an error."""
    return require(turn.store.words(chosen, turn.now), chosen, turn.store.last_id())


def limit_word(seconds: float | None) -> str:
    """Return a time limit as an order says it."""
    return "none" if seconds is None else str(float(seconds))


def changed(job: Job) -> Changed:
    """Return a changed job as it is told."""
    return Changed(job.id, job.word)


def require(found: list[T], chosen: selectors.Selection, last_id: int) -> list[T]:
    """Return `found`, or say that nothing was."""
    if found:
        return found
    ids = [ends for atoms in chosen for atom in atoms if isinstance(atom, selectors.Ids) for ends in atom.ranges]
    newest = f" (the newest is {last_id})" if last_id else ": no job yet"
    if len(ids) == 1 and ids[0][0] == ids[0][1]:
        gone = " any more" if 0 < ids[0][0] <= last_id else ""
        raise NotFound(f"there is no job {ids[0][0]}{gone}{newest}.")
    raise NotFound(f"no job matches{newest}.")
