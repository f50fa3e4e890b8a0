"""Parse submissions and edits from JSON and check them.

The Structs define every field of a submission: an error for an unknown field or a wrong type names the field.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

import msgspec

from dibs.errors import UserError
from dibs.http_api.schemas import wire
from dibs.jobqueue import edits, validation
from dibs.logs import patterns
from dibs.model import arrays, fields, jobs, path_templates, scripts, serialization, suggestions
from dibs.model.jobs import RETRIED_BY_DEFAULT, CommandLines, JobId, Member, Warn, When, default_name
from dibs.store import call_files

#: The ways to list many jobs.
KINDS = ("jobs", "commands", "lines")
#: Rules for a whole submission.
RULES = ("at_once", "halt_after")
#: The pattern of a key that the submitter chooses for a submission.
KEY = "[0-9A-Za-z]{1,64}"
#: A time limit in seconds that is longer than every warning.
LONG_S = 9e8
#: What is expected of words and times.
AFTER = "after expected done, any or end"
RETRY_ON = "--retry-on expected fail, oom, lost, timeout or an exit code from 1 to 255"
BEGIN_AT = "begin_at expected a time such as 2026-11-15T22:00:00Z"
T = TypeVar("T")
Word = Annotated[str, msgspec.Meta(max_length=4096)]
Name = Annotated[str, msgspec.Meta(max_length=1000)]


class DryRunQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whether to only check the request."""

    dry_run: Annotated[
        str, msgspec.Meta(description="Any value: check the submission and return the result without storing it.")
    ] = ""


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """Many jobs, submitted all or none: `jobs`, `commands` or `lines`, common defaults, and rules for the batch."""

    jobs: list[dict[str, Any]] = []
    commands: list[str] = []
    #: Up to a million commands in one text, one a line.
    lines: str = ""
    defaults: dict[str, Any] = {}
    at_once: int | None = None
    halt_after: int | None = None
    array: str | None = None
    repeat: int | None = None
    batch: int | None = None
    key: str | None = None


class NeedIn(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that another waits for: a selector, and `done`, `any` or `end`."""

    select: Word
    when: str = "done"


class WarnIn(msgspec.Struct, forbid_unknown_fields=True):
    """A signal to send before the time limit."""

    signal: Name
    before_s: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] = 60.0


class SpecialIn(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a job that are not in `fields.PLAIN`."""

    command: str | None = None
    argv: list[str] | None = None
    #: Default: the folder of `environ_of`, else the one last used from a shell, else the home.
    cwd: Word | None = None
    #: Base64 of a packed environment. Default: that of `environ_of`, else of the last submission from a shell in this
    #: folder, else of a login shell.
    environ: str | None = None
    #: The job whose environment and folder it takes, with those variables of its `env` that are masked.
    environ_of: Annotated[int, msgspec.Meta(ge=1, lt=2**62)] | None = None
    #: The job whose options, environment and folder it takes, and its command if none is sent; what is sent wins.
    like: Annotated[int, msgspec.Meta(ge=1, lt=2**62)] | None = None
    #: The name of a preset of the settings; what is said beside it wins.
    preset: Name | None = None
    #: Variables that are added to the environment.
    env: dict[str, str] = {}
    gpus: Annotated[int, msgspec.Meta(ge=0, le=4096)] | None = None
    gpu_ids: list[Word] | None = None
    prefer: list[Word] | None = None
    gpu_type: Name | None = None
    time_limit_s: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] | None = None
    cpus: Annotated[int, msgspec.Meta(ge=0, le=65536)] = 0
    mem: Annotated[int, msgspec.Meta(ge=0, le=2**60)] = 0
    #: Bytes of each GPU, shared with other jobs; 0: exclusive use.
    vram: Annotated[int, msgspec.Meta(ge=0, le=2**50)] = 0
    #: Allow GPUs that are in use without a lease.
    ignore_foreign: bool = False
    #: Give its GPUs up to ordinary jobs; auto: once it writes checkpoints. Default: the setting.
    evictable: bool | Literal["no", "yes", "auto"] | None = None
    #: local, or the name of a cluster; null: that of the settings.
    engine: Name | None = None
    after: list[NeedIn] = []
    #: ISO 8601.
    begin_at: str | None = None
    #: fail, oom, lost, timeout, and exit codes.
    retry_on: list[str | int] | None = None
    tags: list[Name] = []
    #: Base64 of a script; `argv` is then its path and arguments.
    script: str | None = None
    #: Whether to set Slurm's variables.
    slurm: bool = False
    hold: bool = False
    warn: WarnIn | None = None
    #: Metric names, and regular expressions with one capture group for the number.
    metric: dict[Name, Word] = {}


def _annotation(field: fields.Field) -> Any:
    """Return the type of a plain field in JSON, with its bounds."""
    hint = HINTS[field.name]
    # The bounds are those of the value itself, if there is one.
    bare = next((kind for kind in (str, int, float) if hint == kind | None), hint)
    names = ("min_length", "max_length") if bare is str else ("ge", "le")
    bounds = zip(names, (field.least, field.most), strict=True)
    given: dict[str, Any] = {name: bound for name, bound in bounds if bound is not None}
    if not given:
        return hint
    meta = msgspec.Meta(**given)
    return Annotated[hint, meta] if bare == hint else Annotated[bare, meta] | None


HINTS = get_type_hints(fields.JobSpec)
JobIn = msgspec.defstruct(
    "JobIn",
    [(field.name, _annotation(field), field.default) for field in fields.PLAIN],
    bases=(SpecialIn,),
    namespace={"__doc__": "One job to be queued."},
    module=__name__,
    forbid_unknown_fields=True,
)


def _job(value: Any) -> SpecialIn:
    return cast("SpecialIn", wire.convert(value, JobIn))


def rules(body: Any) -> validation.Rules:
    """Return the rules for the whole submission."""
    told = body if _is_many(body) else {}
    values = {name: _rule(name, told.get(name)) for name in RULES}
    # An array such as `0-99%4` sets a limit too, but -j wins.
    array = _array(told.get("array"))
    at_once, batch = values["at_once"] or (array.at_once if array else None), _rule("batch", told.get("batch"))
    if batch is not None and (at_once or values["halt_after"]):
        raise UserError("`batch` cannot be combined with `jobs` or `halt`: the rules of that batch apply.")
    return validation.Rules(at_once, values["halt_after"], batch, _key(told.get("key")))


def _key(text: Any) -> str | None:
    # The key may become a file name.
    if text is not None and not (isinstance(text, str) and re.fullmatch(KEY, text)):
        raise UserError(f"key expected 1 to 64 letters and digits, got {json.dumps(text)[:80]}.")
    return text


def _array(text: Any) -> arrays.Array | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise UserError(f"array expected a text such as 0-99, got {json.dumps(text)[:80]}.")
    with suggestions.inside("--array"):
        return arrays.parse(text)


def _rule(name: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value < 2**31):
        raise UserError(f"{name} expected a whole number from 1 up, got {json.dumps(value)}.")
    return value


def change(body: Any) -> edits.Change:
    """Return the changes of an edit: fields as in a submission, null for the default, and rules of the batch."""
    if not isinstance(body, dict):
        raise UserError('expected the changes to be an object such as {"priority": 10}.')
    rules = {name: _rule(name, body[name]) for name in RULES if name in body}
    keys = frozenset(body) - {*RULES}
    fixed = keys.intersection(JobIn.__struct_fields__) - fields.EDITABLE.keys()
    if fixed:
        raise UserError(f"{sorted(fixed)[0]} cannot be changed after submission.")
    given = {key: body[key] for key in keys if body[key] is not None}
    if "cwd" in keys:
        given.setdefault("cwd", os.path.expanduser("~"))
    if not {"command", "argv"} & given.keys():
        if keys & {"command", "argv"}:
            raise UserError("expected a command, got none.")
        # A placeholder that is not used: the command does not change.
        given["command"] = "-"
    if "warn" in given and "time_limit_s" not in keys:
        # The warning is checked later against the time limit of each job.
        given["time_limit_s"] = LONG_S
    return edits.Change(keys, _submission(_job(given)), keys - given.keys(), rules)


def submissions(body: Any) -> list[validation.Submission]:
    """Return the submissions in a body: one job, a list of jobs, or jobs with common defaults."""
    return _numbered(_submissions(body), body)


def _is_many(body: Any) -> bool:
    return isinstance(body, dict) and any(name in body for name in KINDS)


def _submissions(body: Any) -> list[validation.Submission]:
    if not _is_many(body):
        return [_submission(_job(job)) for job in (body if isinstance(body, list) else [body])]
    keys = Batch.__struct_fields__
    if set(body) - {*keys} or sum(name in body for name in KINDS) > 1:
        raise UserError(f"expected an object with jobs, commands or lines, and any of {', '.join(sorted(keys))}.")
    defaults, jobs = body.get("defaults", {}), body.get("jobs", [])
    if not isinstance(defaults, dict) or not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise UserError("expected every job, and the defaults, to be an object.")
    if "commands" in body or "lines" in body:
        model = _submission(_job({**defaults, "command": "-"}))
        if "lines" in body:
            return [_by_line(model, wire.convert(body["lines"], str))]
        return [_alike(model, wire.convert(body["commands"], list[str]))]
    return [_submission(_job({**defaults, **job})) for job in jobs]


def _numbered(many: list[validation.Submission], body: Any) -> list[validation.Submission]:
    """Expand `array` or `repeat`; without them return the jobs unchanged."""
    told = body if _is_many(body) else {}
    array, times = _array(told.get("array")), told.get("repeat")
    if array is None and times is None:
        return many
    count = sum(submission.count for submission in many)
    if array is not None:
        if times is not None or count != 1:
            raise UserError("expected `array` with one job, and without `repeat`.")
        env = array.variables | dict(many[0].spec.env)
        spec = replace(many[0].spec, is_slurm=True, env=tuple(env.items()))
        return [_times(replace(many[0], spec=spec), array.indices)]
    if type(times) is not int or times < 1 or times * count > validation.MOST_AT_ONCE:
        raise UserError(
            f"--repeat expected a whole number from 1 up, for at most {validation.MOST_AT_ONCE:,} jobs, "
            f"got {json.dumps(times)}."
        )
    return [_times(submission, range(times)) for submission in many]


def _times(submission: validation.Submission, indices: Sequence[int]) -> validation.Submission:
    """Return a submission with every job repeated for each index."""
    spec = submission.spec
    each = submission.members or [Member(spec.command, spec.name or default_name(spec.command, spec.argv))]
    members = [one._replace(number=index, place=place) for one in each for place, index in enumerate(indices)]
    return replace(submission, members=members)


def _alike(model: validation.Submission, commands: list[str]) -> validation.Submission:
    """Return jobs that differ only in their command: the common part of a hundred thousand jobs is parsed once."""
    for command in commands:
        validation.check_line(command)
    name = model.spec.name
    return replace(model, members=[Member(command, name or default_name(command)) for command in commands])


def _by_line(model: validation.Submission, text: str) -> validation.Submission:
    """Return jobs that differ only in their command, from a text with one a line; an error names the line."""
    members = CommandLines(text, model.spec.name)
    for number, line in enumerate(members.lines(), 1):
        try:
            validation.check_line(line)
        except UserError as error:
            raise UserError(f"line {number}: {error.message}", error.hint) from None
    return replace(model, members=members)


def common(defaults: Any, names: Sequence[str]) -> validation.Submission:
    """Return the common part of all runs of a sweep; the named parameters may appear in its paths."""
    if not isinstance(defaults, dict):
        raise UserError("expected the defaults to be an object.")
    # A placeholder that is not used: every run has its own command.
    return _submission(_job({**defaults, "command": "-", "argv": None}), (*path_templates.NAMES, *names))


def _submission(job: SpecialIn, names: Sequence[str] = path_templates.NAMES) -> validation.Submission:
    # The command of a call from Python is the call as text, for display.
    if (job.command is None) == (job.argv is None) and not (job.command and call_files.is_call(job.argv)):
        raise UserError("expected either `command` or `argv`.")
    plain = {field.name: getattr(job, field.name) for field in fields.PLAIN}
    for field in fields.PLAIN:
        if field.choices and plain[field.name] not in (None, *field.choices):
            expected = " or ".join(field.choices)
            raise UserError(f'{field.options[0]} expected {expected}, got "{plain[field.name]}".')
    spec = fields.JobSpec(
        command=job.command if job.command is not None else _joined(job),
        argv=None if job.argv is None else tuple(job.argv),
        cwd=job.cwd or "",
        env=tuple(job.env.items()),
        environ_from="" if job.environ is None else fields.SUBMITTER,
        tags=tuple(dict.fromkeys(job.tags)),
        begin_at=None if job.begin_at is None else _read(job.begin_at, serialization.parse_moment, BEGIN_AT),
        retry_on=tuple(_read(str(word), jobs.parse_retry_on, RETRY_ON) for word in job.retry_on or ())
        or RETRIED_BY_DEFAULT,
        is_slurm=job.slurm,
        warn=None if job.warn is None else _warn(job.warn),
        metrics=tuple((name, _metric(name, pattern)) for name, pattern in job.metric.items()),
        **plain,
    )
    submission = validation.Submission(
        spec,
        job.gpus,
        tuple(job.gpu_ids or ()),
        tuple(job.prefer or ()),
        job.gpu_type,
        job.cpus,
        job.mem,
        job.time_limit_s,
        vram=job.vram,
        ignore_foreign=job.ignore_foreign,
        evictable=_evictable(job.evictable),
        engine=job.engine,
        after=tuple((need.select, _read(need.when, When, AFTER)) for need in job.after),
        environ=_decoded(job.environ, "environ"),
        environ_of=None if job.environ_of is None else JobId(job.environ_of),
        script=_script(job),
        is_held=job.hold,
    )
    validation.check_submission(submission, names)
    return submission


def _evictable(told: bool | str | None) -> str | None:
    return (jobs.YES if told else jobs.NO) if isinstance(told, bool) else told


def _read(text: str, read: Callable[[str], T], expected: str) -> T:
    try:
        return read(text)
    except ValueError:
        raise UserError(f'{expected}, got "{text}".') from None


def _joined(job: SpecialIn) -> str:
    """Return the command as a shell line; a script without its folder."""
    first, *rest = job.argv or [""]
    return shlex.join([os.path.basename(first) if job.script is not None else first, *rest]) if job.argv else ""


def _script(job: SpecialIn) -> bytes | None:
    body = _decoded(job.script, "script")
    if body is not None:
        if not job.argv or not job.argv[0].startswith("/") or os.path.basename(job.argv[0]) in ("", ".", ".."):
            raise UserError("expected `argv` to begin with the absolute path of the script.")
        scripts.check(body, os.path.basename(job.argv[0]))
    return body


def _warn(warn: WarnIn) -> Warn:
    name = warn.signal.upper().removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__:
        raise UserError(f'--signal expected a signal such as USR1, got "{warn.signal}".')
    return Warn(name, warn.before_s)


def _metric(name: str, pattern: str) -> str:
    with suggestions.inside("--metric"):
        patterns.check(name, pattern)
    return pattern


def _decoded(text: str | None, name: str) -> bytes | None:
    if text is None:
        return None
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    # Non-ASCII text raises a plain ValueError; binascii.Error is a subclass of it.
    except ValueError as error:
        raise UserError(f"{name} expected base64: {error}.") from None
