"""Options as Python keywords: `gpus=2` for `--gpus 2`, with Python values such as lists, paths and timedeltas.

A keyword has the long name of its option, with a few exceptions (`cwd`, `tags`). Its value is converted to the word
that one would type, and parsed by the option, so Python and the command line accept and refuse the same.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from signal import Signals
from typing import Protocol, TypedDict

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


class Options(TypedDict, total=False):
    """The options of a job, as on the command line; None means not given."""

    #: A count; "2:a100" asks for two of that type.
    gpus: int | str | None
    #: Exactly these GPUs: indices or UUIDs.
    gpu_ids: int | str | Sequence[int | str] | None
    #: Prefer these GPUs, if they are free.
    prefer: int | str | Sequence[int | str] | None
    gpu_type: str | None
    ignore_foreign: bool | None
    strict_gpus: bool | None
    vram_enforce: bool | None
    visible: str | None
    cpus: int | None
    #: "32G".
    mem: str | None
    vram: str | None
    name: str | None
    project: str | None
    #: A number, or low, normal, high, urgent.
    priority: int | str | None
    after: Jobs | None
    after_any: Jobs | None
    after_end: Jobs | None
    #: "2h", or a timedelta.
    time: str | timedelta | None
    #: "22:00", "now+2h", a datetime (local time if it has no zone), or a timedelta from now.
    begin: str | datetime | timedelta | None
    retries: int | None
    retry_on: str | Sequence[str] | None
    #: "USR1@2m", or a signal.
    signal: str | Signals | None
    hold: bool | None
    wait_tree: bool | None
    #: {"loss": "loss: ([0-9.]+)"}.
    metric: str | Mapping[str, str] | None
    env: Mapping[str, str | int | float] | None
    cwd: Path | None
    output: Path | None
    stderr: Path | None
    tags: str | Sequence[str] | None
    comment: str | None
    notify: str | None
    #: A script file; its text is stored, and its #DIBS and #SBATCH lines apply.
    script: Path | None
    #: Of a batch: run at most N jobs at a time, and hold the rest after N failures.
    jobs: int | None
    halt: int | None


def read(
    given: Mapping[str, object],
    known: Iterable[Option[object]] = job_options.OPTIONS,
    spellings: Mapping[Option[object], Spelling] | None = None,
) -> Args:
    """Return keywords as command-line options.

    `known` are the allowed options; `spellings` adds conversions for options that are not a job's.
    """
    spellings = {**SPELLINGS, **(spellings or {})}
    by_name = {name(option): option for option in known if option not in SHELL_ONLY}
    found: dict[Option[object], tuple[object, ...]] = {}
    for word, value in given.items():
        option = by_name.get(word)
        if option is None:
            raise UserError(f"there is no option {options.shown(word)}.", _nearest(word, by_name))
        if value is not None and (read := tuple(_values(option, word, value, spellings.get(option, _text)))):
            found[option] = read
    return Args((), found)


def name(option: Option[object]) -> str:
    """Return the keyword of an option."""
    return PYTHON_NAMES.get(option) or option.names[-1].lstrip("-").replace("-", "_")


def _nearest(word: str, known: Iterable[str]) -> str:
    from dibs.model import suggestions

    meant = ALIASES.get(word) or suggestions.nearest(word, known)
    return f"Did you mean {meant}?" if meant else ""


def _values(option: Option[object], word: str, value: object, spell: Spelling) -> Iterator[object]:
    if option.kind is None:
        if not isinstance(value, bool):
            raise _wrong(word, "True or False", value)
        yield from [True] if value else []
        return
    if option is job_options.ENV:
        yield from _variables(word, value)
        return
    for each in _each(value) if option.is_repeatable and not isinstance(value, Mapping) else [value]:
        for text in spell(word, each, option.kind.expected):
            yield options.read(option, word, text)


def _each(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]


def _wrong(word: str, expected: str, value: object, hint: str = "") -> UserError:
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return UserError(f"{word} expected {expected}, got {options.shown(shown)}.", hint)


# -- conversions of values to the words that one would type ---------------------------------------------------------

Words = list[str]
#: Takes the keyword, its value and the expected form.
Spelling = Callable[[str, object, str], Words]


def _text(word: str, value: object, expected: str) -> Words:
    if not isinstance(value, str):
        raise _wrong(word, expected, value)
    return [value]


def number(word: str, value: object, expected: str) -> Words:
    """Convert an integer, also of numpy; the option parses strings."""
    if isinstance(value, str):
        return [value]
    try:
        # `operator.index` accepts True as 1.
        return [str(operator.index(None if isinstance(value, bool) else value))]  # type: ignore[arg-type]
    except TypeError:
        raise _wrong(word, expected, value) from None


def _list(word: str, value: object, expected: str) -> Words:
    return [",".join(text for each in _each(value) for text in number(word, each, expected))]


def _words(word: str, value: object, expected: str) -> Words:
    return [",".join(text for each in _each(value) for text in _text(word, each, expected))]


def path(word: str, value: object, expected: str) -> Words:
    """Convert a string or a `pathlib` path."""
    return _text(word, os.fspath(value) if isinstance(value, os.PathLike) else value, expected)


def _span(word: str, value: object, expected: str) -> Words:
    """Convert a duration. Refuse a number without a unit, as the command line does."""
    if isinstance(value, timedelta):
        return [_seconds(value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise _wrong(word, f"{units.TIME_EXAMPLE}, or a timedelta", value, f'Write "{value}s" or "{value}m".')
    return _text(word, value, expected)


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():f}s"


def _size(word: str, value: object, expected: str) -> Words:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise _wrong(word, expected, value, f'Write "{value}G" or "{value}M".')
    return _text(word, value, expected)


def _moment(word: str, value: object, expected: str) -> Words:
    if isinstance(value, timedelta):
        return [f"now+{_seconds(value)}"]
    return _text(word, value.isoformat() if isinstance(value, datetime) else value, expected)


def _job(word: str, value: object, expected: str) -> Words:
    # Accept a job handle without importing its class.
    found = getattr(value, "id", value)
    return number(word, found, expected)


def _signal(word: str, value: object, expected: str) -> Words:
    return _text(word, value.name if isinstance(value, Signals) else value, expected)


def _patterns(word: str, value: object, expected: str) -> Words:
    if isinstance(value, Mapping):
        return [f"{key}={pattern}" for key, pattern in value.items()]
    return _text(word, value, expected)


def _array(word: str, value: object, expected: str) -> Words:
    if isinstance(value, range) and len(value) and value.step > 0:
        return [f"{value.start}-{value[-1]}:{value.step}"]
    return [value] if isinstance(value, str) else _list(word, value, expected)


def _variables(word: str, value: object) -> Iterator[tuple[str, str]]:
    """Convert a mapping; its names are checked together with those of `-e`."""
    if not isinstance(value, Mapping):
        raise _wrong(word, 'a mapping such as {"SEED": "1"}', value)
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str | int | float) or isinstance(text, bool):
            raise _wrong(word, 'names and texts such as {"SEED": "1"}', {key: text})
        yield key, str(text)


#: Conversions for options that accept more than a string.
SPELLINGS: dict[Option[object], Spelling] = {
    job_options.GPUS: number,
    job_options.GPU_IDS: _list,
    job_options.PREFER: _list,
    job_options.CPUS: number,
    job_options.MEM: _size,
    job_options.VRAM: _size,
    job_options.PRIORITY: number,
    job_options.TIME: _span,
    job_options.AFTER: _job,
    job_options.AFTER_ANY: _job,
    job_options.AFTER_END: _job,
    job_options.BEGIN: _moment,
    job_options.RETRIES: number,
    job_options.RETRY_ON: _words,
    job_options.SIGNAL: _signal,
    job_options.METRIC: _patterns,
    job_options.CHDIR: path,
    job_options.OUTPUT: path,
    job_options.STDERR: path,
    job_options.SCRIPT: path,
    job_options.ARRAY: _array,
    job_options.REPEAT: number,
    job_options.AT_ONCE: number,
    job_options.HALT: number,
}
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
        names = {typed: name(option) for option in known for typed in option.names}
        if not OPTION.search(error.line()):
            raise
        message, hint = (
            OPTION.sub(lambda found: names.get(found[0], found[0]), text) for text in (error.message, error.hint)
        )
        raise type(error)(message, hint) from None
