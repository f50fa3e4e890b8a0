"""Submit more runs of a sweep that differ from an existing run in some parameters.

A run stores its parameters as data and its command as text; the spelling of a value (`1.0`, `True`) is only in the
text. So the spelling is searched there, and the command is first rebuilt with the run's own values. If the result
differs, the command was not made from these parameters, and no new command can be made.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dibs.errors import UserError
from dibs.model.fields import JobSpec
from dibs.sweeps import templates, values
from dibs.sweeps.grid import Point
from dibs.sweeps.records import Sweep
from dibs.sweeps.values import Data, Value

#: Maximum number of decimals to try when searching for a spelling.
MOST_DIGITS = 4


class Further(NamedTuple):
    """A run to submit: its point, its command and its folder."""

    point: Point
    command: str | tuple[str, ...]
    folder: str | None


def further(sweep: Sweep, spec: JobSpec, changes: Sequence[Mapping[str, Data]], first: int) -> list[Further]:
    """Return runs like an existing one with these changes, with indices from `first` on."""
    own = _point(spec)
    writer = templates.Writer(templates.parse(sweep.argv or sweep.command), sweep.folder)
    if writer.command(own) != (spec.argv if sweep.argv is not None else spec.command):
        raise UserError(
            f'the command of run {own.index} is not what "{sweep.command[:200]}" makes of its parameters.',
            "Submit the others by hand, with dibs sweep.",
        )
    known = dict(zip(own.names, own.values, strict=True))
    found: list[Further] = []
    for index, change in enumerate(changes, first):
        for name in change:
            if name not in known:
                raise UserError(f'expected parameters of the run ({", ".join(known)}), got "{name[:80]}".')
        row = known | {name: values.value_of_data(data) for name, data in change.items()}
        point = Point(index, own.names, tuple(row.values()))
        found.append(Further(point, writer.command(point), writer.folder(point)))
    return found


def _point(spec: JobSpec) -> Point:
    """Return the point of a run, with its values spelled as in its command."""
    told: dict[str, Data] = json.loads(spec.params or "{}")
    text = spec.command if spec.argv is None else " ".join(spec.argv)
    return Point(spec.index or 0, tuple(told), tuple(_spelled(data, text) for data in told.values()))


def _spelled(data: Data, text: str) -> Value:
    # Longest first: `1` also occurs in `1.0`.
    for spelling in sorted(_spellings(data), key=len, reverse=True):
        if spelling in text:
            return Value(data, spelling)
    return values.value_of_data(data)


def _spellings(data: Data) -> Iterator[str]:
    """Yield common spellings of a value that `values.value_of_word` parses back to it."""
    if isinstance(data, bool | int | float):
        yield repr(data)
    if isinstance(data, float):
        for digits in range(MOST_DIGITS + 1):
            for spelling in (f"{data:.{digits}f}", f"{data:.{digits}e}", f"{data:.{digits}e}".replace("e-0", "e-")):
                if float(spelling) == data:
                    yield spelling
    yield values.write(data)
