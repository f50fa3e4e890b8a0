"""Answers about the GPUs, the daemon and its settings; see `job_answers`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dibs.http_api.schemas.job_answers import Moment, Word


class Holder(Struct):
    """Who holds a GPU; `vram` null: the whole of it."""

    user: str | None
    uid: int | None
    pid: int | None
    job: str | None
    since: Moment | None
    vram: int | None
    #: Whether it is an evictable job, which yields to ordinary ones.
    evictable: bool
    #: Whether it only borrows the GPU, because the lease of the holder before it is idle.
    loan: bool


class Blocked(Struct):
    """Who keeps a GPU from everybody without holding it, and what ends that; null: hidden from this user."""

    user: str | None
    uid: int | None
    pid: int | None
    text: str
    fix: str


class Process(Struct):
    """A process that the driver reports on a GPU."""

    pid: int
    user: str | None
    name: str | None
    memory: int | None


class Gpu(Struct):
    """A GPU; `idle_since` is null while it is in use or was not observed. `reserved_for`: it is kept for this job.

    `kept_by`: max_gpus, keep_free or quota, which leaves it to other users although a job of yours waits.
    `reservation`: the one that has begun.
    """

    index: int
    id: str
    name: str
    memory_total: int | None
    memory_used: int | None
    utilization: int | None
    temperature: int | None
    fault: str | None
    drained: str | None
    foreign: str | None
    foreign_memory: int
    settling: str | None
    power: float | None
    power_limit: float | None
    ecc_errors: int | None
    compute_mode: str | None
    pci: str | None
    numa: int | None
    parent: str | None
    vendor: str
    processes: list[Process]
    state: str
    holders: list[Holder]
    idle_since: Moment | None
    #: Since when a leased GPU shows no use; `is_idle`: for longer than the setting idle_after.
    unused_since: Moment | None
    is_idle: bool
    waiters: int
    blocked: Blocked | None
    reserved_for: int | None
    kept_by: str | None
    reservation: Reservation | None


class Waiter(Struct):
    """Somebody in the machine-wide line for GPUs."""

    user: str
    pid: int
    gpus: int
    vram: int | None
    devices: list[str]
    since: Moment


class Gpus(Struct):
    """Every GPU of this machine, and who waits for some; `starts` says why the machine refuses starts."""

    gpus: list[Gpu]
    waiters: list[Waiter]
    problem: str | None
    restriction: str | None
    starts: str | None


class GpuHistory(Struct):
    """Samples of one GPU: each reading of the last hour, and one mean per minute."""

    id: str
    recent: list[list[Any]]
    minutes: list[list[Any]]


class History(Struct):
    """The history of the GPUs; `columns` names the values of each sample."""

    columns: list[str]
    gpus: list[GpuHistory]


class DrainState(Struct):
    """Why a GPU is drained; null if it is not."""

    id: str
    index: int
    drained: str | None


class Lane(Struct):
    """A GPU of the picture; one that is gone has no index."""

    gpu_id: str
    index: int | None
    name: str


class Bar(Struct, gc=False, rename={"begin": "from", "end": "to"}):
    """A job on its GPUs for some time; without `to` it still runs, until `expected_end` at most if that is known.

    `sweep`: its name, if the job runs or is planned.
    """

    job: int
    name: str
    attempt: int
    gpu_ids: list[str]
    begin: Moment
    end: Moment | None
    state: Word
    is_plan: bool
    expected_end: Moment | None
    sweep: str | None = None


class Reservation(Struct, rename={"begin": "from", "end": "to"}):
    """GPUs that are kept for a user; `state`: now, planned, or unused (released, because nobody used them in time)."""

    id: int
    user: str
    gpus: list[int]
    gpu_ids: list[str]
    begin: Moment
    end: Moment
    every: str | None
    state: str
    name: str
    #: Whether this user may cancel it.
    is_ours: bool


class Reservations(Struct):
    """The reservations of all users; of one that is repeated the next time."""

    reservations: list[Reservation]


class Timeline(Struct):
    """What ran, runs and would run where, and what is reserved; `more`: there is more history than was returned."""

    lanes: list[Lane]
    bars: list[Bar]
    more: bool
    now: Moment
    #: One for each time that begins before the end of the timeline.
    reservations: list[Reservation]


class Day(Struct, rename={"begin": "from", "end": "to"}):
    """A day in the time zone of the machine."""

    day: str
    begin: Moment
    end: Moment


class Sum(Struct):
    """GPU time of jobs on a day, and how much of it was observed and idle."""

    day: str
    project: str
    sweep: str | None
    gpu_s: float
    watched_s: int
    idle_s: int
    group: str
    #: GPU time that was used, by utilization, of the time that was observed.
    used_s: float
    jobs: int
    #: How long the jobs that began on that day had waited.
    waited_s: float


class PersonDay(Struct):
    """GPU time of a user on a day, which is one of UTC; through every way to a GPU."""

    day: str
    user: str
    gpu_s: float


class JobWait(Struct):
    """How long a job waited for its first start."""

    job: int
    name: str
    wait_s: float


class Waits(Struct):
    """The number of jobs that started, their median wait, and the longest waits."""

    count: int
    median_s: float | None
    longest: list[JobWait]


class Usage(Struct):
    """GPU usage; `more`: some sums were omitted. A GPU is idle below `idle_below` percent utilization."""

    days: list[Day]
    sums: list[Sum]
    more: bool
    idle_below: int
    waits: Waits
    #: All users of the machine.
    people: list[PersonDay]


class Setting(Struct):
    """A setting."""

    name: str
    value: str
    default: str
    source: str
    variable: str
    help: str


class Settings(Struct):
    """The settings of the daemon."""

    settings: list[Setting]
    version: str
    python: str
    home: str


class Reload(Struct):
    """The settings that have changed in the files but need a restart of the daemon."""

    needs_restart: list[str]


class Check(Struct):
    """The result of one `dibs doctor` check: ok, warn or bad."""

    name: str
    state: str
    text: str
    hint: str


class Doctor(Struct):
    """The results of `dibs doctor`."""

    checks: list[Check]


class EngineNode(Struct):
    """A machine of an engine; `free_gpus` null: the engine does not say."""

    name: str
    up: bool
    gpus: int
    free_gpus: int | None
    gpu_type: str
    cpus: int
    #: Bytes.
    mem: int
    #: Our jobs that run there.
    jobs: list[int]


class Engine(Struct):
    """Where jobs run. `state`: ready, unreachable, incomplete (see `problem`), or restart (the daemon must read it)."""

    name: str
    kind: str
    state: str
    #: What is wrong, in words, and since when.
    problem: str | None
    since: Moment | None
    gpus: int
    free_gpus: int | None
    #: Our jobs: they wait in our queue, wait there, or run.
    queued: int
    waiting: int
    running: int
    nodes: list[EngineNode]
    #: When the nodes were last read.
    seen_at: Moment | None


class Engines(Struct):
    """All engines, this machine first."""

    engines: list[Engine]


class StartScript(Struct):
    """What a job's engine gets, as text that a person can use."""

    engine: str
    text: str


class Daemon(Struct):
    """Who serves here."""

    running: bool
    pid: int
    socket: str
    version: str
    started_at: Moment
    home: str
    user: str
    devices: str


class DaemonStop(Struct):
    """The process that stops."""

    pid: int


class Preset(Struct):
    """Options of a job under a name: as they are typed, and the fields of a submission that they set."""

    name: str
    options: str
    fields: dict[str, Any]
    #: Why it cannot be used; null: it can.
    problem: str | None


class Presets(Struct):
    """The presets of the settings."""

    presets: list[Preset]


class Environment(Struct):
    """A folder that was used from a shell, and its newest job."""

    job: int
    name: str
    cwd: str
    #: The conda or virtual environment that was active.
    activated: str | None
    submitted_at: Moment


class Environments(Struct):
    """The folders and environments that a submission can choose from, newest first."""

    environments: list[Environment]
