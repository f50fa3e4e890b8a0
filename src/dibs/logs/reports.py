"""The metrics that a job reports: one JSON object per line in the file that `$DIBS_REPORT` names.

Any program may append lines; other lines are ignored.

Python 3.9.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Optional

from dibs.errors import UserError
from dibs.logs import tails

if TYPE_CHECKING:
    from typing import TypeGuard

#: Not a metric: the time at which the line was written.
MOMENT = "at"
#: Bytes at the end of the file in which the last values are searched.
TAIL_BYTES = 65536
#: Bytes at the end of the file from which series are read, and points per series: more than a screen shows.
COURSE_BYTES = 8 * 1024 * 1024
MOST_POINTS = 2000
#: Maximum number of names shown; a report is for tables, not for tensors.
MOST_NAMES = 100

#: Maximum characters of a name, which is a column header.
LONGEST_NAME = 200
EXPECTED = "expected numbers such as loss=0.3 step=10"

#: The largest float.
MOST = 1.7976931348623157e308

#: None: the value is not finite, which JSON cannot represent.
Numbers = dict[str, Optional[float]]
#: The time of writing (None if the line has none), and the value.
Point = tuple[Optional[str], Optional[float]]
#: Minimum, maximum, mean and number of a metric's values.
Summary = tuple[float, float, float, int]


def check_name(name: str) -> None:
    """Raise an error if a name cannot be a column header."""
    if not name or not name.isprintable() or " " in name or len(name) > LONGEST_NAME:
        raise UserError(f'{EXPECTED}, got the name "{short(name)}".')
    if name == MOMENT:
        raise UserError(f"{EXPECTED}; {name} is the time of the report itself.", "Choose another name.")


def short(text: str) -> str:
    """Return input shortened for a one-line error message."""
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def append(path: str, numbers: Mapping[str, float], at: datetime) -> None:
    """Append a line in one write, so that lines of several processes do not mix."""
    kept = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    moment = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
    line = json.dumps({MOMENT: moment, **kept}).encode() + b"\n"
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def last(path: str) -> Numbers | None:
    """Return the last value of each metric; None if nothing was reported."""
    return latest(tails.read(path, TAIL_BYTES))


def latest(tail: bytes) -> Numbers | None:
    """Return the last value of each metric in some lines; the first line may be incomplete."""
    found: Numbers = {}
    for line in tail.split(b"\n"):
        for name, value in _numbers(_told(line)).items():
            found.pop(name, None)
            found[name] = value
    kept = list(found.items())[-MOST_NAMES:]
    return dict(kept) or None


def summaries(tail: bytes) -> dict[str, Summary]:
    """Return the summary of all finite values of each metric in some lines."""
    found: dict[str, Summary] = {}
    for line in tail.split(b"\n"):
        for name, value in _numbers(_told(line)).items():
            if value is not None:
                found[name] = summed(found.get(name), value)
    return found


def summed(summary: Summary | None, value: float) -> Summary:
    """Return a summary with one more value; None: this is the first value."""
    least, greatest, mean, count = summary or (value, value, 0.0, 0)
    count += 1
    # Divide before adding: the sum of two large numbers may overflow.
    return min(least, value), max(greatest, value), mean + (value / count - mean / count), count


def courses(tail: bytes, most: int = MOST_POINTS) -> dict[str, list[Point]]:
    """Return the series of each metric, thinned out but always with its last point."""
    found: dict[str, list[Point]] = {}
    for line in tail.split(b"\n"):
        told = _told(line)
        at = _moment(told.get(MOMENT))
        for name, value in _numbers(told).items():
            if name in found or len(found) < MOST_NAMES:
                found.setdefault(name, []).append((at, value))
    return {name: _thinned(points, most) for name, points in found.items()}


def _thinned(points: list[Point], most: int) -> list[Point]:
    """Return every n-th point, counted from the last."""
    step = -(-len(points) // most)
    return points[::-step][::-1]


def _moment(told: object) -> str | None:
    """Return the time at which a line was written; None if it has none or another format."""
    try:
        return told if isinstance(told, str) and datetime.fromisoformat(told) else None
    except ValueError:
        return None


def _told(line: bytes) -> dict[str, object]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _numbers(told: Mapping[str, object]) -> Numbers:
    return {name: _finite(value) for name, value in told.items() if name != MOMENT and _is_number(value)}


def _is_number(value: object) -> TypeGuard[float | None]:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _finite(value: float | None) -> float | None:
    # JSON allows integers of any length; tables do not.
    return value if value is not None and abs(value) < MOST and math.isfinite(value) else None


def shown(numbers: Mapping[str, float | None]) -> str:
    """Return values for display: `loss=0.3 step=10`."""
    return " ".join(f"{name}={'nan' if value is None else f'{value:.6g}'}" for name, value in numbers.items())
