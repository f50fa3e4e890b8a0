"""Detect whether a command, a script or the Python file it runs selects devices itself, which is the job of dibs.

This only inspects the text. What a program really uses is detected while it runs.

Pure.
"""

from __future__ import annotations

import re

from dibs.model.environment_names import DEVICE_NAMES

_NAME = "(" + "|".join(DEVICE_NAMES) + ")"
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
        f"{where} sets {name} itself, so the job may use GPUs that it was not given; dibs sets it for each job. "
        "Leave it out, or let --strict-gpus end the job when it does"
    )
