"""Hints about variables that select devices: those set in the submitter's shell, and those the job sets itself."""

from __future__ import annotations

import os
from binascii import a2b_base64
from collections.abc import Mapping
from pathlib import Path

from dibs.model import environment_names
from dibs.submission import device_variables
from dibs.system import commands

#: In the state folder: the variables that the last hint was about.
TOLD_FILE = "told.devices"


def about_shell(home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return a hint that jobs ignore the shell's device selection; once per selection."""
    chosen = environment_names.chosen(environ)
    # Inside a job or a lease dibs itself set them.
    if not chosen or "DIBS_GPU_INDICES" in environ:
        return []
    told = home / TOLD_FILE
    try:
        if told.read_bytes() == os.fsencode(chosen):
            return []
    except FileNotFoundError:
        pass
    try:
        told.write_bytes(os.fsencode(chosen))
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
    found = {where: device_variables.assigned(text) for where, text in texts.items()}
    return [device_variables.warning(where, name) for where, name in found.items() if name]
