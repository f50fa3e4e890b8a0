"""Options as Python keywords: `gpus=2` for `--gpus 2`, with Python values such as lists, paths and timedeltas.

A keyword has the long name of its option, with a few exceptions (`cwd`, `tags`). The types below say which values it
accepts, to a type checker and at run time. A value is converted to the word that one would type, and parsed by the
option, so Python and the command line accept and refuse the same.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from signal import Signals
from typing import Any, Protocol, TypedDict, get_args, get_origin, get_type_hints

from dibs.errors import DibsError, UserError
from dibs.model import units
from dibs.submission import job_options, options
from dibs.submission.options import Args, Option


class Handle(Protocol):
    """A job handle."""

    @property
    def id(self) -> int:
        """Return its id."""


Path = str | os.PathLike[str]
Jobs = Handle | int | str | Sequence[Handle | int | str]


class DeviceOptions(TypedDict, total=False):
    """The options of a lease and of a job; None means not given."""

    #: Exactly these GPUs: indices or UUIDs.
    gpu_ids: int | str | Sequence[int | str] | None
    #: Prefer these GPUs, if they are free.
    prefer: int | str | Sequence[int | str] | None
    gpu_type: str | None
    #: "18G".
    vram: str | None
    ignore_foreign: bool | None
    visible: str | None
    #: "2h", or a timedelta.
    time: str | timedelta | None


class Options(DeviceOptions, total=False):
    """The options of a job, as on the command line."""

    #: A count; "2:a100" asks for two of that type.
    gpus: int | str | None
    strict_gpus: bool | None
    #: True, False or "auto".
    evictable: bool | str | None
    vram_enforce: bool | None
    cpus: int | None
    mem: str | None
    name: str | None
    project: str | None
    #: A number, or low, normal, high, urgent.
    priority: int | str | None
    after: Jobs | None
    after_any: Jobs | None
    after_end: Jobs | None
    #: "22:00", "now+2h", a datetime (local time if it has no zone), or a timedelta from now.
    begin: str | datetime | timedelta | None
    retries: int | None
    #: fail, lost, oom, timeout, and exit codes.
    retry_on: int | str | Sequence[int | str] | None
    #: "USR1@2m", or a signal.
    signal: str | Signals | None
    hold: bool | None
    wait_tree: bool | None
    #: {"loss": "loss: ([0-9.]+)"}.
    metric: str | Sequence[str] | Mapping[str, str] | None
    env: Mapping[str, str | int | float] | None
    cwd: Path | None
    output: Path | None
    stderr: Path | None
    tags: str | Sequence[str] | None
    comment: str | None
    group: str
    notify: str | None
    #: "local", or the name of a cluster in the settings; and options for its own submission.
    engine: str | None
    slurm: str | None
    #: The cluster that gets the job if it would wait longer here, and how long: "30m", or a timedelta.
    overflow: str | None
    overflow_after: str | timedelta | None
    #: A script file; its text is stored, and its #DIBS and #SBATCH lines apply.
    script: Path | None
    #: The name of a preset in the settings, and a job whose options, environment and folder are taken.
    preset: str | None
    like: Handle | int | str | None
    #: Of a batch: run at most N jobs at a time, and hold the rest after N failures.
    jobs: int | None
    halt: int | None


class ManyOptions(Options, total=False):
    """The options of a job, and those that make several jobs of it."""

    array: str | Sequence[int] | None
    repeat: int | None


def read(
    given: Mapping[str, object], known: Iterable[Option[object]] = job_options.OPTIONS, types: type = ManyOptions
) -> Args:
    """Return keywords as command-line options; `known` are the allowed options, `types` has the types of keywords."""
    by_name = {name(option): option for option in known if option not in SHELL_ONLY}
    found: dict[Option[object], tuple[object, ...]] = {}
    for word, value in given.items():
        option = by_name.get(word)
        if option is None:
            raise UserError(f"there is no option {options.shown(word)}.", _nearest(word, by_name))
        if value is not None and (read := tuple(_values(option, word, value, _accepted(types).get(word, ())))):
            found[option] = read
    return Args((), found)


def name(option: Option[object]) -> str:
    """Return the keyword of an option."""
    return PYTHON_NAMES.get(option) or option.names[-1].lstrip("-").replace("-", "_")


@cache
def _accepted(types: type) -> dict[str, Collection[object]]:
    """Return the types that each keyword accepts, alone or in a list."""
    hints = {word: get_args(hint) for word, hint in get_type_hints(types).items()}
    inner = {word: [each for one in found for each in (get_args(one) or [one])] for word, found in hints.items()}
    return {word: {*inner[word], *(get_origin(one) for one in found)} for word, found in hints.items()}


def _nearest(word: str, known: Iterable[str]) -> str:
    from dibs.model import suggestions

    meant = ALIASES.get(word) or suggestions.nearest(word, known)
    return f"Did you mean {meant}?" if meant else ""


def _values(option: Option[object], word: str, value: object, accepted: Collection[object]) -> Iterator[object]:
    if option.kind is None:
        if not isinstance(value, bool):
            raise _wrong(word, "True or False", value)
        yield from [True] if value else []
        return
    if option is job_options.ENV:
        yield from _variables(word, value)
        return
    texts = []
    for each in _each(option, value, accepted):
        text = _text(each, accepted)
        if not isinstance(text, str):
            raise _wrong(word, option.kind.expected, each)
        texts.append(f"now+{text}" if option is job_options.BEGIN and isinstance(each, timedelta) else text)
    for text in texts if option.is_repeatable else [",".join(texts)]:
        yield options.read(option, word, text)


def _each(option: Option[object], value: Any, accepted: Collection[object]) -> Sequence[object]:
    """Return the values in a list or a mapping."""
    if option is job_options.ARRAY and isinstance(value, range) and len(value) and value.step > 0:
        return [f"{value.start}-{value[-1]}:{value.step}"]
    if isinstance(value, Mapping) and Mapping in accepted:
        return [f"{key}={pattern}" for key, pattern in value.items()]
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes) and Sequence in accepted
    return value if is_list else [value]


def _text(value: Any, accepted: Collection[object]) -> object:
    """Return a value as the word that one would type; unchanged if its type is not accepted."""
    if Handle in accepted:
        value = getattr(value, "id", value)
    if isinstance(value, timedelta) and timedelta in accepted:
        return f"{value.total_seconds():f}s"
    if isinstance(value, datetime) and datetime in accepted:
        return value.isoformat()
    if isinstance(value, Signals) and Signals in accepted:
        return value.name
    if isinstance(value, os.PathLike) and os.PathLike in accepted:
        return os.fspath(value)
    # Integers, also of numpy. True has an index too.
    if hasattr(value, "__index__") and not isinstance(value, bool) and int in accepted:
        return str(operator.index(value))
    return value


def _wrong(word: str, expected: str, value: object) -> UserError:
    hint = ""
    if isinstance(value, int | float) and not isinstance(value, bool) and expected in UNITS:
        # A number without a unit is refused, as on the command line.
        more, *names = UNITS[expected]
        expected += more
        hint = "Write " + " or ".join(f'"{value}{unit}"' for unit in names) + "."
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return UserError(f"{word} expected {expected}, got {options.shown(shown)}.", hint)


def _variables(word: str, value: object) -> Iterator[tuple[str, str]]:
    """Convert a mapping; its names are checked together with those of `-e`."""
    if not isinstance(value, Mapping):
        raise _wrong(word, 'a mapping such as {"SEED": "1"}', value)
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str | int | float) or isinstance(text, bool):
            raise _wrong(word, 'names and texts such as {"SEED": "1"}', {key: text})
        yield key, str(text)


#: Kinds of values that need a unit: what else they accept, and two units for the hint.
UNITS = {units.TIME_EXAMPLE: (", or a timedelta", "s", "m"), units.SIZE_EXAMPLE: ("", "G", "M")}
#: Options with another name in Python.
PYTHON_NAMES: dict[Option[object], str] = {job_options.CHDIR: "cwd", job_options.TAG: "tags"}
#: Slurm options, which exist only on the command line.
SHELL_ONLY = (job_options.DEPENDENCY, job_options.WRAP)
#: Names in other libraries, for the hint.
ALIASES = {
    "chdir": "cwd", "tag": "tags", "timeout": "time", "timeout_min": "time", "time_limit": "time", "environ": "env",
    "num_gpus": "gpus", "depends_on": "after", "dependency": "after", "at_once": "jobs", "memory": "mem",
    "job_name": "name", "label": "name", "workdir": "cwd", "stdout": "output", "error": "stderr",
}  # fmt: skip


# -- errors ---------------------------------------------------------------------------------------------------------

OPTION = re.compile(r"(?<![\w`-])--?[a-z][a-z-]*")


@contextmanager
def keyword_errors(
    known: Iterable[Option[object]] = (*job_options.OPTIONS, *job_options.BATCH_OPTIONS),
) -> Iterator[None]:
    """Replace option names in errors by keywords."""
    try:
        yield
    except DibsError as error:
        if OPTION.search(error.line()):
            error.reword(reword(error.message, known), reword(error.hint, known))
        raise


def reword(text: str, known: Iterable[Option[object]]) -> str:
    """Return a text with keywords in place of the names of options."""
    names = {typed: name(option) for option in known for typed in option.names}
    return OPTION.sub(lambda found: names.get(found[0], found[0]), text)
