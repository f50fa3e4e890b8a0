"""Translate `#SBATCH` lines into dibs options: Slurm's names, units and `%` placeholders.

Words in, words out; the result is parsed by the option table like any other words. Options that one machine cannot
honour are returned unchanged; more than one node is refused, because the script depends on it.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dibs.errors import UserError
from dibs.model import path_templates, units

SHORT = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir", "d":
    "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name", "k":
    "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "O":
    "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe",
    "t": "time", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
#: Options without a following value; some take a value after "=".
FLAGS = frozenset(
    {"hold", "no-kill", "overcommit", "quiet", "oversubscribe", "verbose", "wait", "requeue", "no-requeue", "exclusive"}
    | {"contiguous", "spread-job", "use-min-nodes", "test-only", "parsable", "ignore-pbs", "reboot", "get-user-env"}
    | {"nice", "propagate"}
)
#: Retries for a job that Slurm would requeue after a machine crash.
REQUEUES = 3
#: Default lead time of `--signal` in seconds.
SIGNAL_S = 60

CLOCKS = {"midnight": "00:00", "noon": "12:00", "teatime": "16:00"}
TIME = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Place:
    """Values of the user and host placeholders in a path."""

    user: str = ""
    host: str = ""


class Translated(NamedTuple):
    """The dibs words for a line, and the options that cannot be honoured."""

    words: tuple[str, ...]
    left: tuple[str, ...]


def translate(words: Sequence[str], place: Place) -> Translated:
    """Translate the options of one line."""
    ours: list[str] = []
    left: list[str] = []
    for name, value, typed in _each(words):
        found = _meaning(name, value, place)
        if found is None:
            left.append(typed)
        else:
            ours += found
    return Translated(tuple(ours), tuple(left))


def _each(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the options like `_options`, but with the parts of `--gres=gpu:2,nvme:1` separated."""
    for name, value, typed in _options(words):
        parts = value.split(",") if name == "gres" else []
        yield from [(name, part, f"--gres={part}") for part in parts] if len(parts) > 1 else [(name, value, typed)]


def _options(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the long name of each option, its value, and both as typed."""
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and word[1:2] in SHORT:
            name, value = SHORT[word[1]], word[2:].removeprefix("=")
            equals = value
        else:
            raise UserError(f'expected an option of sbatch, got "{word[:80]}".')
        if not equals and name not in FLAGS and queue and not queue[-1].startswith("-"):
            value = queue.pop()
            word += f" {value}"
        yield name, value, word


def _meaning(name: str, value: str, place: Place) -> tuple[str, ...] | None:
    """Return the dibs words for one option; None: it cannot be honoured."""
    if name in PLAIN:
        return (f"{PLAIN[name]}={value}",)
    if name in PATHS:
        return (f"{PATHS[name]}={path(value, place)}",)
    reading = READ.get(name)
    return None if reading is None else reading(value)


PLAIN = {
    "job-name": "--name", "array": "--array", "dependency": "--dependency", "chdir": "--chdir", "workdir": "--chdir",
    "cpus-per-task": "--cpus",
}  # fmt: skip
PATHS = {"output": "--output", "error": "--stderr"}


def path(text: str, place: Place) -> str:
    """Translate a Slurm path into a dibs template."""
    names = {
        "j": "{id}", "J": "{id}", "A": "{array}", "a": "{index}", "x": "{name}", "u": path_templates.escape(place.user),
        "N": path_templates.escape(place.host), "n": "0", "t": "0", "s": "batch", "%": "%",
    }  # fmt: skip

    def ours(piece: re.Match[str]) -> str:
        found = names.get(piece[2], piece[0])
        if piece[1] and piece[2] in "jJAa":
            return found.replace("}", f":0{min(int(piece[1]), 10)}}}")
        return found

    return re.sub(r"%([1-9]\d?)?(.)", ours, path_templates.escape(text))


def _nodes(value: str) -> tuple[str, ...] | None:
    least = value.partition("-")[0]
    if not units.is_whole(least):
        return None
    if int(least) > 1:
        raise UserError(
            f"--nodes={value} asks for {least} nodes, but dibs runs a job on one machine.", "Use --nodes=1."
        )
    return ()


def _one(value: str) -> tuple[str, ...] | None:
    return () if value == "1" else None


def _gpus(value: str) -> tuple[str, ...] | None:
    """Parse `2`, `a100` or `a100:2`; several kinds at once do not fit one request."""
    kind, colon, count = value.rpartition(":")
    if not colon:
        kind, count = ("", value) if units.is_whole(value) else (value, "1")
    if not units.is_whole(count) or "," in value or ":" in kind:
        return None
    return (f"--gpus={int(count)}{':' if kind else ''}{kind}",)


def gres(value: str) -> tuple[str, ...] | None:
    """Parse `gpu:2` or `gpu:a100:2`; the socket restriction is ignored."""
    kind, _, rest = value.partition("(")[0].partition(":")
    if value in ("", "none"):
        return ()
    return _gpus(rest or "1") if kind == "gpu" else None


def _time(value: str) -> tuple[str, ...] | None:
    """Parse Slurm's times: a bare number is minutes, `90:30` minutes and seconds, `1-12` days and hours."""
    if value.lower() in ("0", "infinite", "unlimited", "-1"):
        return ()
    match = TIME.fullmatch(value)
    if match is None:
        return None
    days, *parts = (None if part is None else int(part) for part in match.groups())
    numbers = [part for part in parts if part is not None]
    scale = (3600, 60, 1) if days is not None or len(numbers) == 3 else (60, 1)
    seconds = (days or 0) * 86400 + sum(number * unit for number, unit in zip(numbers, scale, strict=False))
    return (f"--time={seconds}s",) if seconds else ()


def _mem(value: str) -> tuple[str, ...] | None:
    """Parse a size whose bare number is MiB; 0 means all memory, which dibs cannot express."""
    match = re.fullmatch(r"(\d{1,18})([KMGT]?)B?", value, re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        return None
    return (f"--mem={match[1]}{match[2] or 'M'}",)


def _begin(value: str) -> tuple[str, ...] | None:
    if re.fullmatch(r"now\+\d+", value):
        value += "s"
    return (f"--begin={CLOCKS.get(value, value)}",)


def _export(value: str) -> tuple[str, ...] | None:
    """Parse the variables to set; all others are always captured, so NONE cannot be honoured."""
    if value.upper() in ("NONE", "NIL"):
        return None
    return tuple(f"--env={part}" for part in value.split(",") if "=" in part)


def _signal(value: str) -> tuple[str, ...] | None:
    """Parse `B:USR1@120` (seconds). The prefix is dropped: dibs decides which processes get the signal."""
    word, at, seconds = value.rpartition(":")[2].partition("@")
    if at and not units.is_whole(seconds):
        return None
    return (f"--signal={word}@{int(seconds) if at else SIGNAL_S}s",)


def _nice(value: str) -> tuple[str, ...] | None:
    number = value or "100"
    if not re.fullmatch(r"-?\d{1,9}", number):
        return None
    return (f"--priority={-int(number)}",)


READ: dict[str, Callable[[str], tuple[str, ...] | None]] = {
    "nodes": _nodes,
    "ntasks": _one,
    "ntasks-per-node": _one,
    "gpus": _gpus,
    "gpus-per-node": _gpus,
    "gpus-per-task": _gpus,
    "gres": gres,
    "time": _time,
    "mem": _mem,
    "begin": _begin,
    "export": _export,
    "signal": _signal,
    "nice": _nice,
    "requeue": lambda _: (f"--retries={REQUEUES}", "--retry-on=lost"),
    "no-requeue": lambda _: (),
    "hold": lambda _: ("--hold",),
    "open-mode": lambda value: () if value == "append" else None,
    "quiet": lambda _: (),
    "verbose": lambda _: (),
}
