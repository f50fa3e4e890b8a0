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
    node: str | None
    engine_options: str
    overflow: str | None
    overflow_after_s: float | None
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
    group: str
    evictable: bool | str
    evictions: int
    saved_s: float
    lost_s: float
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
    kept_by: str | None

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
    engine: str
    node: str | None
    log: str

class ExpectedStart(TypedDict):
    """When a start is expected, and on which GPUs: those of the plan in which all take the most."""

    earliest: str
    latest: str
    gpu_ids: list[str]
    gpu_indices: list[int]

class Unknown(TypedDict):
    """Why the start is unknown, and what would help."""

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
    """Jobs that are held for the same reason, and what releases them."""

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

class NamedGroup(TypedDict):
    """A named group of jobs; `at_once`: how many of them run at once, null: any number."""

    name: str
    at_once: int | None
    paused: bool
    active: int
    waiting: int

class NamedGroups(TypedDict):
    """The groups that have a rule or an unfinished job."""

    groups: list[NamedGroup]

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
    evictable: bool
    loan: bool

class Blocked(TypedDict):
    """Who keeps a GPU from everybody without holding it, and what ends that; null: hidden from this user."""

    user: str | None
    uid: int | None
    pid: int | None
    text: str
    fix: str

Reservation = TypedDict(
    "Reservation",
    {
        "id": int,
        "user": str,
        "gpus": list[int],
        "gpu_ids": list[str],
        "from": str,
        "to": str,
        "every": str | None,
        "state": str,
        "name": str,
        "is_ours": bool,
    },
)

class Gpu(TypedDict):
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
    idle_since: str | None
    unused_since: str | None
    is_idle: bool
    waiters: int
    blocked: Blocked | None
    reserved_for: int | None
    kept_by: str | None
    reservation: Reservation | None

class Waiter(TypedDict):
    """Somebody in the machine-wide line for GPUs."""

    user: str
    pid: int
    gpus: int
    vram: int | None
    devices: list[str]
    since: str

class Gpus(TypedDict):
    """Every GPU of this machine, and who waits for some; `starts` says why the machine refuses starts."""

    gpus: list[Gpu]
    waiters: list[Waiter]
    problem: str | None
    restriction: str | None
    starts: str | None

class DrainState(TypedDict):
    """Why a GPU is drained; null if it is not."""

    id: str
    index: int
    drained: str | None

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

class Lane(TypedDict):
    """A GPU of the picture; one that is gone has no index."""

    gpu_id: str
    index: int | None
    name: str

Bar = TypedDict(
    "Bar",
    {
        "job": int,
        "name": str,
        "attempt": int,
        "gpu_ids": list[str],
        "from": str,
        "to": str | None,
        "state": str,
        "is_plan": bool,
        "expected_end": str | None,
        "sweep": str | None,
    },
)

class Timeline(TypedDict):
    """What ran, runs and would run where, and what is reserved; `more`: there is more history than was returned."""

    lanes: list[Lane]
    bars: list[Bar]
    more: bool
    now: str
    reservations: list[Reservation]

class EngineNode(TypedDict):
    """A machine of an engine; `free_gpus` null: the engine does not say."""

    name: str
    up: bool
    gpus: int
    free_gpus: int | None
    gpu_type: str
    cpus: int
    mem: int
    jobs: list[int]

class Engine(TypedDict):
    """Where jobs run. `state`: ready, unreachable, incomplete (see `problem`), or restart (the daemon must read it)."""

    name: str
    kind: str
    state: str
    problem: str | None
    since: str | None
    gpus: int
    free_gpus: int | None
    queued: int
    waiting: int
    running: int
    nodes: list[EngineNode]
    seen_at: str | None

class Engines(TypedDict):
    """All engines, this machine first."""

    engines: list[Engine]

class StartScript(TypedDict):
    """What a job's engine gets, as text that a person can use."""

    engine: str
    text: str

class Sum(TypedDict):
    """GPU time of jobs on a day, and how much of it was observed and idle."""

    day: str
    project: str
    sweep: str | None
    gpu_s: float
    watched_s: int
    idle_s: int
    group: str
    used_s: float
    jobs: int
    waited_s: float

class PersonDay(TypedDict):
    """GPU time of a user on a day, which is one of UTC; through every way to a GPU."""

    day: str
    user: str
    gpu_s: float

class Summary(TypedDict):
    """A summary of all values of a metric."""

    min: float
    max: float
    mean: float
    count: int

class Run(TypedDict):
    """A run of a sweep; `job` is null if the job was deleted."""

    job: int | None
    attempt: int
    index: int
    params: dict[str, Any]
    state: str
    cause: str | None
    numbers: dict[str, float | None]
    summaries: dict[str, Summary]
    started_at: str | None
    finished_at: str | None
    engine: str | None
