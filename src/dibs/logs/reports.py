"""The metrics that a job reports: one JSON object per line in the file that `$DIBS_REPORT` names.

Any program may append lines; other lines are ignored.

Python 3.9.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Optional

from dibs.errors import UserError
from dibs.logs import tails
from dibs.system.lean import closing_fd

if TYPE_CHECKING:
    from typing import TypeGuard

#: Not a metric: the time at which the line was written.
MOMENT = "at"
#: Names that count the progress of a run; the first one in a line is the step of its other values.
STEPS = ("step", "global_step", "iteration", "iter", "epoch")
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
#: The time of writing and the step (None if the line has none), and the value.
Point = tuple[Optional[str], Optional[float], Optional[float]]
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
    with closing_fd(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)) as fd:
        os.write(fd, line)


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
        at, numbers = _moment(told.get(MOMENT)), _numbers(told)
        step = _step(numbers)
        for name, value in numbers.items():
            if name in found or len(found) < MOST_NAMES:
                found.setdefault(name, []).append((at, step, value))
    return {name: _thinned(points, most) for name, points in found.items()}


def curve(lines: bytes, metric: str = "") -> list[tuple[int, float]]:
    """Return step and value of a metric, by default of the first one in each line; without a step, lines are counted.

    The step of a line is the first of `STEPS` that it has. Values that are not finite count as infinitely bad, so they
    are returned as NaN.
    """
    found: list[tuple[int, float]] = []
    for line in lines.split(b"\n"):
        numbers = _numbers(_told(line))
        name = metric or next((name for name in numbers if name not in STEPS), "")
        if name not in numbers:
            continue
        step = _step(numbers)
        value = numbers[name]
        found.append((len(found) + 1 if step is None else int(step), math.nan if value is None else value))
    return found


def extend_curve(
    curve: list[tuple[float, float]], lines: Sequence[Numbers], metric: str, step: float | None
) -> float | None:
    """Append the values of a metric in further lines to a curve; return the last step that was named, None if none was.

    A step holds until the next one is named, because a log may print it in a line of its own.
    """
    for numbers in lines:
        step = next((numbers[word] for word in STEPS if numbers.get(word) is not None), step)
        if metric in numbers:
            value = numbers[metric]
            curve.append((len(curve) + 1 if step is None else step, math.nan if value is None else value))
    return step


def records(lines: bytes) -> list[dict[str, object]]:
    """Return the objects in some lines; other lines are left out."""
    return [told for line in lines.split(b"\n") if (told := _told(line))]


def track(
    told: Iterable[Mapping[str, object]], metric: str, began: str | None = None, *, is_time: bool = False
) -> list[tuple[float, float]]:
    """Return the finite values of a metric over its steps, or over the seconds since `began` or the first line.

    Without a step, lines are counted; a line without a time, or one whose place is before that of an earlier line, such
    as after a restart from a checkpoint, is left out or replaces what follows it.
    """
    found: list[tuple[float, float]] = []
    zero = None if began is None else _seconds(began)
    for each in told:
        value = each.get(metric)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or _finite(value) is None:
            continue
        if is_time:
            at = _seconds(each.get(MOMENT))
            if at is None:
                continue
            zero = at if zero is None else zero
            place = at - zero
        else:
            step = next((each[word] for word in STEPS if isinstance(each.get(word), (int, float))), None)
            place = float(len(found) + 1 if step is None else step)  # type: ignore[arg-type]
        while found and found[-1][0] >= place:
            found.pop()
        found.append((place, float(value)))
    return found


def thinned(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return at most about `most` points of a curve: of each part its lowest and its highest, so that peaks stay."""
    if len(points) <= most:
        return points
    parts = max(1, most // 2)
    found: list[tuple[float, float]] = [points[0]]
    for part in range(parts):
        own = points[len(points) * part // parts : len(points) * (part + 1) // parts]
        ends = {id(point): point for point in (min(own, key=_height), max(own, key=_height))}
        found += sorted(ends.values())
    found.append(points[-1])
    return sorted(dict(found).items())


def _height(point: tuple[float, float]) -> float:
    return point[1]


def _seconds(told: object) -> float | None:
    """Return a time of writing in seconds; None if it has another format."""
    try:
        return datetime.fromisoformat(told.replace("Z", "+00:00")).timestamp() if isinstance(told, str) else None
    except (ValueError, OverflowError):
        return None


def _step(numbers: Numbers) -> float | None:
    return next((numbers[word] for word in STEPS if numbers.get(word) is not None), None)


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
