"""Edit one job as a small TOML text in $VISUAL or $EDITOR, and send only the changed fields.

If the text is invalid, nothing changes, the file is kept, and the error names its path.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Mapping

from dibs.cli import screen
from dibs.client import job_state, queries
from dibs.client.answers import ActionResult, WholeJob
from dibs.client.connection import Client
from dibs.errors import DibsError, UserError
from dibs.model import units
from dibs.submission import options

#: Used when neither variable is set.
USUAL = "vi"


def edit(queue: Client, job: WholeJob, tell: Callable[[ActionResult], None]) -> int:
    """Let the user edit the text of a job, and send the changes."""
    if job["state"] not in job_state.WAITING:
        raise UserError(
            f"job {job['id']} is {job['state']}: only jobs that wait can be edited.",
            f"The time limit of one that runs: dibs edit {job['id']} -t 4h",
        )
    before = fields(job)
    fd, path = tempfile.mkstemp(prefix=f"dibs-job-{job['id']}-", suffix=".toml")
    with open(fd, "w") as file:
        file.write(text(job["id"], before))
    try:
        _open(path)
        changes = changed(before, _read(path))
        if changes:
            tell(queries.act(queue, "edit", [str(job["id"])], changes=changes))
    except DibsError as error:
        message = f"{error.message.rstrip('.')}."
        raise type(error)(message, f"{error.hint} Nothing was changed; your text is {path}".strip()) from None
    os.unlink(path)
    if not changes:
        screen.say("nothing was changed.")
    return 0


def fields(job: WholeJob) -> dict[str, object]:
    """Return the editable fields of a job, with the names of a submission and readable values."""
    wanted = job["request"]
    limit_s, mem = job["time_limit_s"], job["mem"]
    return {
        **({"command": job["command"]} if job["argv"] is None else {"argv": job["argv"]}),
        "cwd": job["cwd"],
        "name": job["name"],
        "project": job["project"],
        "priority": job["priority"],
        **({"gpus": job["gpus"]} if not wanted["gpu_ids"] or len(wanted["gpu_ids"]) != job["gpus"] else {}),
        **({"gpu_ids": wanted["gpu_ids"]} if wanted["gpu_ids"] else {}),
        "prefer": wanted["prefer"],
        "gpu_type": wanted["gpu_type"] or "",
        "vram": "" if job["vram"] is None else _exact_size(job["vram"]),
        "cpus": job["cpus"] or 0,
        "mem": "" if mem is None else _exact_size(mem),
        "time": "" if limit_s is None else _exact_time(limit_s),
        "begin": job["begin_at"] or "",
        "after": [f"{need['id']}:{need['when']}" for need in job["after"]],
        "retries": job["retries"],
        "tags": job["tags"],
    }


def _exact_size(size: int) -> str:
    return found if units.parse_size(found := units.format_size(size)) == size else f"{size}B"


def _exact_time(seconds: float) -> str:
    return found if units.parse_duration(found := units.format_duration(seconds)) == seconds else f"{seconds:f}s"


def text(job_id: int, values: Mapping[str, object]) -> str:
    """Return the text for the editor."""
    lines = [
        f"# Job {job_id}. What you change is changed when you leave the editor; a line that you remove goes back",
        '# to its default. An empty text means none. after = ["12:done"]: done, any or end.',
        "",
        *(f"{name} = {_toml(value)}" for name, value in values.items()),
    ]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    import json

    # TOML reads JSON's strings, integers and lists of strings, except escaped surrogate pairs and a raw DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _open(path: str) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or USUAL
    try:
        code = subprocess.run([*shlex.split(editor), path], check=False).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f'cannot start the editor "{options.shown(editor)}": {why}.', "Set EDITOR.") from None
    if code:
        raise UserError(f'the editor "{options.shown(editor)}" ended with {code}.')


def _read(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f'expected lines such as name = "vit": {error}.') from None
    except OSError as error:
        raise UserError(f"cannot read the text back: {error.strerror}.") from None


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Return the changed fields of a submission; a missing field is reset to its default."""
    for name in after:
        if name not in (*before, *NAMES):
            raise UserError(f'there is no field "{options.shown(name)}".', options.nearest(name, (*before, *NAMES)))
    # Compare types too: in Python, True == 1.
    differ = [
        name
        for name in {**before, **after}
        if (type(before.get(name)), before.get(name)) != (type(after.get(name)), after.get(name))
    ]
    if {"command", "argv"} & {*differ} and not {"command", "argv"} & after.keys():
        raise UserError("expected a command, got none.")
    # One of each pair is enough; the other would contradict it.
    dropped = {name for name in ("command", "argv", "gpus", "gpu_ids") if name not in after}
    paired = {"command": "argv", "argv": "command", "gpus": "gpu_ids", "gpu_ids": "gpus"}
    wanted = [name for name in differ if not (name in dropped and paired[name] in after)]
    if before.keys() >= GPUS and GPUS.intersection(differ):
        # Together they mean a count out of a list; one of them alone means something else.
        wanted = list(dict.fromkeys((*wanted, *sorted(GPUS))))
    return {FIELD.get(name, name): _value(name, after.get(name)) for name in wanted}


#: Fields with another name in the API, and those that only some jobs have in their text.
FIELD = {"time": "time_limit_s", "begin": "begin_at"}
NAMES = ("command", "argv", "gpus", "gpu_ids")
GPUS = {"gpus", "gpu_ids"}


def _value(name: str, value: object) -> object:
    if value in ("", None):
        return None
    try:
        if name == "time":
            return units.parse_duration(str(value))
        if name in ("mem", "vram"):
            return units.parse_size(str(value))
        if name == "after":
            return [_need(str(word)) for word in value] if isinstance(value, list) else value
        if name == "begin":
            return _begin(value)
    except UserError as error:
        raise UserError(f"{name}: {error.message}", error.hint) from None
    return value


def _need(word: str) -> dict[str, str]:
    select, colon, when = word.rpartition(":")
    is_told = bool(colon) and when in ("done", "any", "end")
    return {"select": select, "when": when} if is_told else {"select": word, "when": "done"}


def _begin(value: object) -> str:
    from datetime import datetime

    from dibs.submission import times

    word = value.isoformat() if isinstance(value, datetime) else str(value)
    return times.parse(word, datetime.now()).isoformat()
