"""`GET /v1/presets`, and `preset` in submissions: options of a job that the settings keep under a name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from dibs.daemon.service import Daemon
from dibs.errors import DibsError, UserError
from dibs.http_api.schemas.machine_answers import Preset, Presets
from dibs.submission import drafts, presets
from dibs.submission.drafts import Body
from dibs.submission.options import Args, Caller, Option
from dibs.system.configuration.presets import Preset as Stored

#: What a command line says of the process that it is typed in: a request says it itself, or leaves it to the daemon.
OF_THE_CALLER = ("environ", "umask")
#: Fields that replace each other: one of them in the request makes those of the preset void.
GPUS = frozenset({"gpus", "gpu_ids"})
#: Fields to which a request adds, as repeated options do.
ADDED = ("env", "metric", "tags")

Known = Mapping[str, Stored]
Given = dict[Option[object], tuple[object, ...]]


async def get_presets(daemon: Daemon) -> Presets:
    """Return the presets of the settings, with what each would set."""
    return Presets([_answer(known) for _, known in sorted(daemon.settings.presets.items())])


def _answer(known: Stored) -> Preset:
    words = [f"--{key}" if not given else f"--{key}={','.join(given)}" for key, given in known.options]
    try:
        return Preset(known.name, shlex.join(words), _fields(known), None)
    except DibsError as error:
        # Others can still be chosen.
        return Preset(known.name, shlex.join(words), {}, error.line())


def filled(body: Any, known: Known) -> Any:
    """Return the body of a submission with the fields of the presets that it names; what it says itself wins."""
    if isinstance(body, list):
        # There may be a hundred thousand, and hardly ever does one name a preset.
        return [filled(each, known) for each in body] if any(map(_names_one, body)) else body
    if not isinstance(body, dict):
        return body
    whole = dict(body)
    if "defaults" in whole:
        whole["defaults"] = filled(whole["defaults"], known)
    if isinstance(whole.get("jobs"), list):
        whole["jobs"] = filled(whole["jobs"], known)
    name = whole.pop("preset", None)
    if name is None:
        return whole
    if not isinstance(name, str):
        raise UserError("preset expected the name of a preset.")
    return layered(_fields(presets.find(name, known)), whole)


def _names_one(job: Any) -> bool:
    return isinstance(job, dict) and "preset" in job


def layered(below: Body, above: Body) -> Body:
    """Return two layers of fields as one; the upper one wins, and lists and variables of both count."""
    if GPUS & above.keys():
        below = {key: value for key, value in below.items() if key not in GPUS}
    whole = below | above
    for key in ADDED:
        if key in below and key in above:
            low, high = below[key], above[key]
            if isinstance(low, dict) and isinstance(high, dict):
                whole[key] = low | high
            elif isinstance(low, list) and isinstance(high, list):
                whole[key] = low + high
    return whole


def _fields(known: Stored) -> Body:
    """Return the fields of a submission that a preset sets."""
    found = fields_of(presets.read(known).given)
    has_folder = any(key == "chdir" for key, _ in known.options)
    return found if has_folder else {key: value for key, value in found.items() if key != "cwd"}


def fields_of(given: Given) -> Body:
    """Return the fields of a submission that these options set; the folder may be that of the daemon."""
    caller = Caller(os.environ, os.path.expanduser("~"))
    plain, told = (drafts.common(Args((), each, caller=caller), []) for each in ({}, given))
    found = {key: value for key, value in told.items() if key not in plain or value != plain[key]}
    return {key: value for key, value in found.items() if key not in OF_THE_CALLER}
