"""What goes over the wire, as types: the queries of older routes, and the answers, for the OpenAPI document.

Answers are made as plain dictionaries, which is faster than making these; a test asks a running daemon and compares.
An answer may have more keys than are told here.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

#: ISO 8601 in UTC.
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Seconds = Annotated[float, Meta(description="Seconds, at most 60, for which an answer may be waited for.")]
Numbers = dict[str, float | None]
Counts = dict[str, int]


class WaitQuery(Struct, kw_only=True):
    """Whose end is waited for."""

    select: Annotated[list[str], Meta(description="Selectors; without any, all that are unfinished now.")] = []
    seen: Annotated[int, Meta(description="Answer when another number than this has finished.")] = -1
    mark: Annotated[str, Meta(description="What the answer before said: the same jobs again.")] = ""
    wait_s: Seconds = 0.0


class ChangesQuery(Struct, kw_only=True):
    """Of what there may be news."""

    select: Annotated[list[str], Meta(description="These jobs, at once.")] = []
    since: Annotated[int, Meta(description="What happened after this event: what `cursor` said.")] = 0
    wait_s: Seconds = 0.0


class JobQuery(Struct, kw_only=True):
    """When one job is told."""

    until: Annotated[str, Meta(description="When it has started or finished.", pattern="^(started|finished)?$")] = ""
    wait_s: Seconds = 0.0


class MostQuery(Struct, kw_only=True):
    """How many are told."""

    most: Annotated[int, Meta(description="At most so many.")] = 5


class DryRunQuery(Struct, kw_only=True):
    """Whether it is meant."""

    dry_run: Annotated[str, Meta(description="Anything: check and tell everything, and change nothing.")] = ""


class SweepsQuery(Struct, kw_only=True):
    """Which sweeps."""

    name: Annotated[str | None, Meta(description="Those that this name or glob means; without counts.")] = None


class ResultsQuery(Struct, kw_only=True):
    """Which runs."""

    most: Annotated[int, Meta(description="At most so many; 0: all.")] = 0
    after: Annotated[str, Meta(description="What `next` said.")] = ""


class HistoryQuery(Struct, kw_only=True):
    """How far back."""

    minutes: Annotated[int, Meta(description="For how many minutes one mean a minute is told.")] = 60


class Trouble(Struct):
    """What went wrong: its kind, in one sentence, and what to do next."""

    kind: str
    message: str
    hint: str


class Error(Struct):
    """Every answer to something that went wrong."""

    error: Trouble


class Range(Struct):
    """When a start is expected."""

    earliest: Moment
    latest: Moment


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
    expected_start: Range | None
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
    """What would be queued, and when the first of it would start."""

    jobs: list[dict[str, Any]]
    at_once: int | None
    halt_after: int | None
    notes: list[str]
    expected_start: Range | None
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
    """Why a job waits, or how it stands, and when it is expected to start."""

    id: int
    state: str
    reason: str
    hint: str
    expected_start: Range | None
    unknown: Unknown | None


class Courses(Struct):
    """How numbers went."""

    numbers: list[dict[str, Any]]
    cut: bool


class Starts(Struct):
    """Which jobs start next, and when."""

    starts: list[dict[str, Any]]


class Line(Struct):
    """The first jobs in line."""

    line: list[dict[str, Any]]


class Sweep(Struct):
    """A sweep."""

    id: int
    project: str
    name: str
    command: str
    argv: list[str] | None
    dir: str | None
    metric: str | None
    goal: str | None
    batch: int
    created_at: Moment


class Sweeps(Struct):
    """All sweeps; `states` says how many runs show which word."""

    sweeps: list[dict[str, Any]]


class SweepMade(Sweep):
    """A sweep that was made or found."""

    notes: list[str]


class SweepChecked(Struct):
    """Whether a sweep would be new."""

    is_new: bool
    notes: list[str]


class Points(Struct):
    """What became of points: how many are new, retried, done, and so on."""

    counts: Counts
    notes: list[str]


class Run(Struct):
    """A run of a sweep; `job` is null where that was forgotten."""

    job: int | None
    attempt: int
    index: int
    params: dict[str, Any]
    state: str
    numbers: Numbers
    started_at: Moment | None
    finished_at: Moment | None


class Results(Struct):
    """The runs of a sweep, and what `after` says to get more; null: there are none."""

    sweep: Sweep
    runs: list[Run]
    next: str | None


class Holder(Struct):
    """Who has a GPU."""

    user: str | None
    uid: int | None
    pid: int | None
    job: str | int | None
    since: Moment | None
    vram: int | None


class Gpu(Struct):
    """A GPU."""

    index: int
    id: str
    name: str
    memory_total: int | None
    memory_used: int | None
    utilization: int | None
    temperature: int | None
    state: str
    holders: list[Holder]
    waiters: int
    idle_since: Moment | None
    fault: str | None
    drained: str | None
    foreign: str | None


class Gpus(Struct):
    """Every GPU of this machine, and who waits for some."""

    gpus: list[Gpu]
    waiters: list[dict[str, Any]]
    problem: str | None
    restriction: str | None


class History(Struct):
    """How busy GPUs were: rows of `columns`."""

    columns: list[str]
    gpus: list[dict[str, Any]]


class Drained(Struct):
    """Why nothing starts on a GPU; null: it does."""

    id: str
    index: int
    drained: str | None


class Lane(Struct):
    """A GPU of the picture; one that is gone has no index."""

    gpu_id: str
    index: int | None
    name: str


class Bar(Struct, rename={"begin": "from", "end": "to"}):
    """A job on its GPUs for some time; without `to` it goes on."""

    job: int
    name: str
    attempt: int
    gpu_ids: list[str]
    begin: Moment
    end: Moment | None
    state: str
    is_plan: bool


class Timeline(Struct):
    """What ran, runs and would run where; `more`: the past has more than is told."""

    lanes: list[Lane]
    bars: list[Bar]
    more: bool
    now: Moment


class Setting(Struct):
    """A setting."""

    name: str
    value: str
    default: str
    source: str
    variable: str
    help: str


class Settings(Struct):
    """How the daemon is set."""

    settings: list[Setting]
    version: str
    python: str
    home: str


class Check(Struct):
    """Something the doctor looked at: ok, warn or bad."""

    name: str
    state: str
    text: str
    hint: str


class Doctor(Struct):
    """What the doctor found."""

    checks: list[Check]


class Words(Struct):
    """Jobs and GPUs in a few words each."""

    jobs: list[dict[str, Any]]
    gpus: list[dict[str, Any]]


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


class Stopping(Struct):
    """Which process ends."""

    pid: int


class Batch(Struct, forbid_unknown_fields=True):
    """Many jobs, all of them or none: `jobs` or `commands`, what is common to them, and rules for the whole."""

    jobs: list[dict[str, Any]] = []
    commands: list[str] = []
    defaults: dict[str, Any] = {}
    at_once: int | None = None
    halt_after: int | None = None
    array: str | None = None
    repeat: int | None = None
    batch: int | None = None
    key: str | None = None
