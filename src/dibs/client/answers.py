"""The shapes of the daemon's answers that the doors for people read, and what they read from them. `questions` asks."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from dibs.errors import NotFound
from dibs.model import selectors

WAITING = ("held", "queued")
FINISHED = selectors.GROUP_WORDS["finished"]


class Wanted(TypedDict):
    """What a job asks of the devices."""

    gpu_ids: list[str]
    prefer: list[str]
    gpu_type: str | None
    ignore_foreign: bool


class Need(TypedDict):
    """A job that another waits for, and for what end."""

    id: int
    when: str


class Warn(TypedDict):
    """A warning before the time limit."""

    signal: str
    before_s: float


class Attempt(TypedDict):
    """A finished attempt."""

    attempt: int
    outcome: str
    cause: str | None
    exit_code: int | None
    signal: int | None
    started_at: str | None
    finished_at: str | None
    log: str
    gpu_ids: list[str]
    gpu_indices: NotRequired[list[int]]


class Job(TypedDict):
    """A job as every door shows it, as far as it is read here."""

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
    priority: int
    time_limit_s: float | None
    vram: int | None
    cpus: int | None
    mem: int | None
    after: list[Need]
    begin_at: str | None
    retries: int
    attempt: int
    pid: int | None
    exit_code: int | None
    signal: int | None
    submitted_at: str
    started_at: str | None
    finished_at: str | None
    log: str
    tags: list[str]
    sweep: str | None
    remark: str | None
    #: What is to be said about its devices as long as it is so.
    marks: NotRequired[list[str]]
    request: Wanted
    # A daemon that is older than this does not say these.
    batch: NotRequired[int | None]
    index: NotRequired[int | None]
    script: NotRequired[str | None]
    warn: NotRequired[Warn | None]
    wait_tree: NotRequired[bool]
    strict_gpus: NotRequired[bool]
    vram_enforce: NotRequired[bool]
    notifies: NotRequired[bool]
    report: NotRequired[dict[str, float | None] | None]


class ExpectedStart(TypedDict):
    """When a job is expected to start, and on which devices."""

    earliest: str
    latest: str
    # A daemon that is older than this does not say these.
    gpu_ids: NotRequired[list[str]]
    gpu_indices: NotRequired[list[int]]


#: When and where each of the jobs that start next is expected to.
Starts = dict[int, ExpectedStart]


class Use(TypedDict):
    """How an attempt used one of its devices."""

    id: str
    peak_memory: int | None
    mean_utilization: float | None
    looks: int


class WholeJob(Job):
    """A job asked for alone."""

    attempts: list[Attempt]
    env: dict[str, str]
    #: None: unknown, or it does not wait.
    expected_start: ExpectedStart | None
    use: list[Use]


class Unknown(TypedDict):
    """Why nobody can say when a job starts, and what would help."""

    why: str
    hint: str


class Why(TypedDict):
    """Why a job waits, or how it stands."""

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


class Share(TypedDict):
    """Who has a device, a job of ours or somebody, and how many bytes of it; None: all of it."""

    job: int | None
    user: str | None
    vram: int | None


class Place(TypedDict):
    """A device and who has it, as the scheduler sees it."""

    index: int
    id: str
    state: str
    job: int | None
    user: str | None
    # A daemon that is older than this does not say these.
    holders: NotRequired[list[Share]]


class Machine(TypedDict):
    """The machine in one line."""

    gpus: int
    free: int
    restriction: str | None
    problem: str | None
    # A daemon that is older than this does not say these.
    devices: NotRequired[list[Place]]
    disk: NotRequired[str | None]


class Answerer(TypedDict):
    """Which daemon answered."""

    version: str
    pid: int


class Queue(TypedDict):
    """The queue as a whole."""

    paused: bool


class Overview(TypedDict):
    """The answer to `GET /v1/jobs`."""

    jobs: list[Job]
    queue: Queue
    counts: dict[str, int]
    machine: Machine
    daemon: NotRequired[Answerer]


class Changed(TypedDict):
    """A job that a verb changed."""

    id: int
    state: str


class Unchanged(Changed):
    """A job that a verb left as it was."""

    why: str


class Acted(TypedDict):
    """The answer to a verb that names jobs."""

    changed: list[Changed]
    unchanged: list[Unchanged]
    note: NotRequired[str]


class Holder(TypedDict):
    """Who has a device."""

    user: str | None
    pid: int | None
    job: str | None
    since: str | None
    #: Bytes that it shares of the device; None: it has the device alone.
    vram: int | None


class Process(TypedDict):
    """A process that the driver reports on a device."""

    pid: int
    user: str | None
    name: str | None


class Gpu(TypedDict):
    """A device and who has it."""

    index: int
    id: str
    name: str
    memory_total: int | None
    memory_used: int | None
    utilization: int | None
    temperature: int | None
    state: str
    fault: str | None
    drained: str | None
    foreign: str | None
    settling: str | None
    power: float | None
    #: A daemon that was started before an upgrade does not tell.
    compute_mode: NotRequired[str | None]
    #: Since when nobody has used it, as far as is known; and how many in the line would take it.
    idle_since: str | None
    waiters: int
    holders: list[Holder]
    processes: list[Process]


class Waiter(TypedDict):
    """Somebody in the machine-wide line."""

    user: str
    gpus: int
    vram: NotRequired[int | None]


class Gpus(TypedDict):
    """The answer to `GET /v1/gpus`."""

    gpus: list[Gpu]
    waiters: list[Waiter]
    problem: str | None
    restriction: str | None


class Rehearsal(TypedDict):
    """The answer to a dry run: the jobs that would be queued, and what holds for all of them."""

    jobs: list[dict[str, object]]
    at_once: int | None
    halt_after: int | None
    notes: list[str]
    #: Of the first of them.
    expected_start: ExpectedStart | None
    unknown: Unknown | None


class Waited(TypedDict):
    """The answer to `GET /v1/jobs/wait`."""

    total: int
    finished: int
    bad: int
    over: bool
    mark: str


def is_finished(job: Job) -> bool:
    """Tell whether nothing more will happen to a job by itself."""
    return job["state"] in FINISHED


def log_path(job: WholeJob, attempt: int) -> str:
    """Return where the output of one attempt is."""
    if attempt == job["attempt"]:
        return job["log"]
    for past in job["attempts"]:
        if past["attempt"] == attempt:
            return past["log"]
    count = job["attempt"]
    raise NotFound(f"job {job['id']} has no attempt {attempt}; its newest is {count}.")


def attempt_code(job: WholeJob, attempt: int) -> int:
    """Return the exit code of one attempt that has ended, also when the job is in a later one by now."""
    past = next((past for past in job["attempts"] if past["attempt"] == attempt), None)
    return exit_code(job, job["state"]) if past is None else exit_code(past, past["outcome"])


def exit_code(job: Job | Attempt, state: str) -> int:
    """Return what a shell would see of a command that ended like this."""
    if state == "timeout":
        return 124
    if state == "lost":
        return 125
    if job["signal"] is not None:
        return 128 + job["signal"]
    # A job that was stopped did not succeed, even if its command thinks so: what follows in a script must not go on.
    if state == "cancelled":
        return job["exit_code"] or 130
    return job["exit_code"] if job["exit_code"] is not None else 125
