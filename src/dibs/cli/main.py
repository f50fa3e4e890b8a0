"""The command line: finds the verb, imports its module and no other, and turns errors into one line and a code.

A verb is a module with SUMMARY, USAGE, OPTIONS, EXAMPLES and main(args), and a line in VERBS. One that runs a user's
command also says TAKES_COMMAND: options end at the first word of that command. One that is typed in a way of its own
has `usual`, which returns the words as the table of options reads them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol, cast

from dibs.errors import DibsError, UserError
from dibs.model import spelling
from dibs.submission import options

#: Every verb and its module, in the order of `dibs --help`.
VERBS = {
    "status": "dibs.cli.verbs.status",
    "add": "dibs.cli.verbs.add",
    "run": "dibs.cli.verbs.run",
    "pipe": "dibs.cli.verbs.pipe",
    "map": "dibs.cli.verbs.map",
    "import": "dibs.cli.verbs.import_",
    "sweep": "dibs.cli.verbs.sweep",
    "results": "dibs.cli.verbs.results",
    "show": "dibs.cli.verbs.show",
    "why": "dibs.cli.verbs.why",
    "log": "dibs.cli.verbs.log",
    "follow": "dibs.cli.verbs.follow",
    "wait": "dibs.cli.verbs.wait",
    "cancel": "dibs.cli.verbs.cancel",
    "kill": "dibs.cli.verbs.kill",
    "retry": "dibs.cli.verbs.retry",
    "hold": "dibs.cli.verbs.hold",
    "unhold": "dibs.cli.verbs.unhold",
    "pause": "dibs.cli.verbs.pause",
    "resume": "dibs.cli.verbs.resume",
    "move": "dibs.cli.verbs.move",
    "edit": "dibs.cli.verbs.edit",
    "clean": "dibs.cli.verbs.clean",
    "gpus": "dibs.cli.verbs.gpus",
    "lease": "dibs.cli.verbs.lease",
    "report": "dibs.cli.verbs.report",
    "daemon": "dibs.cli.verbs.daemon",
    "web": "dibs.cli.verbs.web",
    "doctor": "dibs.cli.verbs.doctor",
    "config": "dibs.cli.verbs.config",
    "completion": "dibs.cli.verbs.completion",
    "version": "dibs.cli.verbs.version",
    "help": "dibs.cli.verbs.help",
}
ALIASES = {"submit": "add", "enqueue": "unhold"}
#: What people type in other tools: named in the error, never guessed into.
HABITS = {
    "ls": "status", "list": "status", "ps": "status", "queue": "status", "squeue": "status", "jobs": "status",
    "top": "status -w", "watch": "status -w", "check": "doctor", "settings": "config", "set": "config", "man": "help",
    "metric": "report", "metrics": "report", "completions": "completion",
    "logs": "log", "tail": "log", "output": "log", "cat": "log", "info": "show",
    "parallel": "map", "xargs": "map", "grid": "sweep", "search": "sweep", "best": "results", "table": "results",
    "sbatch": "add", "srun": "run", "exec": "run", "start": "add",
    "rm": "cancel", "remove": "cancel", "scancel": "cancel", "stop": "cancel",
    "rerun": "retry", "restart": "retry", "requeue": "retry", "stash": "hold", "release": "unhold",
    "switch": "move", "modify": "edit", "update": "edit", "forget": "clean", "purge": "clean", "signal": "kill",
    "suspend": "pause", "unpause": "resume", "continue": "resume", "devices": "gpus", "nvidia-smi": "gpus",
    "page": "web", "gui": "web", "ui": "web", "dashboard": "web", "browser": "web",
}  # fmt: skip

#: Exit codes of our own making; those of errors are in `errors`.
BUG = 125
INTERRUPTED = 130
CLOSED_PIPE = 141
#: Characters of a word in an error that is still shown whole: longer than most paths, which people copy.
LONGEST_WORD = 400


class Verb(Protocol):
    """What the module of a verb offers."""

    SUMMARY: str
    USAGE: tuple[str, ...]
    OPTIONS: tuple[options.Option[object], ...]
    EXAMPLES: tuple[str, ...]

    @staticmethod
    def main(args: options.Args) -> int:
        """Do what the user asked; return the exit code."""


def main() -> int:
    """Run the command line of this process."""
    # The script that calls us lets Ctrl-C just end it; from here on it is ours to answer.
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
        front, name, rest = split(words)
        is_debug = "--debug" in front
        verb = load(name)
        args = options.parse(name, verb.OPTIONS, [*front, *usual(verb, rest)], takes_command=takes_command(verb))
        is_debug = is_debug or args.has(options.DEBUG)
        code = _show_help(name) if args.has(options.HELP) else verb.main(args)
        sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last line of defence
        return explain(error, is_debug)


def explain(error: BaseException, is_debug: bool = False) -> int:
    """Say in one line what went wrong, and return the exit code: people see no traceback."""
    if is_debug:
        import traceback

        traceback.print_exception(error)
    match error:
        case DibsError():
            # One who was ended, or whose terminal is gone, has nothing to say.
            return _say(error.line(), error.exit_code) if error.message else error.exit_code
        case KeyboardInterrupt():
            return INTERRUPTED
        case BrokenPipeError():
            return CLOSED_PIPE
        case OSError():
            about = f" ({error.filename})" if error.filename else ""
            return _say(f"the system refused: {error.strerror or error}{about}.", BUG)
        case _:
            where = "" if is_debug else " --debug shows where."
            return _say(f"this is a bug: {type(error).__name__}: {error}.{where}", BUG)


def split(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Return the options before the verb, the verb, and the rest; without a verb it is `status`, or help if asked."""
    left = list(words)
    front: list[str] = []
    while left and (left[0] in ("--debug", "--help", "-h", "--color") or left[0].startswith("--color=")):
        count = 2 if left[0] == "--color" else 1
        front, left = front + left[:count], left[count:]
    if left and left[0] in ("--version", "-V"):
        return front, "version", left[1:]
    if left and not left[0].startswith("-"):
        return front, ALIASES.get(left[0], left[0]), left[1:]
    return front, "help" if {"--help", "-h"} & {*front} else "status", left


def load(name: str) -> Verb:
    """Import the module of a verb; a word that is none gets the nearest one named, and is never a job."""
    if name not in VERBS:
        raise UserError(f'there is no verb "{options.shown(name)}".', _suggest(name))
    return cast("Verb", import_module(VERBS[name]))


def takes_command(verb: Verb) -> bool:
    """Tell whether options of a verb end at the first word that is none."""
    return getattr(verb, "TAKES_COMMAND", False)


def usual(verb: Verb, words: Sequence[str]) -> Sequence[str]:
    """Return the words after a verb as its table of options reads them."""
    read: Callable[[Sequence[str]], Sequence[str]] | None = getattr(verb, "usual", None)
    return words if read is None else read(words)


def _suggest(name: str) -> str:
    if name in HABITS:
        return f"Did you mean {HABITS[name]}?"
    if name.isdigit() or name.startswith("@"):
        return f"Did you mean show {options.shown(name)}?"
    from dibs.cli import help_topics

    if near := options.nearest(name, [*VERBS, *ALIASES]):
        return near
    topic = spelling.nearest(name, help_topics.TOPICS)
    return f"Did you mean help {topic}?" if topic else "See `dibs help`."


def _show_help(name: str) -> int:
    from dibs.cli.verbs import help as pages

    return pages.show(name)


def _open_missing_streams() -> None:
    """Put /dev/null where a standard stream is closed, or a socket would get its number and somebody's output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode))  # noqa: SIM115 - it lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        # A terminal that knows no Unicode shows escapes instead of ending us.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _settle_streams() -> None:
    """Write what is left, or drop it where nobody reads: the interpreter would complain and spoil the exit code."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _say(text: str, code: int) -> int:
    from dibs.client import safe_text

    # Whatever somebody pasted, the line stays one that can be read.
    text = " ".join(options.shown(word) if len(word) > LONGEST_WORD else word for word in text.split(" "))
    try:
        print(f"dibs: {safe_text.clean(text)}", file=sys.stderr, flush=True)
    except OSError:
        # Nobody is there to read it; the code still tells.
        pass
    return code
