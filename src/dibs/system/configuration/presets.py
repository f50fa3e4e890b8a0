"""The tables `[presets.NAME]` of the settings: options of a job under a name of the user's choice.

Here only the shape is checked: known keys, and texts, numbers, switches or lists of them. `submission.presets` reads
the values as the options they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dibs.errors import UserError
from dibs.system.configuration.kinds import Kind
from dibs.system.configuration.tables import Key, Table

#: The names of options that a preset can have, without their dashes. A test compares them with the table of a job's
#: fields, which is too expensive to import here. A dependency or a time belongs to one submission: they are left out.
NAMES = (
    "gpus", "gpu-ids", "prefer", "gpu-type", "vram", "cpus", "mem", "time", "name", "project", "group", "priority",
    "env", "chdir", "output", "stderr", "tag", "comment", "visible", "retries", "retry-on", "signal", "wait-tree",
    "metric", "strict-gpus", "vram-enforce", "ignore-foreign", "notify", "evictable", "engine", "slurm", "overflow",
    "overflow-after",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Preset:
    """The options of one table, each with the words that one would type after it; a flag has none."""

    name: str
    options: tuple[tuple[str, tuple[str, ...]], ...]

    def get(self, key: str) -> str | None:
        """Return the value of an option as written in the file, without quotes; None if it has none."""
        words = dict(self.options).get(key)
        return None if words is None else ",".join(words) or "true"


def _check(value: object, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the words of an option; None for a flag that is off."""
    if isinstance(value, bool):
        return () if value else None
    if isinstance(value, str | int | float):
        return (str(value),)
    if not isinstance(value, list) or not value:
        raise ValueError
    if any(isinstance(each, bool) or not isinstance(each, str | int | float) for each in value):
        raise ValueError
    return tuple(str(each) for each in value)


def _from_text(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


def _preset(name: str, values: dict[str, tuple[str, ...] | None]) -> Preset:
    if not name.strip():
        raise UserError("expected a name, got nothing.")
    return Preset(name, tuple((key, words) for key, words in values.items() if words is not None))


VALUE = Kind("a text, a number, true, false, or a list of texts", _from_text, _check)
PRESETS = Table("presets", tuple(Key(name, VALUE, f"Same as the option --{name}.") for name in NAMES), _preset)
