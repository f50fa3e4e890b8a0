"""The table of a job's fields: one row per field, read by all code that represents a job.

It generates the submission schema, the store's rows, a job's JSON, `dibs edit`, `dibs show`, the options, and the
command line that would submit the job again. A plain field has the same value in all of them and needs no other code;
for the other fields only the names are here and the code is where it is used.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any

from dibs.model import jobs, units
from dibs.model.jobs import RETRIED_BY_DEFAULT, After, Request, RetryOn, Warn

DEFAULT_PROJECT = "default"
DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class Coder:
    """How a value is stored in a column of SQLite, and read back."""

    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a job."""

    #: The attribute of `JobSpec` or `Request`.
    name: str = ""
    #: The key in a submission and, where it is shown, in the JSON of a job; None: no submitter can set it.
    key: str | None = None
    #: The long names of the options that set it.
    options: tuple[str, ...] = ()
    #: The column of the table `jobs`; None: the store handles it separately.
    column: str | None = None
    coder: Coder | None = None
    default: Any = None
    #: Whether it has the same value in a submission, in JSON and on a command line.
    is_plain: bool = False
    #: Whether the JSON of a job contains it unchanged under `key`.
    is_shown: bool = False
    #: Never shown, not even in a command line.
    is_secret: bool = False
    is_editable: bool = True
    #: The label in `dibs show`; empty: `dibs show` handles it separately.
    label: str = ""
    #: Bounds of a number, or of the length of a string.
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    #: How a plain value is typed after its option.
    write: Callable[[Any], str] = str


def _plain(*options: str, is_shown: bool = True, **more: Any) -> Mapping[str, Field]:
    """Return the row of a field that has the same value everywhere."""
    return {"row": Field(options=options, is_plain=True, is_shown=is_shown, **more)}


def _special(key: str, *options: str, **more: Any) -> Mapping[str, Field]:
    """Return the row of a field that a submission or the JSON represents differently."""
    return {"row": Field(key=key, options=options, **more)}


def _internal(**more: Any) -> Mapping[str, Field]:
    """Return the row of a field that is derived from a submission and not part of it."""
    return {"row": Field(is_editable=False, **more)}


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return () if text == "[]" else tuple((name, value) for name, value in json.loads(text))


def _warn(text: str | None) -> Warn | None:
    return None if text is None else Warn(*json.loads(text))


@lru_cache(maxsize=64)
def _troubles(text: str) -> tuple[RetryOn, ...]:
    return tuple(jobs.parse_retry_on(word) for word in text.split(",") if word)


FLAG = Coder(int, bool)
WORDS = Coder(
    lambda words: json.dumps(words) if words else "[]", lambda text: () if text == "[]" else tuple(json.loads(text))
)
ARGV = Coder(
    lambda argv: None if argv is None else json.dumps(argv),
    lambda text: None if text is None else tuple(json.loads(text)),
)
PAIRS = Coder(WORDS.encode, _pairs)
TROUBLES = Coder(lambda troubles: ",".join(map(jobs.write_retry_on, troubles)), _troubles)
WARN = Coder(lambda warn: None if warn is None else json.dumps([warn.signal, warn.before_s]), _warn)

#: The source of an environment that came with the submission.
SUBMITTER = "submitter"
#: Maximum length of a path or command, and of a name, in characters.
LONG, SHORT = 4096, 1000


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A submission as it is stored with the job. Only `dibs edit` changes it."""

    #: As typed: one string for the shell, or the words joined for display.
    command: str = field(metadata=_special("command", is_shown=True))
    #: The words, if words were given: they reach the program unchanged.
    argv: tuple[str, ...] | None = field(metadata=_special("argv", coder=ARGV))
    cwd: str = field(metadata=_special("cwd", "--chdir", is_shown=True))
    request: Request = field(default=Request(), metadata=_internal(column=""))
    name: str = field(default="", metadata=_plain("--name", most=SHORT))
    project: str = field(default=DEFAULT_PROJECT, metadata=_plain("--project", least=1, most=200))
    #: The group whose limit of jobs at once it counts for.
    group: str = field(default=DEFAULT_GROUP, metadata=_plain("--group", column="job_group", least=1, most=200))
    priority: int = field(default=0, metadata=_plain("--priority", least=-(2**31), most=2**31 - 1))
    #: Overrides the captured environment.
    env: tuple[tuple[str, str], ...] = field(default=(), metadata=_special("env", "--env", coder=PAIRS))
    umask: int = field(default=0o077, metadata=_plain(is_shown=False, least=0, most=0o777))
    #: Output path as typed (a template); None: a file in the job's folder.
    output: str | None = field(default=None, metadata=_plain("--output", is_shown=False, most=LONG))
    stderr: str | None = field(default=None, metadata=_plain("--stderr", is_shown=False, most=LONG))
    tags: tuple[str, ...] = field(default=(), metadata=_special("tags", "--tag", coder=WORDS))
    #: How the environment names the devices; None: as configured.
    visible: str | None = field(default=None, metadata=_plain("--visible", is_shown=False, choices=("uuid", "index")))
    #: Content id of the captured environment in the store.
    environ_id: int | None = field(default=None, metadata=_internal(column="environ"))
    #: Where that environment comes from: `SUBMITTER`, "job 12", or what `login_shell.read` says; empty: not known.
    environ_from: str = field(default="", metadata=_internal())
    after: tuple[After, ...] = field(
        default=(), metadata=_special("after", "--after", "--after-any", "--after-end", "--dependency", column="")
    )
    #: Do not start earlier, in wall-clock milliseconds.
    begin_at: int | None = field(default=None, metadata=_special("begin_at", "--begin"))
    retries: int = field(default=0, metadata=_plain("--retries", least=0, most=1000))
    retry_on: tuple[RetryOn, ...] = field(
        default=RETRIED_BY_DEFAULT, metadata=_special("retry_on", "--retry-on", coder=TROUBLES)
    )
    #: The batch it belongs to, if that batch has rules; 0: none.
    batch: int = field(default=0, metadata=_internal())
    #: Content id of a script's text in the store; `argv[0]` is then the original file.
    script_id: int | None = field(default=None, metadata=_internal(column="script"))
    #: Its index in an array or among repeated jobs, and how many of them precede it; None: a single job.
    index: int | None = field(default=None, metadata=_internal(column="number"))
    place: int | None = field(default=None, metadata=_internal())
    #: Whether it gets Slurm's variables: an array, or a script with `#SBATCH` lines.
    is_slurm: bool = field(default=False, metadata=_special("slurm", is_editable=False))
    warn: Warn | None = field(default=None, metadata=_special("warn", "--signal", coder=WARN))
    #: Whether it lasts until every process of its tree has ended, not only its command.
    wait_tree: bool = field(default=False, metadata=_plain("--wait-tree"))
    #: Names, and regular expressions with one group that matches the value in the log.
    metrics: tuple[tuple[str, str], ...] = field(default=(), metadata=_special("metric", "--metric", coder=PAIRS))
    #: Discard it if it cannot start at once.
    no_wait: bool = field(default=False, metadata=_plain(is_shown=False, is_editable=False))
    #: Stop it if it uses a device that it does not lease.
    strict_gpus: bool = field(default=False, metadata=_plain("--strict-gpus"))
    #: Stop it if it uses much more device memory than it declared.
    vram_enforce: bool = field(default=False, metadata=_plain("--vram-enforce"))
    #: Command to run when the job finishes; None: as configured. It may contain a chat token.
    notify: str | None = field(
        default=None, metadata=_plain("--notify", is_shown=False, is_secret=True, least=1, most=LONG)
    )
    #: Free text.
    comment: str | None = field(default=None, metadata=_plain("--comment", label="comment", least=1, most=LONG))
    #: Options for the engine's own submission, as typed.
    engine_options: str = field(default="", metadata=_plain("--slurm", label="engine options", most=LONG))
    #: The engine that gets it if it would wait longer here than some seconds; None: none. Then it is emptied.
    overflow: str | None = field(default=None, metadata=_plain("--overflow", label="overflow to", least=1, most=SHORT))
    overflow_after_s: float | None = field(
        default=None, metadata=_plain("--overflow-after", least=0, most=10**9, write=units.write_duration)
    )
    #: Id and name of the sweep it is a run of; None: no sweep.
    sweep_id: int | None = field(default=None, metadata=_internal(column="sweep"))
    sweep: str | None = field(default=None, metadata=_internal(column=""))
    #: The key of its point, and its parameters as JSON.
    point: str | None = field(default=None, metadata=_internal())
    params: str | None = field(default=None, metadata=_internal())
    #: The folder of the run, free for use by its command; None: the job's folder.
    folder: str | None = field(default=None, metadata=_internal())

    @property
    def script(self) -> str | None:
        """Return the name of the script it runs; None: it runs a command."""
        return self.argv[0].rsplit("/", 1)[-1] if self.script_id is not None and self.argv else None

    @property
    def time_limit_s(self) -> float | None:
        """Return the time limit in seconds."""
        return self.request.limit_s


def _row(own: dataclasses.Field[Any]) -> Field:
    row: Field = own.metadata["row"]
    return dataclasses.replace(
        row,
        name=own.name,
        key=own.name if row.is_plain else row.key,
        column=own.name if row.column is None else row.column or None,
        coder=row.coder or (FLAG if isinstance(own.default, bool) else None),
        default=own.default,
    )


#: The fields of `JobSpec`, in order.
SPEC = tuple(_row(own) for own in dataclasses.fields(JobSpec))
#: The fields of `Request`, which has its own table in the store.
REQUEST = (
    Field("gpus", "gpus", ("--gpus",)),
    Field("gpu_ids", "gpu_ids", ("--gpu-ids",)),
    Field("prefer", "prefer", ("--prefer",)),
    Field("gpu_type", "gpu_type", ("--gpu-type",)),
    Field("cpus", "cpus", ("--cpus",), is_plain=True),
    Field("mem", "mem", ("--mem",), is_plain=True),
    Field("limit_s", "time_limit_s", ("--time",)),
    Field("vram", "vram", ("--vram",), is_plain=True),
    Field("ignore_foreign", "ignore_foreign", ("--ignore-foreign",), is_plain=True),
    Field("evictable", "evictable", ("--evictable",)),
    Field("engine", "engine", ("--engine",), is_plain=True),
)
ALL = (*SPEC, *REQUEST)
PLAIN = tuple(own for own in SPEC if own.is_plain)
STORED = tuple(own for own in SPEC if own.column)
EDITABLE = {own.key: own for own in ALL if own.key and own.is_editable}
LABELED = tuple(own for own in SPEC if own.label)

_SHOWN = tuple(own for own in SPEC if own.is_shown)
_SHOWN_KEYS = tuple(own.key or "" for own in _SHOWN)
_shown_values = attrgetter(*(own.name for own in _SHOWN))


def shown(spec: JobSpec) -> dict[str, Any]:
    """Return the part of a job's JSON that equals its spec."""
    return dict(zip(_SHOWN_KEYS, _shown_values(spec), strict=True))
