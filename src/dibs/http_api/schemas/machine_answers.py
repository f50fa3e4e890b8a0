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
    """A GPU; `idle_since` is null while it is in use or was not watched. `reserved_for`: it is kept for this job."""

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
    waiters: int
    blocked: Blocked | None
    reserved_for: int | None


class Waiter(Struct):
    """Somebody in the machine-wide line for GPUs."""

    user: str
    pid: int
    gpus: int
    vram: int | None
    devices: list[str]


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
    """A job on its GPUs for some time; without `to` it goes on, until `expected_end` at most, where anybody knows."""

    job: int
    name: str
    attempt: int
    gpu_ids: list[str]
    begin: Moment
    end: Moment | None
    state: Word
    is_plan: bool
    expected_end: Moment | None


class Timeline(Struct):
    """What ran, runs and would run where; `more`: the past has more than is told."""

    lanes: list[Lane]
    bars: list[Bar]
    more: bool
    now: Moment


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
