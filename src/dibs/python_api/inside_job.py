"""What a program says and asks when it runs as a job: numbers, parameters, and where its checkpoints are.

All of it is read from the environment and the files it names; no daemon is asked. Outside a job nothing here fails, so
that the same program can be run by hand.
"""

from __future__ import annotations

import json
import operator
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from dibs.errors import MachineError, UserError
from dibs.logs import reports


class Scalar(Protocol):
    """One number of an array library, such as a tensor without dimensions."""

    def item(self) -> float:
        """Return it as Python's own."""


Number = SupportsFloat | Scalar


def report(**numbers: Number) -> bool:
    """Add a line of numbers to the report of this attempt; return False, and do nothing, outside a job.

    Safe from many processes and threads at once: each call is one write of one line.
    """
    kept = {name: _number(name, value) for name, value in numbers.items()}
    if not kept:
        raise UserError(f"{reports.EXPECTED}, got nothing.")
    path = os.environ.get("DIBS_REPORT", "")
    if not os.path.isabs(path):
        return False
    try:
        reports.append(path, kept, datetime.now(UTC))
    except OSError as error:
        raise MachineError(f"report: cannot write to {path}: {error.strerror}.") from None
    return True


def _number(name: str, value: Any) -> float:
    reports.check_name(name)
    try:
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, bool | str | bytes):
            raise TypeError
        # 10 stays 10 in tables; a float would make it 10.0.
        return operator.index(plain) if hasattr(plain, "__index__") else float(plain)
    except (TypeError, ValueError, RuntimeError):
        # RuntimeError is what torch raises for a tensor with many elements.
        raise UserError(f"report: {name} expected one number, got {reports.short(repr(value))}.") from None


def params() -> dict[str, Any]:
    """Return the parameters of this run of a sweep; outside a sweep none."""
    text = os.environ.get("DIBS_PARAMS", "")
    try:
        told = json.loads(text) if text else {}
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise UserError(f"DIBS_PARAMS: expected a JSON object, got {reports.short(text)}.")
    return told


def checkpoint_dir(default: str | os.PathLike[str] = "checkpoint") -> Path:
    """Return the folder that stays the same over all attempts of this job; outside a job `default`. It exists."""
    folder = Path(os.environ.get("DIBS_CHECKPOINT_DIR") or default)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"checkpoint_dir: cannot make {folder}: {error.strerror}.") from None
    return folder
