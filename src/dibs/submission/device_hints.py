"""Hints about variables that select devices: those set in the submitter's shell, and those the job sets itself.

A command, a script or the Python file it runs should not select devices, which dibs does. Only the text is inspected;
what a program really uses is detected while it runs.
"""

from __future__ import annotations

import os
import re
from binascii import a2b_base64
from collections.abc import Mapping
from pathlib import Path

from dibs.model import environment_names
from dibs.system import commands

#: In the state folder: the variables that the last hint was about.
TOLD_FILE = "told.devices"

_NAME = "(" + "|".join(environment_names.DEVICE_NAMES) + ")"
#: Shell: `NAME=0 python x.py`, `export NAME=0`. Python: `os.environ["NAME"] = "0"` and similar.
_SHELL = rf"(?:^|[\s;&|(`])(?:export\s+|env\s+)?{_NAME}=(?!=)"
_PYTHON = rf"""environb?\s*\[\s*b?["']{_NAME}["']\s*\]\s*=(?!=)|(?:putenv|setdefault)\s*\(\s*b?["']{_NAME}["']"""
_ASSIGNMENT = re.compile(f"{_SHELL}|{_PYTHON}", re.MULTILINE)

#: Errors of frameworks that expect a number where CUDA also allows a UUID.
_BLIND = re.compile(
    r"invalid literal for int\(\).*(?:GPU|MIG)-"
    r"|(?:invalid|cannot parse|could not convert|unknown).{0,40}(?:GPU|MIG)-[0-9a-f]",
    re.IGNORECASE,
)
BLIND = (
    "The program seems not to understand UUIDs in CUDA_VISIBLE_DEVICES: submit it with --visible index "
    '(or set visible = "index").'
)


def about_shell(home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return a hint that jobs ignore the shell's device selection; once per selection."""
    chosen = environment_names.chosen(environ)
    # Inside a job or a lease dibs itself set them.
    if not chosen or "DIBS_GPU_INDICES" in environ:
        return []
    record = home / TOLD_FILE
    try:
        if record.read_bytes() == os.fsencode(chosen):
            return []
    except FileNotFoundError:
        pass
    try:
        record.write_bytes(os.fsencode(chosen))
    except OSError:
        # It cannot be recorded, so the hint is repeated next time.
        pass
    return [f"{chosen} is set here, but jobs do not see it: dibs chooses their GPUs (--gpu-ids, --prefer)"]


def about_assignment(body: Mapping[str, object]) -> list[str]:
    """Return a hint that a job selects devices itself, if its command, script or Python file shows that."""
    jobs, defaults = body.get("jobs"), body.get("defaults")
    # A batch of different commands would produce one hint per command.
    job = jobs[0] if isinstance(jobs, list) and len(jobs) == 1 else {}
    body = {**(defaults if isinstance(defaults, dict) else {}), **job}
    command, argv, script = body.get("command"), body.get("argv"), body.get("script")
    words = [command] if isinstance(command, str) else argv if isinstance(argv, list) else []
    cwd = str(body.get("cwd") or ".")
    texts = {"the command": " ".join(words)}
    if isinstance(script, str):
        texts = {"the script": a2b_base64(script).decode(errors="replace")}
    elif path := commands.python_file(texts["the command"].split(), cwd):
        texts[path] = commands.beginning(path).decode(errors="replace")
    found = {where: assigned(text) for where, text in texts.items()}
    return [warning(where, name) for where, name in found.items() if name]


def is_blind_to_uuids(text: str) -> bool:
    """Tell whether a log shows that the program cannot parse the UUID of a GPU."""
    return _BLIND.search(text) is not None


def assigned(text: str) -> str | None:
    """Return the device variable that a text assigns; None if it assigns none."""
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = _ASSIGNMENT.search(plain)
    return next((name for name in found.groups() if name), None) if found else None


def warning(where: str, name: str) -> str:
    """Return the note for the submitter."""
    return (
        f"{where} sets {name} itself, so the job may use GPUs that it was not assigned. dibs sets it for each job: "
        "leave it out, or add --strict-gpus to stop the job if it uses others"
    )
