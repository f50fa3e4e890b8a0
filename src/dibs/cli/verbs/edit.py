"""`dibs edit`: change waiting jobs with options, or one job as a small TOML text in $VISUAL or $EDITOR.

Only the changed fields of the text are sent. If it is invalid, nothing changes, the file is kept, and the error names
its path.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from datetime import datetime

from dibs.cli import editor, job_action, screen
from dibs.client import connection, job_state, queries
from dibs.client.answers import WholeJob
from dibs.errors import UserError
from dibs.model import units
from dibs.submission import drafts, job_options, options
from dibs.submission.options import Args, Option
from dibs.system import commands

SUMMARY = "Change waiting jobs, with the options of add or in your editor."
USAGE = ("[OPTIONS] SELECTOR...",)
COMMAND = Option(("--command",), "New command, as one string.", options.TEXT, '"COMMAND"')
UNSET = Option(
    ("--unset",), "Reset an option to its default; give its long name without dashes.", options.TEXT, "NAME",
    is_repeatable=True,
)  # fmt: skip
EXAMPLES = (
    "dibs edit 12 --priority high -t 4h",
    "dibs edit name:vit*+queued -g 2 --unset after",
    "dibs edit 100-199 -j 2",
    "dibs edit 12",
)
OPTIONS: tuple[Option[object], ...] = (*drafts.EDITABLE, COMMAND, UNSET, options.QUIET, options.JSON)

#: Fields of the text that are parsed like the value of an option.
PARSED: dict[str, Option[object]] = {
    "time": job_options.TIME, "mem": job_options.MEM, "vram": job_options.VRAM, "begin": job_options.BEGIN,
}  # fmt: skip
#: Fields with another name in the API.
KEYS = {"time": "time_limit_s", "begin": "begin_at"}
#: Fields of which only some jobs have both in their text; one of each pair is enough.
PAIRS = {"command": "argv", "argv": "command", "gpus": "gpu_ids", "gpu_ids": "gpus"}


def main(args: Args) -> None:
    """Apply the options to the selected jobs, or open a single job in an editor."""
    queries.require_words("edit", args.words)
    changes = changed_by(args)
    queue = connection.connect(os.environ)
    if changes:
        job_action.tell(queries.act(queue, "edit", args.words, changes=changes), args)
    else:
        _edit_text(queue, queries.find_one(queue, "edit", args.words), args)


def changed_by(args: Args) -> dict[str, object]:
    """Return the fields that the options change."""
    changes = drafts.changed_by(args)
    if (command := args.get(COMMAND)) is not None:
        commands.check_text(command, "--command")
        changes["command"] = command
    for word in args.all(UNSET):
        changes[_unset(word, changes)] = None
    return changes


def _unset(word: str, changes: dict[str, object]) -> str:
    known = {name.lstrip("-"): field for option, field in drafts.EDITABLE.items() for name in option.names}
    field = known.get(word.lstrip("-"))
    if field is None:
        near = options.nearest(word, known)
        raise UserError(f'--unset expected the name of an option, got "{options.shown(word)}".', near)
    if field in changes:
        raise UserError(f"--unset {word} contradicts --{word.lstrip('-')}.", "Leave one of them out.")
    return field


# -- one job in an editor ---------------------------------------------------------------------------------------------


def _edit_text(queue: connection.Client, job: WholeJob, args: Args) -> None:
    """Let the user edit the text of a job, and send the changes."""
    if job["state"] not in job_state.WAITING:
        raise UserError(
            f"job {job['id']} is {job['state']}: only waiting jobs can be edited.",
            "" if job_state.is_finished(job) else f"To change its time limit: dibs edit {job['id']} -t 4h",
        )
    before = text_fields(job)

    def send(data: bytes) -> bool:
        changes = changed(before, _parse(data))
        if changes:
            job_action.tell(queries.act(queue, "edit", [str(job["id"])], changes=changes), args)
        return bool(changes)

    instead = f"Name what to change: dibs edit {job['id']} --priority high -t 4h"
    if not editor.edit(text(job["id"], before), f"dibs-job-{job['id']}-", send, instead):
        screen.say("nothing was changed.")


def text_fields(job: WholeJob) -> dict[str, object]:
    """Return the editable fields of a job, with the names of a submission and readable values."""
    wanted = job["request"]
    return {
        **({"command": job["command"]} if job["argv"] is None else {"argv": job["argv"]}),
        "cwd": job["cwd"],
        "name": job["name"],
        "project": job["project"],
        "group": job["group"],
        "priority": job["priority"],
        **({"gpus": job["gpus"]} if not wanted["gpu_ids"] or len(wanted["gpu_ids"]) != job["gpus"] else {}),
        **({"gpu_ids": wanted["gpu_ids"]} if wanted["gpu_ids"] else {}),
        "prefer": wanted["prefer"],
        "gpu_type": wanted["gpu_type"] or "",
        "vram": "" if job["vram"] is None else units.write_size(job["vram"]),
        "cpus": job["cpus"] or 0,
        "mem": "" if job["mem"] is None else units.write_size(job["mem"]),
        "time": "" if job["time_limit_s"] is None else units.write_duration(job["time_limit_s"]),
        "begin": job["begin_at"] or "",
        "after": [f"{need['id']}:{need['when']}" for need in job["after"]],
        "retries": job["retries"],
        "tags": job["tags"],
    }


def text(job_id: int, values: Mapping[str, object]) -> str:
    """Return the text for the editor."""
    lines = [
        f"# Job {job_id}. Changes take effect when you save and leave the editor. A line that you remove is reset",
        '# to its default. An empty text means none. after = ["12:done"]: done, any or end.',
        "",
        *(f"{name} = {_toml(value)}" for name, value in values.items()),
    ]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    import json

    # TOML reads JSON's strings, integers and lists of strings, except escaped surrogate pairs and a raw DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parse(data: bytes) -> dict[str, object]:
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f'expected lines such as name = "vit": {error}.') from None


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Return the changed fields of a submission; a missing field is reset to its default."""
    for name in after:
        if name not in (*before, *PAIRS):
            raise UserError(f'there is no field "{options.shown(name)}".', options.nearest(name, (*before, *PAIRS)))
    # Compare types too: in Python, True == 1.
    differ = [
        name
        for name in {**before, **after}
        if (type(before.get(name)), before.get(name)) != (type(after.get(name)), after.get(name))
    ]
    if {"command", "argv"} & {*differ} and not {"command", "argv"} & after.keys():
        raise UserError("expected a command, got none.")
    # A field that was removed for the other one of its pair is not reset: that would contradict the other.
    wanted = [name for name in differ if name in after or PAIRS.get(name) not in after]
    if before.keys() >= {"gpus", "gpu_ids"} and {"gpus", "gpu_ids"}.intersection(differ):
        # Together they mean a count out of a list; one of them alone means something else.
        wanted = list(dict.fromkeys((*wanted, "gpu_ids", "gpus")))
    return {KEYS.get(name, name): _value(name, after.get(name)) for name in wanted}


def _value(name: str, value: object) -> object:
    if value in ("", None):
        return None
    if name == "after" and isinstance(value, list):
        return [_need(str(word)) for word in value]
    if name not in PARSED:
        return value
    found = options.read(PARSED[name], f"{name}:", str(value))
    return found.isoformat() if isinstance(found, datetime) else found


def _need(word: str) -> dict[str, str]:
    select, colon, when = word.rpartition(":")
    has_condition = bool(colon) and when in ("done", "any", "end")
    return {"select": select, "when": when} if has_condition else {"select": word, "when": "done"}
