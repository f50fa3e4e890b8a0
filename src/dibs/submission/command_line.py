"""Build the `dibs add ...` line that would submit a job again: the inverse of option parsing.

It omits what no option sets: the captured environment, the batch rules, the point of a sweep; and the notify command,
which may contain a token. Values of variables with secret-looking names are masked, as everywhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime

from dibs.model import fields, jobs, serialization, units
from dibs.model.fields import JobSpec
from dibs.model.jobs import LOCAL, RETRIED_BY_DEFAULT, Request, default_name
from dibs.submission import drafts, job_options
from dibs.submission.options import Option
from dibs.system import commands


def line(spec: JobSpec, now: int, *, is_held: bool = False) -> str:
    """Return the line, quoted for a shell; a begin time before `now` is omitted."""
    return shlex.join(["dibs", "add", *words(spec, now, is_held=is_held)])


def words(spec: JobSpec, now: int, *, is_held: bool = False) -> list[str]:
    """Return the words after `dibs add`."""
    found = [word for option, value in _options(spec, now, is_held) for word in _typed(option, value)]
    if spec.script is not None and spec.argv:
        return [*found, *_typed(job_options.SCRIPT, spec.argv[0]), *spec.argv[1:]]
    typed = [spec.command] if spec.argv is None else list(spec.argv)
    if spec.argv is not None and (drafts.split_variables(typed)[0] or commands.is_string(typed)):
        # These words would be parsed as something else; as one quoted string they go to the shell unchanged.
        typed = [shlex.join(typed)]
    if len(typed) == 1 and (drafts.split_variables(typed)[0] or not typed[0].strip()):
        return [*found, *_typed(job_options.WRAP, typed[0])]
    return [*found, *(["--"] if typed[0].startswith("-") else []), *typed]


def _typed(option: Option[object], value: str | None) -> list[str]:
    name = option.names[-1]
    if value is None:
        return [name]
    return [f"{name}={value}"] if value == "" or value.startswith("-") else [name, value]


#: Options with their values; None: a flag.
Typed = Iterator[tuple[Option[object], str | None]]


def _options(spec: JobSpec, now: int, is_held: bool) -> Typed:
    """Return the options of a job with their values."""
    yield from _devices(spec.request)
    if spec.name and spec.name != default_name(spec.command, spec.argv):
        yield job_options.NAME, spec.name
    for own in fields.PLAIN:
        value = getattr(spec, own.name)
        if own.options and own.key != "name" and not own.is_secret and value != own.default:
            yield job_options.setters(own)[0], None if value is True else own.write(value)
    yield job_options.CHDIR, spec.cwd
    for name, value in serialization.mask_environ(spec.env).items():
        yield job_options.ENV, f"{name}={value}"
    for when, option in job_options.AFTER_WHEN.items():
        if ids := [str(need.id) for need in spec.after if need.when is when]:
            yield option, ",".join(ids)
    if spec.begin_at is not None and spec.begin_at > now:
        yield job_options.BEGIN, datetime.fromtimestamp(spec.begin_at / 1000).astimezone().isoformat()
    yield from _running(spec)
    if is_held:
        yield job_options.HOLD, None


def _devices(request: Request) -> Typed:
    texts = {
        job_options.GPU_IDS: ",".join(request.gpu_ids),
        job_options.GPUS: "" if request.gpus == (len(request.gpu_ids) or 1) else str(request.gpus),
        job_options.PREFER: ",".join(request.prefer),
        job_options.GPU_TYPE: request.gpu_type,
        job_options.VRAM: units.write_size(request.vram) if request.vram else "",
        job_options.MEM: units.write_size(request.mem) if request.mem else "",
        job_options.CPUS: str(request.cpus) if request.cpus else "",
        job_options.TIME: "" if request.limit_s is None else units.write_duration(request.limit_s),
        job_options.ENGINE: "" if request.engine == LOCAL else request.engine,
    }
    yield from ((option, text) for option, text in texts.items() if text)
    if request.ignore_foreign:
        yield job_options.IGNORE_FOREIGN, None
    if request.evictable != jobs.NO:
        yield job_options.EVICTABLE, request.evictable


def _running(spec: JobSpec) -> Typed:
    """Return the options about its run and its end."""
    if spec.retries and set(spec.retry_on) != set(RETRIED_BY_DEFAULT):
        yield job_options.RETRY_ON, ",".join(map(jobs.write_retry_on, spec.retry_on))
    if spec.warn is not None:
        yield job_options.SIGNAL, f"{spec.warn.signal}@{units.write_duration(spec.warn.before_s)}"
    for tag in spec.tags:
        yield job_options.TAG, tag
    for name, pattern in spec.metrics:
        yield job_options.METRIC, f"{name}={pattern}"
