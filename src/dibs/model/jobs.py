"""Jobs as plain values: the request and its result. `lifecycle` has the allowed transitions."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, NewType, overload

from dibs.model import units
from dibs.model.devices import DeviceId

if TYPE_CHECKING:
    from dibs.model.fields import JobSpec

JobId = NewType("JobId", int)


class State(enum.Enum):
    """The state of a job. `Outcome` tells how a finished job ended."""

    HELD = "held"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    FINISHED = "finished"


#: An attempt is active: a runner may exist and devices may be allocated.
ACTIVE = frozenset({State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING})
#: No attempt has started yet.
WAITING = frozenset({State.HELD, State.QUEUED})


class Outcome(enum.Enum):
    """How a finished job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LOST = "lost"


#: The selector `bad`: the job ended without success and nobody cancelled it.
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
    #: A rule of its sweep stopped it, because others do better. It counts neither as failed nor as cancelled by a user.
    EARLY = "early"


#: Prefix of the tag that names the program which holds a job and will release it.
HELD_BY = "held-by:"
#: The engine that is this machine.
LOCAL = "local"

#: Whether a job is evictable: the words of `--evictable`.
NO, YES, AUTO = EVICTABLE = ("no", "yes", "auto")

PRIORITIES = {"low": -10, "normal": 0, "high": 10, "urgent": 100}


@dataclass(frozen=True, slots=True)
class Request:
    """The resources a job requests. The scheduler treats jobs with equal requests alike."""

    gpus: int = 1
    #: Allow only these devices: all of them, or `gpus` of them if that is fewer.
    gpu_ids: tuple[DeviceId, ...] = ()
    #: Preferred if free.
    prefer: tuple[DeviceId, ...] = ()
    #: A glob or a part of the product name.
    gpu_type: str | None = None
    #: CPU cores and bytes of memory to reserve; 0: none.
    cpus: int = 0
    mem: int = 0
    #: Time limit in seconds; also the expected run time.
    limit_s: float | None = None
    #: Bytes of each device it uses while sharing it; 0: exclusive use.
    vram: int = 0
    #: Whether it may start on a device that somebody uses without a lease.
    ignore_foreign: bool = False
    #: Whether it gives its devices up to ordinary jobs: `YES`, `NO`, or `AUTO` once it writes checkpoints.
    evictable: str = NO
    #: Where it runs: `LOCAL`, or the name of a cluster in the settings. Each engine has lines of its own.
    engine: str = LOCAL

    @property
    def is_evictable(self) -> bool:
        """Tell whether it is evictable from its first second, and so counts against nobody."""
        return self.evictable == YES

    @property
    def is_exact(self) -> bool:
        """Tell whether it names exactly the devices it wants and leaves no choice."""
        return 0 < len(self.gpu_ids) == self.gpus

    @property
    def mib(self) -> int:
        """Return the MiB it uses of each device, rounded up; 0: exclusive use."""
        return units.mib_of(self.vram)

    @property
    def ignores_foreign(self) -> bool:
        """Tell whether foreign use of a device does not block it; a sharing job subtracts the memory in foreign use."""
        return self.ignore_foreign or self.vram > 0


class When(enum.Enum):
    """The condition that a job's dependencies must meet."""

    #: All of them are done.
    DONE = "done"
    #: At least one of them is done.
    ANY = "any"
    #: All of them have finished, successfully or not.
    END = "end"


@dataclass(frozen=True, slots=True)
class After:
    """A dependency on one job."""

    id: JobId
    when: When


class Trouble(enum.Enum):
    """Kinds of failure that can be retried: the words of `--retry-on`."""

    FAIL = "fail"
    OOM = "oom"
    LOST = "lost"
    TIMEOUT = "timeout"


#: What `--retry-on` accepts: a kind of failure, or an exit code.
RetryOn = Trouble | int
#: Timeouts are not retried by default: the job would most likely time out again.
RETRIED_BY_DEFAULT: tuple[RetryOn, ...] = (Trouble.FAIL, Trouble.OOM, Trouble.LOST)
MOST_EXIT_CODE = 255


def parse_retry_on(word: str) -> RetryOn:
    """Return what a word of `--retry-on` means; raise ValueError for any other word."""
    if not word.isdecimal():
        return Trouble(word)
    if not word.isascii() or len(word) > len(str(MOST_EXIT_CODE)) or not 1 <= int(word) <= MOST_EXIT_CODE:
        raise ValueError(word)
    return int(word)


def write_retry_on(what: RetryOn) -> str:
    """Return the word of `--retry-on` for a kind of failure or an exit code."""
    return what.value if isinstance(what, Trouble) else str(what)


@dataclass(frozen=True, slots=True)
class Warn:
    """A signal sent some time before the time limit."""

    #: Its name without SIG.
    signal: str
    before_s: float


class Member(NamedTuple):
    """The fields in which a job differs from others of its submission, which may have a hundred thousand jobs."""

    command: str
    name: str
    #: `index` and `place` of `JobSpec`.
    number: int | None = None
    place: int | None = None
    #: The words, where they differ between jobs; `command` is then for display.
    argv: tuple[str, ...] | None = None
    #: For a run of a sweep, as in `JobSpec`.
    point: str | None = None
    params: str | None = None
    folder: str | None = None

    @classmethod
    def of_spec(cls, spec: JobSpec) -> Member:
        """Return the own fields of a job."""
        return cls(spec.command, spec.name, spec.index, spec.place, spec.argv, spec.point, spec.params, spec.folder)

    def spec_from(self, spec: JobSpec) -> JobSpec:
        """Return the spec of this job, based on the shared one."""
        own = self._asdict() | {"argv": self.argv if self.argv is not None else spec.argv}
        return replace(spec, index=own.pop("number"), **own)


@dataclass(frozen=True, slots=True)
class Job:
    """A job: its spec and its state. Timestamps are wall-clock milliseconds."""

    id: JobId
    spec: JobSpec
    submitted_at: int
    state: State = State.QUEUED
    outcome: Outcome | None = None
    cause: Cause | None = None
    #: One run of the command; increases with each retry.
    attempt: int = 1
    #: Tries to start this attempt; a start may be abandoned before the command runs.
    start: int = 0
    #: Starts whose runner died before committing; after three of them the job fails.
    dead_starts: int = 0
    #: Automatic retries since the last manual one.
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
    #: One sentence of detail that the state does not convey.
    remark: str | None = None
    #: Its position among waiting jobs of the same priority: see `ranks`.
    rank: str = ""
    #: How often it was evicted, and the user for whom it was last.
    evictions: int = 0
    evicted_by: str = ""
    #: When it has given up its devices at the latest; None: it is not being evicted.
    leaves_at: int | None = None
    #: Run time of its evicted attempts that their checkpoints kept, and that was lost.
    saved_ms: int = 0
    lost_ms: int = 0
    #: What its engine calls the current start, and the node it runs on; None on this machine, and until known.
    engine_ref: str | None = None
    node: str | None = None

    @property
    def engine(self) -> str:
        """Return the engine it runs on."""
        return self.spec.request.engine

    @property
    def is_local(self) -> bool:
        """Tell whether it runs on this machine."""
        return self.spec.request.engine == LOCAL

    @property
    def array_id(self) -> JobId:
        """Return the id of the first job of its array; its own id if it is not in an array."""
        return JobId(self.id - (self.spec.place or 0))

    @property
    def held_by(self) -> str | None:
        """Return the program that holds the job and will release it; None: a user holds it."""
        return holder_of(self.spec.tags)

    @property
    def is_finished(self) -> bool:
        """Tell whether it has reached its final state."""
        return self.state is State.FINISHED

    @property
    def is_active(self) -> bool:
        """Tell whether an attempt is active."""
        return self.state in ACTIVE

    @property
    def is_waiting(self) -> bool:
        """Tell whether it has not been started yet."""
        return self.state in WAITING

    @property
    def word(self) -> str:
        """Return the word for its state or outcome that every output shows."""
        return self.outcome.value if self.outcome else self.state.value


def holder_of(tags: Sequence[str]) -> str | None:
    """Return the program that the tags of a job name as its holder."""
    return next((tag.removeprefix(HELD_BY) for tag in tags if tag.startswith(HELD_BY)), None)


class CommandLines(Sequence[Member]):
    """Jobs that differ only in their command lines. Each is made when it is needed: a million must not fill the memory.

    `name` is that of all of them; None: each has the name of its program.
    """

    def __init__(self, text: str, name: str | None) -> None:
        self._text = text
        self._name = name
        self._count = text.count("\n") + 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Member]:
        for line in self.lines():
            yield Member(line, self._name or default_name(line))

    @overload
    def __getitem__(self, place: int) -> Member: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Member]: ...
    def __getitem__(self, place: int | slice) -> Member | Sequence[Member]:
        return list(self)[place]

    def lines(self) -> Iterator[str]:
        """Return the command lines one by one."""
        start = 0
        while (end := self._text.find("\n", start)) >= 0:
            yield self._text[start:end]
            start = end + 1
        yield self._text[start:]


def default_name(command: str, argv: Sequence[str] | None = None) -> str:
    """Return a short name derived from the command: the program, or the script that an interpreter runs."""
    words = argv or command.split(maxsplit=2)[:2]
    tails = [word.rsplit("/", 1)[-1] for word in words[:2]]
    if len(tails) > 1 and tails[0].startswith(("python", "bash", "sh")) and not tails[1].startswith("-"):
        return tails[1][:40]
    return (tails[0] if tails else "")[:40]
