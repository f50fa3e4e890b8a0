"""Jobs: what was asked, and what became of it. Plain values; what may follow what is in `lifecycle`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, NewType

from dibs.model import units
from dibs.model.devices import DeviceId

if TYPE_CHECKING:
    from dibs.model.fields import JobSpec

JobId = NewType("JobId", int)


class State(enum.Enum):
    """Where a job stands. How a finished one ended is its `Outcome`."""

    HELD = "held"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    FINISHED = "finished"


#: An attempt is under way: a runner may exist and devices may be taken.
ACTIVE = frozenset({State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING})
#: Nothing has been started yet.
WAITING = frozenset({State.HELD, State.QUEUED})


class Outcome(enum.Enum):
    """How a finished job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LOST = "lost"


#: What the selector `bad` means: it ended, nobody wanted it to, and it did not succeed.
BAD = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.LOST})


class Cause(enum.Enum):
    """Why a finished job did not succeed."""

    EXIT = "exit"
    OOM = "oom"
    GPU = "gpu"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    START = "start"
    DEPENDENCY = "dependency"
    LOST = "lost"


#: What begins the tag that says which program holds a job, and will let it go.
HELD_BY = "held-by:"

PRIORITIES = {"low": -10, "normal": 0, "high": 10, "urgent": 100}


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks of the machine. Jobs with equal requests are alike to the scheduler."""

    gpus: int = 1
    #: Only these devices: all of them, or `gpus` of them if that is less.
    gpu_ids: tuple[DeviceId, ...] = ()
    #: Taken first when they are free.
    prefer: tuple[DeviceId, ...] = ()
    #: A glob or part of the product name.
    gpu_type: str | None = None
    #: CPU cores and bytes of memory that are counted for it; 0: none are.
    cpus: int = 0
    mem: int = 0
    #: Seconds after which it is ended; also how long it is expected to run.
    limit_s: float | None = None
    #: Bytes of each device that it will use, beside others; 0: it wants the device alone.
    vram: int = 0
    #: Whether it may be started on a device that somebody uses without a lease.
    ignore_foreign: bool = False

    @property
    def is_exact(self) -> bool:
        """Tell whether it names the very devices that it wants, and leaves no choice."""
        return 0 < len(self.gpu_ids) == self.gpus

    @property
    def mib(self) -> int:
        """Return the MiB of each device that it will use, rounded up; 0: it wants the device alone."""
        return units.mib_of(self.vram)

    @property
    def ignores_foreign(self) -> bool:
        """Tell whether it may be started where somebody has no lease: one that shares counts what they use."""
        return self.ignore_foreign or self.vram > 0


class When(enum.Enum):
    """What must have become of the jobs that a job waits for."""

    #: All of them done.
    DONE = "done"
    #: One of them done.
    ANY = "any"
    #: All of them ended, however.
    END = "end"


@dataclass(frozen=True, slots=True)
class After:
    """One job that another waits for."""

    id: JobId
    when: When


class Trouble(enum.Enum):
    """Kinds of bad ends that may be worth another try: the words of `--retry-on`."""

    FAIL = "fail"
    OOM = "oom"
    LOST = "lost"
    TIMEOUT = "timeout"


#: A job that ran into its time limit would most likely do so again.
RETRIED_BY_DEFAULT = (Trouble.FAIL, Trouble.OOM, Trouble.LOST)


@dataclass(frozen=True, slots=True)
class Warn:
    """A signal that comes so long before the time limit."""

    #: Its name without SIG.
    signal: str
    before_s: float


class Member(NamedTuple):
    """What sets a job apart from the others of its submission, of which there may be a hundred thousand."""

    command: str
    name: str
    #: Index and place, as in `JobSpec`.
    number: int | None = None
    place: int | None = None
    #: The words, where they differ from job to job; then `command` is for people.
    argv: tuple[str, ...] | None = None
    #: Of a run of a sweep, as in `JobSpec`.
    point: str | None = None
    params: str | None = None
    folder: str | None = None

    def spec_from(self, spec: JobSpec) -> JobSpec:
        """Return the spec of this job, from the one that all of them share."""
        return replace(
            spec,
            command=self.command,
            argv=self.argv if self.argv is not None else spec.argv,
            name=self.name,
            index=self.number,
            place=self.place,
            point=self.point,
            params=self.params,
            folder=self.folder,
        )


@dataclass(frozen=True, slots=True)
class Job:
    """What was asked and what became of it. Moments are wall-clock milliseconds."""

    id: JobId
    spec: JobSpec
    submitted_at: int
    state: State = State.QUEUED
    outcome: Outcome | None = None
    cause: Cause | None = None
    #: One run of the command; grows with each retry.
    attempt: int = 1
    #: Tries to begin this attempt; a start may be given up before the command ran.
    start: int = 0
    #: Starts whose runner died before it could commit; three of them are a failure.
    dead_starts: int = 0
    #: Retries that were made by themselves since somebody last asked for one.
    retried: int = 0
    #: False while a queued job waits for other jobs or for its time.
    is_ready: bool = True
    #: The devices of the latest start.
    allocation: tuple[DeviceId, ...] = ()
    pid: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    #: One sentence on how it stands, where the state does not say it all.
    remark: str | None = None
    #: Where it stands among waiting jobs of its priority: `ranks`.
    rank: str = ""

    @property
    def array_id(self) -> JobId:
        """Return the id of the first job of its array; that of a job that stands alone is its own."""
        return JobId(self.id - (self.spec.place or 0))

    @property
    def held_by(self) -> str | None:
        """Return the program that holds it and will let it go; None: a person does."""
        return next((tag.removeprefix(HELD_BY) for tag in self.spec.tags if tag.startswith(HELD_BY)), None)

    @property
    def is_finished(self) -> bool:
        """Tell whether nothing more will happen to it by itself."""
        return self.state is State.FINISHED

    @property
    def is_active(self) -> bool:
        """Tell whether an attempt is under way."""
        return self.state in ACTIVE

    @property
    def is_waiting(self) -> bool:
        """Tell whether it has not been started yet."""
        return self.state in WAITING

    @property
    def word(self) -> str:
        """Return the one word for state or outcome that every output shows."""
        return self.outcome.value if self.outcome else self.state.value


def default_name(command: str, argv: Sequence[str] | None = None) -> str:
    """Return a short name taken from the command: its program, or the script that an interpreter runs."""
    words = argv or command.split(maxsplit=2)[:2]
    tails = [word.rsplit("/", 1)[-1] for word in words[:2]]
    if len(tails) > 1 and tails[0].startswith(("python", "bash", "sh")) and not tails[1].startswith("-"):
        return tails[1][:40]
    return (tails[0] if tails else "")[:40]
