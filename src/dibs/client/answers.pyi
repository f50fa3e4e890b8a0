"""Answers of the daemon. Generated from `http_api/schemas` by `scripts/write-docs`; do not edit."""

from typing import Any, NotRequired, TypedDict

class Need(TypedDict):
    """A job that another waits for."""

    id: int
    when: str

class Warn(TypedDict):
    """A signal that is sent before the time limit."""

    signal: str
    before_s: float

class DeviceRequest(TypedDict):
    """Which GPUs a job may use."""

    gpu_ids: list[str]
    prefer: list[str]
    gpu_type: str | None
    ignore_foreign: bool

class Job(TypedDict):
    """A job as lists show it."""

    id: int
    name: str
    project: str
    user: str
    state: str
    reason: str | None
    cause: str | None
    command: str
    argv: list[str] | None
    cwd: str
    gpus: int
    gpu_ids: list[str]
    gpu_indices: list[int]
    vram: int | None
    cpus: int | None
    mem: int | None
    priority: int
    time_limit_s: float | None
    after: list[Need]
    begin_at: str | None
    attempt: int
    retries: int
    pid: int | None
    exit_code: int | None
    signal: int | None
    submitted_at: str
    started_at: str | None
    finished_at: str | None
    log: str
    stderr: str | None
    sweep: str | None
    index: int | None
    params: dict[str, Any] | None
    tags: list[str]
    engine: str
    engine_ref: str | None
    remark: str | None
    dir: str | None
    batch: int | None
    retry_on: list[str]
    script: str | None
    warn: Warn | None
    wait_tree: bool
    strict_gpus: bool
    vram_enforce: bool
    comment: str | None
    metric: dict[str, str]
    notifies: bool
    request: DeviceRequest
    report: dict[str, float | None] | None
    marks: list[str]

class PauseState(TypedDict):
    """The queue as a whole."""

    paused: bool

class Share(TypedDict):
    """A holder of a GPU, a job of this queue or a user, and the bytes it declared; null: the whole GPU."""

    job: int | None
    user: str | None
    vram: int | None

class Place(TypedDict):
    """A GPU and who holds it, as the scheduler sees it."""

    index: int
    id: str
    state: str
    job: int | None
    user: str | None
    holders: list[Share]
    reserved_for: int | None

class Machine(TypedDict):
    """The machine in one line; `disk` warns about a full disk, `starts` says why the machine refuses starts."""

    gpus: int
    free: int
    restriction: str | None
    problem: str | None
    devices: list[Place]
    disk: str | None
    starts: str | None

class Answerer(TypedDict):
    """The daemon that answered."""

    version: str
    pid: int

class Group(TypedDict):
    """A sweep, a batch, or jobs without one that were submitted together: all of them, listed or not."""

    sweep: str | None
    project: str
    batch: int | None
    submitted_at: str
    first: int
    last: int
    counts: dict[str, int]

class Jobs(TypedDict):
    """The overview, or a list of jobs. A page has `next`, the cursor of the following page, null at the end.

    The overview has `groups`, since it lists only the latest finished jobs.
    """

    jobs: list[Job]
    queue: PauseState
    counts: dict[str, int]
    failed_lately: dict[str, int]
    machine: Machine
    daemon: Answerer
    groups: NotRequired[list[Group]]
    next: NotRequired[str | None]

class Attempt(TypedDict):
    """A finished attempt of a job."""

    attempt: int
    outcome: str
    cause: str | None
    exit_code: int | None
    signal: int | None
    gpu_ids: list[str]
    gpu_indices: list[int]
    started_at: str | None
    finished_at: str
    log: str

class ExpectedStart(TypedDict):
    """When a start is expected, and on which GPUs: those of the plan in which all take the most."""

    earliest: str
    latest: str
    gpu_ids: list[str]
    gpu_indices: list[int]

class Unknown(TypedDict):
    """Why nobody knows, and what would help."""

    why: str
    hint: str

class Use(TypedDict):
    """How the latest attempt of a job used one of its GPUs."""

    id: str
    peak_memory: int | None
    mean_utilization: float | None
    looks: int

class WholeJob(Job):
    """A job in full; `cli` is the command line that would submit it again, `hint` what would help while it waits."""

    cli: str
    hint: str
    attempts: list[Attempt]
    env: dict[str, str]
    environment: str | None
    expected_start: ExpectedStart | None
    unknown: Unknown | None
    use: list[Use]

class Why(TypedDict):
    """Why a job waits, or how it stands, and when and where it is expected to start."""

    id: int
    state: str
    reason: str
    hint: str
    expected_start: ExpectedStart | None
    unknown: Unknown | None

class Event(TypedDict):
    """Something that happened to a job."""

    at: str
    kind: str
    detail: str

class ChangedJob(TypedDict):
    """A job that a verb changed."""

    id: int
    state: str

class UnchangedJob(ChangedJob):
    """A job that a verb did not change."""

    why: str

class ActionResult(TypedDict):
    """What a verb did. `clean` answers with the number of jobs and bytes, and the jobs that are still needed."""

    changed: NotRequired[list[ChangedJob]]
    unchanged: NotRequired[list[UnchangedJob]]
    note: NotRequired[str]
    jobs: NotRequired[int]
    bytes: NotRequired[int]
    needed: NotRequired[list[int]]

class DryRun(TypedDict):
    """What would be queued, and when and where the first of it would start."""

    jobs: list[dict[str, Any]]
    at_once: int | None
    halt_after: int | None
    notes: list[str]
    expected_start: ExpectedStart | None
    unknown: Unknown | None

class HeldJobs(TypedDict):
    """Jobs that are held for the same reason, and what lets them continue."""

    jobs: int
    reason: str
    hint: str

class WaitSummary(TypedDict):
    """How the jobs stand that are waited for; `held`: only these remain; `expected_end`: if asked for and known."""

    total: int
    finished: int
    bad: int
    over: bool
    mark: str
    held: list[HeldJobs]
    expected_end: str | None

class Process(TypedDict):
    """A process that the driver reports on a GPU."""

    pid: int
    user: str | None
    name: str | None
    memory: int | None

class Holder(TypedDict):
    """Who holds a GPU; `vram` null: the whole of it."""

    user: str | None
    uid: int | None
    pid: int | None
    job: str | None
    since: str | None
    vram: int | None

class Blocked(TypedDict):
    """Who keeps a GPU from everybody without holding it, and what ends that; null: hidden from this user."""

    user: str | None
    uid: int | None
    pid: int | None
    text: str
    fix: str

class Gpu(TypedDict):
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
    idle_since: str | None
    waiters: int
    blocked: Blocked | None
    reserved_for: int | None

class Waiter(TypedDict):
    """Somebody in the machine-wide line for GPUs."""

    user: str
    pid: int
    gpus: int
    vram: int | None
    devices: list[str]

class Gpus(TypedDict):
    """Every GPU of this machine, and who waits for some; `starts` says why the machine refuses starts."""

    gpus: list[Gpu]
    waiters: list[Waiter]
    problem: str | None
    restriction: str | None
    starts: str | None

class Daemon(TypedDict):
    """Who serves here."""

    running: bool
    pid: int
    socket: str
    version: str
    started_at: str
    home: str
    user: str
    devices: str

class Reload(TypedDict):
    """The settings that have changed in the files but need a restart of the daemon."""

    needs_restart: list[str]
