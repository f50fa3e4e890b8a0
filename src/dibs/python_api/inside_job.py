"""For programs that run as a job: report numbers, read parameters, find the checkpoint directory.

Uses only the environment and the files it names, not the daemon. Outside a job nothing here fails, so that the same
program also runs by hand.

Python 3.9.
"""

from __future__ import annotations

import json
import operator
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, Union

from dibs.errors import MachineError, UserError
from dibs.logs import reports


class Scalar(Protocol):
    """A number of an array library, such as a tensor without dimensions."""

    def item(self) -> float:
        """Return it as a Python number."""


Number = Union[SupportsFloat, Scalar]


def report(**numbers: Number) -> bool:
    """Append numbers to the report of this attempt; outside a job do nothing and return False.

    Safe to call from many processes and threads: each call writes one line at once.

    >>> dibs.report(loss=0.3, step=10)
    False
    """
    kept = {name: number(name, value) for name, value in numbers.items()}
    if not kept:
        raise UserError(f"{reports.EXPECTED}, got nothing.")
    path = os.environ.get("DIBS_REPORT", "")
    if not os.path.isabs(path):
        return False
    try:
        reports.append(path, kept, datetime.now(timezone.utc))
    except OSError as error:
        raise MachineError(f"report: cannot write to {path}: {error.strerror}.") from None
    return True


def number(name: str, value: Any) -> float:
    """Return a reported value as a plain number; raise UserError if it is none."""
    reports.check_name(name)
    try:
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, (bool, str, bytes)):
            raise TypeError
        # Keep integers: a float would show 10 as 10.0.
        return operator.index(plain) if hasattr(plain, "__index__") else float(plain)
    except (TypeError, ValueError, RuntimeError):
        # torch raises RuntimeError for a tensor with several elements.
        raise UserError(f"report: {name} expected one number, got {reports.short(repr(value))}.") from None


def params() -> dict[str, Any]:
    """Return the parameters of this run; empty outside a sweep.

    >>> dibs.params()
    {}
    """
    text = os.environ.get("DIBS_PARAMS", "")
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"DIBS_PARAMS: expected a JSON object, got {reports.short(text)}.")
    return found


def checkpoint_dir(default: str | os.PathLike[str] = "checkpoint") -> Path:
    """Create and return the directory that all attempts of this job share; outside a job `default`.

    >>> (dibs.checkpoint_dir() / "state.json").name
    'state.json'
    """
    folder = Path(os.environ.get("DIBS_CHECKPOINT_DIR") or default)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"checkpoint_dir: cannot create {folder}: {error.strerror}.") from None
    return folder
