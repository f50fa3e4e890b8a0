"""The command line: finds the verb, imports only its module, and turns errors into one line and an exit code.

A verb is a module with SUMMARY, USAGE, OPTIONS, EXAMPLES and main(args), and a name in VERBS. A verb that runs a user's
command also sets TAKES_COMMAND: options end at the first word of that command. A verb with its own syntax has `usual`,
which rewrites the words for the option parser.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol, cast

from dibs.errors import DibsError, UserError
from dibs.model import suggestions
from dibs.submission import options

#: Every verb in the order of `dibs --help`; its module in `cli.verbs` has the same name.
GROUPS: dict[str, tuple[str, ...]] = {
    "Submit": ("add", "run", "map", "pipe", "lease", "reserve", "import"),
    "Watch": ("status", "top", "show", "why", "log", "follow", "wait"),
    "Control": ("cancel", "kill", "retry", "hold", "unhold", "pause", "resume", "move", "edit", "group", "clean"),
    "Sweeps": ("sweep", "results", "report"),
    "Machine": (
        *("gpus", "usage", "engines", "sbatch-script", "daemon", "web", "doctor", "machine", "simulate", "config"),
        *("completion", "version", "help"),
    ),
}
#: Verbs about the rules that people share a machine by; their modules have a package of their own.
LAB = ("group", "reserve", "usage")
VERBS = tuple(verb for group in GROUPS.values() for verb in group)
ALIASES = {"submit": "add", "enqueue": "unhold"}
#: Verbs of other tools: the error suggests our verb, nothing is run.
HABITS = {
    "ls": "status", "list": "status", "ps": "status", "queue": "status", "squeue": "status", "jobs": "status",
    "htop": "top", "watch": "top", "history": "status all", "check": "doctor", "settings": "config",
    "set": "config", "man": "help",
    "metric": "report", "metrics": "report", "completions": "completion",
    "logs": "log", "tail": "log", "output": "log", "cat": "log", "info": "show", "attach": "follow",
    "parallel": "map", "xargs": "map", "grid": "sweep", "search": "sweep", "best": "results", "table": "results",
    "sbatch": "add", "srun": "run", "exec": "run", "start": "add",
    "rm": "cancel", "remove": "cancel", "scancel": "cancel", "stop": "cancel",
    "delete": "cancel, or clean for finished jobs",
    "rerun": "retry", "restart": "retry", "requeue": "retry", "stash": "hold", "release": "unhold",
    "switch": "move", "modify": "edit", "update": "edit", "forget": "clean", "purge": "clean", "signal": "kill",
    "suspend": "pause", "unpause": "resume", "continue": "resume", "devices": "gpus", "nvidia-smi": "gpus",
    "page": "web", "gui": "web", "ui": "web", "dashboard": "web", "browser": "web",
}  # fmt: skip

#: Programs that are often typed where the verb belongs.
PROGRAMS = frozenset(("accelerate", "bash", "conda", "deepspeed", "make", "mamba", "sh", "torchrun", "uv"))

#: Exit codes besides those in `errors`.
BUG = 125
INTERRUPTED = 130
CLOSED_PIPE = 141
DAY_S = 86_400
#: Longest word that an error shows in full: longer than most paths, which users copy.
LONGEST_WORD = 400


class Verb(Protocol):
    """The interface of a verb's module."""

    SUMMARY: str
    USAGE: tuple[str, ...]
    OPTIONS: tuple[options.Option[object], ...]
    EXAMPLES: tuple[str, ...]

    @staticmethod
    def main(args: options.Args) -> int | None:
        """Run the verb; return the exit code, None if it succeeded."""


def main() -> int:
    """Run the command line of this process."""
    # The script that calls this lets Ctrl-C end the process; from here on it raises KeyboardInterrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_missing_streams()
    try:
        return execute(sys.argv[1:])
    finally:
        _settle_streams()


def execute(words: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    is_debug = False
    try:
        _require_time_zone()
        front, name, rest = split(words)
        is_debug = "--debug" in front
        verb = load(name, rest)
        args = options.parse(name, verb.OPTIONS, [*front, *usual(verb, rest)], takes_command=takes_command(verb))
        is_debug = is_debug or args.has(options.DEBUG)
        if args.has(options.HELP):
            verb, args = load("help"), options.Args((name,))
        code = verb.main(args) or 0
        sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last line of defence
        return explain(error, is_debug)


def _require_time_zone() -> None:
    """Refuse a zone that is a day or more away from UTC: the C library takes it, and Python cannot compute with it."""
    if abs(time.localtime().tm_gmtoff) >= DAY_S:
        got = options.shown(os.environ.get("TZ", ""))
        raise UserError(f'expected a time zone such as Europe/Berlin in TZ, got "{got}".')


def explain(error: BaseException, is_debug: bool = False) -> int:
    """Print an error as one line, with a traceback only for --debug; return the exit code."""
    if is_debug:
        import traceback

        traceback.print_exception(error)
    match error:
        case DibsError():
            # A process that was ended, or whose terminal is gone, prints nothing.
            return _say(error.line(), error.exit_code) if error.message else error.exit_code
        case KeyboardInterrupt():
            return INTERRUPTED
        case BrokenPipeError():
            return CLOSED_PIPE
        case OSError():
            about = f" ({error.filename})" if error.filename else ""
            return _say(f"system error: {error.strerror or error}{about}.", BUG)
        case _:
            where = "" if is_debug else " Run with --debug for a traceback."
            return _say(f"this is a bug: {type(error).__name__}: {error}.{where}", BUG)


def split(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Return the options before the verb, the verb, and the rest; the default verb is `status`, or help if asked."""
    left = list(words)
    front: list[str] = []
    while left and (left[0] in ("--debug", "--help", "-h", "--color") or left[0].startswith("--color=")):
        count = 2 if left[0] == "--color" else 1
        front, left = front + left[:count], left[count:]
    if left and left[0] in ("--version", "-V"):
        return front, "version", left[1:]
    if left and not left[0].startswith("-"):
        return front, ALIASES.get(left[0], left[0]), left[1:]
    if verb := next((word for word in left if word in VERBS or word in ALIASES), None):
        after = options.shown(" ".join(left[: left.index(verb)]))
        raise UserError(f"options come after the verb: dibs {verb} {after}.")
    return front, "help" if {"--help", "-h"} & {*front} else "status", left


def load(name: str, rest: Sequence[str] = ()) -> Verb:
    """Import the module of a verb; for an unknown word, suggest the nearest verb, or `add` before a command."""
    if name not in VERBS:
        raise UserError(f'there is no verb "{options.shown(name)}".', _suggest(name, rest))
    # `import` is a Python keyword, and neither it nor a name with a hyphen can name a module.
    module = "import_" if name == "import" else name.replace("-", "_")
    module = f"lab.{module}" if name in LAB else module
    return cast("Verb", import_module(f"dibs.cli.verbs.{module}"))


def takes_command(verb: Verb) -> bool:
    """Return whether a verb's options end at the first word that is not an option."""
    return getattr(verb, "TAKES_COMMAND", False)


def usual(verb: Verb, words: Sequence[str]) -> Sequence[str]:
    """Return the words after a verb in the form that the option parser expects."""
    read: Callable[[Sequence[str]], Sequence[str]] | None = getattr(verb, "usual", None)
    return words if read is None else read(words)


def _suggest(name: str, rest: Sequence[str]) -> str:
    import shlex

    if name in HABITS:
        return f"Did you mean {HABITS[name]}?"
    if name.startswith(("python", "./", "/")) or name.endswith((".py", ".sh")) or name in PROGRAMS:
        before = ["python"] if name.endswith(".py") else []
        return f"Did you mean dibs add {options.shown(shlex.join([*before, name, *rest]))}?"
    if name.isdigit() or name.startswith("@"):
        return f"Did you mean dibs show {options.shown(name)}?"
    from dibs.cli import help_topics

    if near := options.nearest(name, [*VERBS, *ALIASES]):
        return near
    topic = suggestions.nearest(name, help_topics.TOPICS)
    return f"Did you mean help {topic}?" if topic else "See `dibs help`."


def _open_missing_streams() -> None:
    """Open /dev/null for closed standard streams; else a socket would get their number, and our output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode))  # noqa: SIM115 - it lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        # On a terminal without Unicode, print escapes instead of raising.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _settle_streams() -> None:
    """Flush, or discard output that nobody reads; else the interpreter prints an error and changes the exit code."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _say(text: str, code: int) -> int:
    from dibs.client import safe_text

    # Keep the line readable, whatever was pasted into the command.
    text = " ".join(options.shown(word) if len(word) > LONGEST_WORD else word for word in text.split(" "))
    try:
        print(f"dibs: {safe_text.clean(text)}", file=sys.stderr, flush=True)
    except OSError:
        # Nobody reads it; the exit code still reports the error.
        pass
    return code
