"""`like` in submissions: an existing job as the template of new ones, as `--like` is on the command line.

The fields of that job are set below those of the request; its environment and folder come with `environ_of`. The notify
command may contain a token and is not copied.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from dibs.daemon.service import Daemon
from dibs.errors import UserError
from dibs.http_api import presets
from dibs.http_api.schemas import wire
from dibs.jobqueue.thread import now_ms
from dibs.model.jobs import JobId
from dibs.model.serialization import MASK
from dibs.store import call_files
from dibs.store.writer import Reader
from dibs.submission.drafts import Body

#: A request with one of these fields has its own command.
COMMANDS = frozenset({"command", "argv", "script"})

Models = Mapping[int, Body]


async def filled(daemon: Daemon, body: Any) -> Any:
    """Return the body of a submission with the fields of the presets and of the jobs that it names."""
    whole = presets.filled(body, daemon.settings.presets)
    return _filled(whole, await _models(daemon, whole), takes_command=True)


async def defaults(daemon: Daemon, told: Any) -> Any:
    """Return the common fields of the runs of a sweep likewise: command and names are those of the sweep."""
    whole = presets.filled(told, daemon.settings.presets)
    models = await _models(daemon, whole)
    nameless = {job_id: {key: value for key, value in one.items() if key != "name"} for job_id, one in models.items()}
    return _filled(whole, nameless, takes_command=False)


async def _models(daemon: Daemon, body: Any) -> Models:
    ids = {*_named(body)}
    return await daemon.ask(lambda reader: {one: _fields(reader, JobId(one)) for one in ids}) if ids else {}


def _named(body: Any) -> Iterator[int]:
    """Yield the jobs that a submission names: itself, its defaults, and each of its jobs."""
    jobs = body if isinstance(body, list) else body.get("jobs") if isinstance(body, dict) else None
    whole = [body, body.get("defaults")] if isinstance(body, dict) else []
    # There may be a hundred thousand.
    for each in [*whole, *(jobs if isinstance(jobs, list) else ())]:
        if isinstance(each, dict) and (like := each.get("like")) is not None:
            if type(like) is not int or not 0 < like < 2**62:
                raise UserError("like expected the number of a job.")
            yield like


def _filled(body: Any, models: Models, *, takes_command: bool) -> Any:
    if not models or not isinstance(body, (dict, list)):
        return body
    if isinstance(body, list):
        return [_filled(each, models, takes_command=takes_command) for each in body]
    whole = dict(body)
    if "defaults" in whole:
        # Every job that uses them has its own command.
        whole["defaults"] = _filled(whole["defaults"], models, takes_command=False)
    if "jobs" in whole:
        whole["jobs"] = _filled(whole["jobs"], models, takes_command=takes_command)
    like = whole.pop("like", None)
    if like is None:
        return whole
    # null is the default, which here is the command of the template.
    whole = {key: value for key, value in whole.items() if key not in COMMANDS or value is not None}
    below = models[like]
    if not takes_command or COMMANDS & whole.keys():
        below = {key: value for key, value in below.items() if key not in COMMANDS}
    elif (argv := below.get("argv")) is not None and call_files.is_call(wire.convert(argv, list[str])):
        raise UserError(f"job {like} is a call from Python, which cannot be repeated here.", "Send a command.")
    return presets.layered({**below, "environ_of": like}, whole)


def _fields(reader: Reader, job_id: JobId) -> Body:
    """Return the fields of a submission like a job, without its environment and folder."""
    # Imported late: most submissions name no job.
    from dibs.submission import command_line, job_options, options

    spec = reader.job(job_id).spec
    words = command_line.words(spec, now_ms())
    args = options.parse("add", job_options.OPTIONS, words, takes_command=True)
    # Its folder comes with its environment, and may be gone.
    args.given.pop(job_options.CHDIR, None)
    args.given[job_options.ENV] = tuple(pair for pair in args.all(job_options.ENV) if pair[1] != MASK)
    found = {key: value for key, value in presets.fields_of(args.given).items() if key != "cwd"}
    if (script := reader.script(spec.script_id)) is not None:
        return {**found, "argv": list(spec.argv or ()), "script": b64encode(script).decode()}
    return {**found, **({"command": spec.command} if spec.argv is None else {"argv": list(spec.argv)})}
