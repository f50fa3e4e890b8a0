"""One turn of the queue thread: what a verb may read and change, and the effects that follow the commit.

Also helpers for verbs that select jobs: find them, and report the result for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar

from dibs.engines.job_files import JobFiles
from dibs.engines.local import Local
from dibs.engines.remote import Remote
from dibs.errors import NotFound
from dibs.model import lifecycle, selectors
from dibs.model.devices import Inventory
from dibs.model.jobs import AUTO, Job, JobId
from dibs.runner.attempts import Shim
from dibs.runner.records import RunningCommand
from dibs.scheduling.views import Policy
from dibs.store.writer import Reader, Store
from dibs.system.refusals import Refusal
from dibs.system.settings import Settings

T = TypeVar("T")

#: The fact that stores whether the queue is paused.
PAUSED = "paused"
#: The fact that stores the boot id under which jobs were last started.
BOOT = "boot"
#: The fact that says why old jobs are not deleted without asking; empty: they are.
QUESTION = "clean"
#: The fact that says what was found when the queue was last restored.
RESTORED = "restored"
#: Why the jobs of a restored queue are held.
FROM_COPY = "the queue was restored from a copy"


@dataclass(frozen=True, slots=True)
class Effect:
    """What is carried out for a job after the commit."""

    job: Job


@dataclass(frozen=True, slots=True)
class StartRunner(Effect):
    """Start the runner of a placed job."""

    #: Whether its devices are lent to it, while their leases are idle.
    is_loan: bool = False


@dataclass(frozen=True, slots=True)
class Order(Effect):
    """Send an order to a job's runner; if a runner to stop is gone, end its leftover processes."""

    line: str


@dataclass(frozen=True, slots=True)
class Watch(Effect):
    """Examine the job again when its runner ends."""

    #: None: another process is just deciding about the start; examine it again soon.
    shim: Shim | None


@dataclass(frozen=True, slots=True)
class WatchOrphan(Effect):
    """Examine the job again when its command ends; its runner is gone."""

    running: RunningCommand | None


class EndLeftovers(Effect):
    """End leftover processes of a job whose runner is gone."""


class EndDisobedient(Effect):
    """End the runner of a job, and what it left, if it was stopped and did not obey a stop order in time."""


class Send(Effect):
    """Have the engine of a placed job start it."""


class Adopt(Effect):
    """Follow the start of a job on an engine, which an earlier daemon sent or was about to send."""


@dataclass(slots=True)
class Turn:
    """What a verb may read and change in one turn, and the effects that follow the commit."""

    store: Store
    engine: Local
    files: JobFiles
    settings: Settings
    inventory: Inventory
    policy: Policy
    now: int
    #: The time of the previous turn, which handled everything that was due by then.
    since: int = 0
    #: The engines that others operate, by name.
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    #: Carried out after the commit.
    effects: list[Effect] = field(default_factory=list)
    #: Jobs whose displayed state changed.
    changed: list[JobId] = field(default_factory=list)
    #: Jobs that finished in this turn; `dispatch.follow_up` decides what follows.
    finished: list[Job] = field(default_factory=list)
    #: Jobs that finished and are not retried.
    finished_for_good: list[Job] = field(default_factory=list)
    #: Jobs whose command began: the machine accepts starts.
    begun: list[Job] = field(default_factory=list)
    #: Jobs that were evicted: what their checkpoints kept must be read from their files.
    evicted: list[Job] = field(default_factory=list)
    #: WaitingJob jobs whose dependencies must be judged again.
    needs_check: list[JobId] = field(default_factory=list)
    #: Jobs whose start was refused on a node of an engine, and why.
    refused: list[tuple[Job, Refusal]] = field(default_factory=list)
    #: Jobs that shared a GPU, ran out of memory and are retried.
    retry_alone: list[JobId] = field(default_factory=list)

    @property
    def has_unread_numbers(self) -> bool:
        """Tell whether numbers or checkpoints of a job must be read from its files."""
        is_watched = any(job.spec.request.evictable == AUTO for job in self.begun)
        return (
            is_watched
            or bool(self.evicted)
            or any(job.spec.sweep_id is not None or job.spec.metrics for job in self.finished)
        )

    def mark(self) -> tuple[int, ...]:
        """Return the state of this turn for `undo`: the lengths of its lists, which only grow."""
        return tuple(map(len, _lists(self)))

    def undo(self, mark: tuple[int, ...]) -> None:
        """Remove everything after `mark`, as the store does when a step fails."""
        for grown, length in zip(_lists(self), mark, strict=True):
            del grown[length:]

    def record(self, job: Job, event: lifecycle.Event, detail: str = "") -> Job:
        """Record an event and mark the job as changed."""
        self.changed.append(job.id)
        moved = self.store.record(job, event, detail)
        if moved.is_finished:
            self.finished.append(moved)
        return moved


#: Returns the fields of a turn that its work appends to.
_lists = attrgetter(*(each.name for each in fields(Turn) if each.default_factory is list))


@dataclass(frozen=True, slots=True)
class Work:
    """Work for a turn; without an `answer` it is a message, which is retried if the disk fails."""

    run: Callable[[Turn], Any]
    answer: Future[Any] | None = None
    #: It does not allow any further job to start, and may be lost in a power cut.
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """A job that a verb changed, and its new displayed state."""

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
    """The result of a verb for the selected jobs."""

    changed: list[Changed]
    unchanged: list[Left]
    #: A note for the user.
    note: str = ""


def pick(turn: Turn, chosen: selectors.Selection) -> list[Job]:
    """Return the jobs of a selection, as `require` allows."""
    return require(turn.store.select(chosen, turn.now), chosen, turn.store, turn.now)


def pick_words(turn: Turn, chosen: selectors.Selection) -> list[tuple[JobId, str]]:
    """Return id and displayed state of the jobs of a selection, as `require` allows."""
    return require(turn.store.words(chosen, turn.now), chosen, turn.store, turn.now)


def limit_word(seconds: float | None) -> str:
    """Return a time limit as an order spells it."""
    return "none" if seconds is None else str(float(seconds))


def changed(job: Job) -> Changed:
    """Return the `Changed` of a job."""
    return Changed(job.id, job.word)


def require(found: list[T], chosen: selectors.Selection, reader: Reader, now: int) -> list[T]:
    """Return `found`; raise if it is empty because an id or a name does not exist.

    No job in a state is no error: there is nothing to do.
    """
    if found or (chosen and all(not term or reader.select_ids((term,), now) for term in selectors.named(chosen))):
        return found
    raise nothing(chosen, reader.last_id())


def nothing(chosen: selectors.Selection, last_id: int) -> NotFound:
    """Return the error for a selection without jobs."""
    ids = [ends for atoms in chosen for atom in atoms if isinstance(atom, selectors.Ids) for ends in atom.ranges]
    newest = f" (the newest is {last_id})" if last_id else ": no job yet"
    if len(ids) == 1 and ids[0][0] == ids[0][1]:
        gone = " any more" if 0 < ids[0][0] <= last_id else ""
        return NotFound(f"there is no job {ids[0][0]}{gone}{newest}.")
    return NotFound(f"no job matches{newest}.")
