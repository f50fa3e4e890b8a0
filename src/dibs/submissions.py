"""What may be asked for on the wire, checked and turned into what the verbs understand.

The structs are the whole grammar of a submission: an unknown field or a wrong type is refused by name.
"""

from __future__ import annotations

import binascii
import json
import os
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec

from dibs import codec, verbs
from dibs.errors import UserError
from dibs.jobs import RETRIED_BY_DEFAULT, Asked, Trouble, When

S = TypeVar("S")
Word = Annotated[str, msgspec.Meta(max_length=4096)]
Name = Annotated[str, msgspec.Meta(max_length=1000)]


class NeedIn(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that another waits for: a selector, and `done`, `any` or `end`."""

    select: Word
    when: str = "done"


class JobIn(msgspec.Struct, forbid_unknown_fields=True):
    """One job to be queued."""

    command: str | None = None
    argv: list[str] | None = None
    cwd: Word | None = None
    #: Base64 of a packed environment.
    environ: str | None = None
    env: dict[str, str] = {}
    umask: Annotated[int, msgspec.Meta(ge=0, le=0o777)] = 0o077
    name: Name = ""
    project: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "default"
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    gpus: Annotated[int, msgspec.Meta(ge=0, le=4096)] | None = None
    gpu_ids: list[Word] | None = None
    prefer: list[Word] | None = None
    gpu_type: Name | None = None
    time_limit_s: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] | None = None
    cpus: Annotated[int, msgspec.Meta(ge=0, le=65536)] = 0
    mem: Annotated[int, msgspec.Meta(ge=0, lt=2**60)] = 0
    after: list[NeedIn] = []
    #: ISO 8601.
    begin_at: str | None = None
    retries: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    retry_on: list[str] | None = None
    output: Word | None = None
    stderr: Word | None = None
    tags: list[Name] = []
    visible: str | None = None


class ActionIn(msgspec.Struct, forbid_unknown_fields=True):
    """One verb for many jobs."""

    verb: str
    select: list[str]
    grace_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None
    done: bool = False


class QueueIn(msgspec.Struct, forbid_unknown_fields=True):
    """How the queue as a whole should be."""

    paused: bool


class OneActionIn(msgspec.Struct, forbid_unknown_fields=True):
    """What a verb on one job may say."""

    grace_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None
    done: bool = False


def rules(body: Any) -> verbs.Rules:
    """Return the rules for the whole submission."""
    told = body if isinstance(body, dict) and "jobs" in body else {}
    values = {name: told.get(name) for name in ("at_once", "halt_after")}
    for name, value in values.items():
        if value is not None and (type(value) is not int or not 1 <= value < 2**31):
            raise UserError(f"{name} expected a whole number from 1 up, got {json.dumps(value)}.")
    return verbs.Rules(**values)


def wishes(body: Any) -> list[verbs.Wish]:
    """Return what is wished for: one job, a list of jobs, or jobs with defaults for all of them."""
    if not isinstance(body, dict) or "jobs" not in body:
        return [_wish(convert(job, JobIn)) for job in (body if isinstance(body, list) else [body])]
    if set(body) - {"jobs", "defaults", "at_once", "halt_after"} or not isinstance(body["jobs"], list):
        raise UserError('expected {"defaults": {...}, "jobs": [...], "at_once": N, "halt_after": N}.')
    defaults = body.get("defaults", {})
    if not isinstance(defaults, dict) or not all(isinstance(job, dict) for job in body["jobs"]):
        raise UserError("expected every job, and the defaults, to be an object.")
    if body["jobs"] and not {"command", "argv"} & set(defaults) and all(_is_plain(job) for job in body["jobs"]):
        return _alike(_wish(convert({**defaults, "command": "-"}, JobIn)), body["jobs"])
    return [_wish(convert({**defaults, **job}, JobIn)) for job in body["jobs"]]


def _is_plain(job: dict[str, Any]) -> bool:
    return len(job) == 1 and isinstance(job.get("command"), str)


def _alike(model: verbs.Wish, jobs: list[dict[str, Any]]) -> list[verbs.Wish]:
    """Return jobs that differ in nothing but their command: what is common to a hundred thousand is read once."""
    many = [replace(model, asked=replace(model.asked, command=job["command"])) for job in jobs]
    for wish in many:
        verbs.check_command(wish.asked)
    return many


def convert(value: Any, kind: type[S]) -> S:
    """Return a value of the wire as one of the structs above, or say what is wrong with it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{error}.") from None


def _wish(job: JobIn) -> verbs.Wish:
    if (job.command is None) == (job.argv is None):
        raise UserError("expected either `command` or `argv`.")
    if job.visible not in (None, "uuid", "index"):
        raise UserError(f'--visible expected uuid or index, got "{job.visible}".')
    asked = Asked(
        command=job.command if job.command is not None else _joined(job.argv or []),
        argv=None if job.argv is None else tuple(job.argv),
        cwd=job.cwd or os.path.expanduser("~"),
        name=job.name,
        project=job.project,
        priority=job.priority,
        env=tuple(job.env.items()),
        umask=job.umask,
        output=job.output,
        stderr=job.stderr,
        tags=tuple(dict.fromkeys(job.tags)),
        visible=job.visible,
        begin_at=None if job.begin_at is None else _begin(job.begin_at),
        retries=job.retries,
        retry_on=tuple(_trouble(word) for word in job.retry_on) if job.retry_on else RETRIED_BY_DEFAULT,
    )
    wish = verbs.Wish(
        asked,
        job.gpus,
        tuple(job.gpu_ids or ()),
        tuple(job.prefer or ()),
        job.gpu_type,
        job.cpus,
        job.mem,
        job.time_limit_s,
        tuple((need.select, _when(need.when)) for need in job.after),
        _environ(job.environ),
    )
    verbs.check_wish(wish)
    return wish


def _when(word: str) -> When:
    try:
        return When(word)
    except ValueError:
        raise UserError(f'after expected done, any or end, got "{word}".') from None


def _trouble(word: str) -> Trouble:
    try:
        return Trouble(word)
    except ValueError:
        raise UserError(f'--retry-on expected fail, oom, lost or timeout, got "{word}".') from None


def _begin(text: str) -> int:
    try:
        return codec.parse_moment(text)
    except ValueError:
        raise UserError(f'begin_at expected a moment such as 2026-11-15T22:00:00Z, got "{text}".') from None


def _joined(argv: list[str]) -> str:
    import shlex

    return shlex.join(argv)


def _environ(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise UserError(f"environ expected base64: {error}.") from None
