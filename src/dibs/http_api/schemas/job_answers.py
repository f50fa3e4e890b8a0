"""What goes over the wire about jobs and the queue, as types for the OpenAPI document, and what all answers share.

Answers are made as plain dictionaries, which is faster than making these; a test asks a running daemon and compares.
An answer may have more keys than are told here. Those about sweeps are in `sweep_shapes`, the machine's in
`machine_shapes`.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

#: ISO 8601 in UTC.
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Numbers = dict[str, float | None]
Counts = dict[str, int]


class Trouble(Struct):
    """What went wrong: its kind, in one sentence, and what to do next."""

    kind: str
    message: str
    hint: str


class Error(Struct):
    """Every answer to something that went wrong."""

    error: Trouble


class ExpectedStart(Struct):
    """When a start is expected, and on which GPUs: those of the plan in which all take the most."""

    earliest: Moment
    latest: Moment
    gpu_ids: list[str]
    gpu_indices: list[int]


class Unknown(Struct):
    """Why nobody knows, and what would help."""

    why: str
    hint: str


class Need(Struct):
    """A job that another waits for."""

    id: int
    when: str


class Job(Struct):
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
    engine_ref: str | None
    remark: str | None
    dir: str | None
    batch: int | None
    retry_on: list[str]
    script: str | None
    warn: dict[str, Any] | None
    wait_tree: bool
    strict_gpus: bool
    vram_enforce: bool
    metric: dict[str, str]
    notifies: bool
    request: dict[str, Any]
    report: Numbers | None
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
    log: str


class Use(Struct):
    """How a job used one of its GPUs."""

    id: str
    peak_memory: int | None
    mean_utilization: float | None
    looks: int


class WholeJob(Job, kw_only=True):
    """A job with all that is known of it; `cli` is the line that would make it again."""

    cli: str
    attempts: list[Attempt]
    env: dict[str, str]
    expected_start: ExpectedStart | None
    use: list[Use]


class Paused(Struct):
    """The queue as a whole."""

    paused: bool


class Queue(Paused):
    """The queue as a whole, and how many jobs show which word."""

    counts: Counts


class Jobs(Struct):
    """The overview, or a list of jobs; of a page `next` is the cursor of the one after it, null at the end."""

    jobs: list[Job]
    queue: Paused
    counts: Counts
    machine: dict[str, Any]
    daemon: dict[str, Any]
    next: str | None = None


class Index(Struct):
    """The ids of a whole list: as ranges where it is sorted by id, else each of them."""

    total: int
    more: bool
    ranges: str | None = None
    ids: list[int] | None = None


class Submitted(Struct):
    """The ids that were given, what there is to note, and the batch if it has rules."""

    ids: list[int]
    notes: list[str]
    receipt: str
    batch: int | None
    hints: list[str]


class Rehearsed(Struct):
    """What would be queued, and when and where the first of it would start."""

    jobs: list[dict[str, Any]]
    at_once: int | None
    halt_after: int | None
    notes: list[str]
    expected_start: ExpectedStart | None
    unknown: Unknown | None


class Waited(Struct):
    """How the jobs stand that are waited for."""

    total: int
    finished: int
    bad: int
    over: bool
    mark: str


class Changes(Struct):
    """How jobs stand to which something happened, and from which event on to ask for more."""

    cursor: int
    jobs: list[dict[str, Any]]
    files: str


class Acted(Struct):
    """What a verb did; `clean` tells how many jobs and bytes went."""

    changed: list[dict[str, Any]] | None = None
    unchanged: list[dict[str, Any]] | None = None
    note: str | None = None
    jobs: int | None = None
    bytes: int | None = None
    needed: Any = None


class Event(Struct):
    """Something that happened to a job."""

    at: Moment
    kind: str
    detail: str


class Events(Struct):
    """All that happened to a job."""

    events: list[Event]


class Match(Struct):
    """A line of a log: where it begins, its number from 0 if that is known, and its text or a part of it."""

    offset: int
    line: int | None
    text: str


class Found(Struct):
    """Lines that were found, and the byte from which to go on; null: there is no more."""

    matches: list[Match]
    next: int | None
    size: int


class Lines(Struct):
    """Where every thousandth line of a log begins, as far as it was looked at."""

    size: int
    lines: int
    every: int
    offsets: list[int]
    next: int | None
    line: int
    traceback: int | None


class Why(Struct):
    """Why a job waits, or how it stands, and when and where it is expected to start."""

    id: int
    state: str
    reason: str
    hint: str
    expected_start: ExpectedStart | None
    unknown: Unknown | None


class Courses(Struct):
    """How numbers went."""

    numbers: list[dict[str, Any]]
    cut: bool


class Starts(Struct):
    """Which jobs start next, when, and on which GPUs."""

    starts: list[dict[str, Any]]


class Line(Struct):
    """The first jobs in line."""

    line: list[dict[str, Any]]


class Words(Struct):
    """Jobs and GPUs in a few words each."""

    jobs: list[dict[str, Any]]
    gpus: list[dict[str, Any]]
