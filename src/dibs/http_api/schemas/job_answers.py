"""Answers about jobs and the queue, and the types that all answers share.

Handlers return these Structs. The OpenAPI document, `client/answers.pyi` and the web page's `types.js` are generated
from them: run `scripts/write-docs` after a change. The order of fields is the order of the keys in the JSON.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from dibs.model import selectors

#: ISO 8601 in UTC.
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
#: The one word for a job's state or outcome.
Word = Annotated[str, Meta(extra_json_schema={"enum": list(selectors.STATE_WORDS)})]
Numbers = dict[str, float | None]
Counts = dict[str, int]


class Trouble(Struct):
    """An error: its kind, a message, and what to do next."""

    kind: str
    message: str
    hint: str


class Error(Struct):
    """The body of every error response."""

    error: Trouble


class ExpectedStart(Struct):
    """When a start is expected, and on which GPUs: those of the plan in which all take the most."""

    earliest: Moment
    latest: Moment
    gpu_ids: list[str]
    gpu_indices: list[int]


class Unknown(Struct):
    """Why the start is unknown, and what would help."""

    why: str
    hint: str


class Need(Struct):
    """A job that another waits for."""

    id: int
    when: str


class DeviceRequest(Struct):
    """Which GPUs a job may use."""

    gpu_ids: list[str]
    prefer: list[str]
    gpu_type: str | None
    ignore_foreign: bool


class Warn(Struct):
    """A signal that is sent before the time limit."""

    signal: str
    before_s: float


class Job(Struct):
    """A job as lists show it."""

    id: int
    name: str
    project: str
    user: str
    state: Word
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
    begin_at: Moment | None
    attempt: int
    retries: int
    pid: int | None
    exit_code: int | None
    signal: int | None
    submitted_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    log: str
    stderr: str | None
    sweep: str | None
    index: int | None
    params: dict[str, Any] | None
    tags: list[str]
    engine: str
    #: What the engine calls it, and the node on which it runs; null on this machine.
    engine_ref: str | None
    node: str | None
    #: The user's own options for the engine.
    engine_options: str
    #: The engine that gets it if it would wait longer here than this many seconds; null: none.
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
    #: Whether it gives its GPUs up to ordinary jobs; "auto": once it writes checkpoints.
    evictable: bool | str
    evictions: int
    #: Run time of its evicted attempts that their checkpoints kept, and that was lost.
    saved_s: float
    lost_s: float
    metric: dict[str, str]
    #: Whether it has a notification command. The command itself may contain a secret.
    notifies: bool
    request: DeviceRequest
    report: Numbers | None
    #: Current warnings about its GPUs.
    marks: list[str]


class Attempt(Struct):
    """A finished attempt of a job."""

    attempt: int
    outcome: str
    cause: str | None
    exit_code: int | None
    signal: int | None
    gpu_ids: list[str]
    gpu_indices: list[int]
    started_at: Moment | None
    finished_at: Moment
    engine: str
    node: str | None
    log: str


class Use(Struct):
    """How the latest attempt of a job used one of its GPUs."""

    id: str
    peak_memory: int | None
    mean_utilization: float | None
    looks: int


class WholeJob(Job, kw_only=True):
    """A job in full; `cli` is the command line that would submit it again, `hint` what would help while it waits."""

    cli: str
    hint: str
    attempts: list[Attempt]
    env: dict[str, str]
    #: Where its environment comes from: "submitter", "job 12", "login shell" or "user database"; null: not known.
    environment: str | None
    expected_start: ExpectedStart | None
    unknown: Unknown | None
    use: list[Use]


class PauseState(Struct):
    """The queue as a whole."""

    paused: bool


class Queue(PauseState):
    """The queue as a whole, and the number of jobs in each state."""

    counts: Counts


class NamedGroup(Struct):
    """A named group of jobs; `at_once`: how many of them run at once, null: any number."""

    name: str
    at_once: int | None
    paused: bool
    active: int
    waiting: int


class NamedGroups(Struct):
    """The groups that have a rule or an unfinished job."""

    groups: list[NamedGroup]


class Share(Struct):
    """A holder of a GPU, a job of this queue or a user, and the bytes it declared; null: the whole GPU."""

    job: int | None
    user: str | None
    vram: int | None


class Place(Struct):
    """A GPU and who holds it, as the scheduler sees it."""

    index: int
    id: str
    state: str
    job: int | None
    user: str | None
    holders: list[Share]
    #: It is free, but kept for this job, which needs more.
    reserved_for: int | None
    #: It is free, but your setting `max_gpus` or `keep_free` leaves it to other users.
    kept_by: str | None


class Machine(Struct):
    """The machine in one line; `disk` warns about a full disk, `starts` says why the machine refuses starts."""

    gpus: int
    free: int
    restriction: str | None
    problem: str | None
    devices: list[Place]
    disk: str | None
    starts: str | None


class Answerer(Struct):
    """The daemon that answered."""

    version: str
    pid: int


class Group(Struct):
    """A sweep, a batch, or jobs without one that were submitted together: all of them, listed or not."""

    sweep: str | None
    project: str
    batch: int | None
    submitted_at: Moment
    #: The ids of its first and its last job.
    first: int
    last: int
    counts: Counts


class Jobs(Struct):
    """The overview, or a list of jobs. A page has `next`, the cursor of the following page, null at the end.

    The overview has `groups`, since it lists only the latest finished jobs.
    """

    jobs: list[Job]
    queue: PauseState
    counts: Counts
    #: Jobs that ended badly in the last 24 hours, by state.
    failed_lately: Counts
    machine: Machine
    daemon: Answerer
    groups: list[Group] | UnsetType = UNSET
    next: str | UnsetType | None = UNSET


class Index(Struct, kw_only=True):
    """The ids of a whole list: as ranges if it is sorted by id, else one by one."""

    total: int
    ranges: str | UnsetType = UNSET
    ids: list[int] | UnsetType = UNSET
    more: bool


class Receipt(Struct):
    """The new ids, notes for the user, and the batch if it has rules."""

    ids: list[int]
    notes: list[str]
    receipt: str
    batch: int | None
    hints: list[str]


class DryRun(Struct):
    """What would be queued, and when and where the first of it would start."""

    jobs: list[dict[str, Any]]
    at_once: int | None
    halt_after: int | None
    notes: list[str]
    expected_start: ExpectedStart | None
    unknown: Unknown | None


class HeldJobs(Struct):
    """Jobs that are held for the same reason, and what releases them."""

    jobs: int
    reason: str
    hint: str


class WaitSummary(Struct):
    """How the jobs stand that are waited for; `held`: only these remain; `expected_end`: if asked for and known."""

    total: int
    finished: int
    bad: int
    over: bool
    mark: str
    held: list[HeldJobs] = []
    expected_end: Moment | None = None


class JobState(Struct):
    """The state of a job and its attempt; `files`: the folder of its files, if it is not below that of the others."""

    id: int
    state: Word
    attempt: int
    files: str | None = None


class Changes(Struct):
    """The jobs that changed, the event from which to ask for more, and the folder of the jobs' files."""

    cursor: int
    jobs: list[JobState]
    files: str


class ChangedJob(Struct):
    """A job that a verb changed."""

    id: int
    state: Word


class UnchangedJob(ChangedJob):
    """A job that a verb did not change."""

    why: str


class ActionResult(Struct):
    """What a verb did. `clean` answers with the number of jobs and bytes, and the jobs that are still needed."""

    changed: list[ChangedJob] | UnsetType = UNSET
    unchanged: list[UnchangedJob] | UnsetType = UNSET
    note: str | UnsetType = UNSET
    jobs: int | UnsetType = UNSET
    bytes: int | UnsetType = UNSET
    needed: list[int] | UnsetType = UNSET


class Event(Struct):
    """Something that happened to a job."""

    at: Moment
    kind: str
    detail: str


class Events(Struct):
    """All events of a job."""

    events: list[Event]


class Match(Struct):
    """A line of a log: its offset, its number from 0 if known, and its text or a part of it."""

    offset: int
    line: int | None
    text: str


class Matches(Struct):
    """Matching lines, and the byte from which to continue; null at the end."""

    matches: list[Match]
    next: int | None
    size: int


class Lines(Struct):
    """Where every thousandth line of the indexed part of a log begins."""

    size: int
    lines: int
    every: int
    offsets: list[int]
    next: int | None
    line: int
    traceback: int | None


class WriteMark(Struct, gc=False):
    """The size of a log at a time."""

    at: Moment
    size: int


class WriteTimes(Struct):
    """When a log was written: moments, in their order, each with the size of the log then; and the time of the answer.

    A line that begins after one size and ends before the next was written between their moments.
    """

    marks: list[WriteMark]
    now: Moment


class Why(Struct):
    """Why a job waits, or how it stands, and when and where it is expected to start."""

    id: int
    state: str
    reason: str
    hint: str
    expected_start: ExpectedStart | None
    unknown: Unknown | None


class Course(Struct):
    """The values of one metric, and at which time and step each was reported."""

    name: str
    at: list[Moment | None]
    steps: list[float | None]
    values: list[float | None]


class Bundle(Struct):
    """Jobs of a list that belong together: the runs of a sweep, or the jobs of a batch; `ids` as ranges, `1-20,23`."""

    sweep: int | None
    batch: int | None
    name: str
    total: int
    counts: Counts
    ids: str


class Bundles(Struct):
    """The sweeps and batches with several jobs in a list."""

    bundles: list[Bundle]


class Courses(Struct):
    """The metrics of an attempt over time; `cut`: the beginning is missing."""

    numbers: list[Course]
    cut: bool


class Start(Struct):
    """A job that starts soon."""

    id: int
    expected_start: ExpectedStart | None


class Starts(Struct):
    """Which jobs start next, when, and on which GPUs."""

    starts: list[Start]


class InLine(Struct):
    """A waiting job, why it waits, and when it is expected to start."""

    id: int
    name: str
    state: Word
    command: str
    gpus: int
    priority: int
    reason: str
    hint: str
    expected_start: ExpectedStart | None
    unknown: Unknown | None


class Line(Struct):
    """The first waiting jobs."""

    line: list[InLine]


class JobWords(Struct):
    """The words of a job for shell completion."""

    id: int
    name: str
    state: Word
    project: str
    tags: list[str]


class GpuWords(Struct):
    """The words of a GPU for shell completion."""

    index: int
    name: str


class Words(Struct):
    """The words for shell completion."""

    jobs: list[JobWords]
    gpus: list[GpuWords]


class QueueState(Struct):
    """The event `counts`: jobs by state, and whether the queue is paused."""

    counts: Counts
    queue: PauseState


class Hello(Struct):
    """The first event of a stream; `last` is the number of the newest event."""

    version: str
    last: int
    counts: Counts
    queue: PauseState
    host: str
    user: str


class JobEvent(Struct, gc=False):
    """The event `job`: something happened to a job. `state` and `attempt` are null for a deleted job."""

    job: int
    at: Moment
    kind: str
    detail: str
    state: Word | None
    attempt: int | None
