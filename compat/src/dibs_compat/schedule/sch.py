"""`sch`: the command line of 2018. The task is the rest of the words, GPUs are named as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from dibs_compat.schedule import arguments, screen
from dibs_compat.schedule.gpu_wait import GpuRequest
from dibs_compat.schedule.invocation import Invocation, TaskRequest, guarded
from dibs_compat.schedule.task import Step

USAGE = (
    "[-h] [-i INIT] [-n NUM] [-p PREFER] [-f FORCE] [-s]",
    "[-r RELEASE [RELEASE ...]] [--cx]",
    "[task ...]",
)
PROSE = """\
positional arguments:
  task                  The task to run as soon as the required GPUs are
                        available.

options:
  -h, --help            show this help message and exit
  -i INIT, --init INIT  The number of available GPUs.
  -n NUM, --num NUM     The number of required GPUs.
  -p PREFER, --prefer PREFER
                        Instruct the scheduler to prefer the specified GPU(s).
  -f FORCE, --force FORCE
                        Force the scheduler to use the specified GPU(s).
  -s, --status          Show GPU usage status (user/GPU/taskPID/start)
  -r RELEASE [RELEASE ...], --release RELEASE [RELEASE ...]
                        Releases the specified GPU(s).
  --cx                  Append model.n_gpus=[NUM] to the task args.
"""
MORE = """\
new in dibs-compat:
  --exit-status         Exit with the code of the task (128+n for signal n) instead of 0.
  --force               Without GPUs, with -r: end what runs on the released GPUs first."""

#: How many words belong to an option; None: all numbers that follow.
ARITY: dict[str, int | None] = {
    "-h": 0, "--help": 0, "-i": 1, "--init": 1, "-n": 1, "--num": 1, "-p": 1, "--prefer": 1, "-f": 1, "--force": 1,
    "-s": 0, "--status": 0, "-r": None, "--release": None, "--cx": 0, "--exit-status": 0,
}  # fmt: skip

NOT_SET_UP = "The scheduler needs to be initializes with --init arg first."


def main() -> int:
    """Run the command line of this process."""
    parser = _parser()
    return guarded(parser.prog, lambda: _main(parser, sys.argv[1:]))


def _main(parser: arguments.Parser, words: Sequence[str]) -> int:
    options, task = split(words)
    args = parser.parse_args(options)
    request = _gpu_request(parser, args)
    invocation = Invocation(parser.prog)
    if not invocation.is_set_up() and not args.init:
        screen.say(NOT_SET_UP)
        return 1
    order = _order(args, request, task) if task else None
    return invocation.perform(args, [args.init] if args.init else None, "", order)


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our options and the task, which begins with the first word that is not ours."""
    options: list[str] = []
    left = list(words)
    is_releasing = any(word in ("-r", "--release") for word in words)
    while left and left[0].startswith("-") and left[0] not in ("-", "--"):
        word = left.pop(0)
        if is_releasing and word == "--force" and not (left and left[0][:1] in "0123456789["):
            options.append("--release-force")
            continue
        options.append(word)
        many = _arity(word)
        while left and (len(left) > 0 if many is None else many > 0):
            if many is None and not arguments.is_number(left[0]):
                break
            options.append(left.pop(0))
            many = None if many is None else many - 1
    return options, left[1:] if left[:1] == ["--"] else left


def _arity(word: str) -> int | None:
    """Return how many words belong to an option; one that is not ours has none, and is refused later."""
    if word in ARITY:
        return ARITY[word]
    fitting = {name for name in ARITY if name.startswith(word)} if word.startswith("--") else set()
    return ARITY[fitting.pop()] if len(fitting) == 1 else 0


def _parser() -> arguments.Parser:
    parser = arguments.Parser(USAGE, PROSE, MORE)
    parser.add_argument("-i", "--init", type=int)
    parser.add_argument("-n", "--num", type=int)
    parser.add_argument("-p", "--prefer")
    parser.add_argument("-f", "--force")
    parser.add_argument("-s", "--status", action="store_true")
    parser.add_argument("-r", "--release", type=int, nargs="+")
    parser.add_argument("--cx", action="store_true")
    parser.add_argument("--exit-status", dest="is_exit_status", action="store_true")
    parser.add_argument("--release-force", dest="is_forced", action="store_true")
    return parser


def _gpu_request(parser: arguments.Parser, args: argparse.Namespace) -> GpuRequest:
    if args.init is not None:
        arguments.check_count(parser, "-i/--init", args.init)
    preferred = _numbers(parser, "-p/--prefer", args.prefer)
    forced = _numbers(parser, "-f/--force", args.force)
    count = max(1, len(forced)) if args.num is None else args.num
    arguments.check_count(parser, "-n/--num", count)
    return GpuRequest(count, preferred, forced)


def _numbers(parser: arguments.Parser, option: str, text: str | None) -> tuple[int, ...]:
    """Return the GPUs that JSON names: a number or a list of numbers."""
    try:
        value = () if text is None else json.loads(text)
    except (ValueError, RecursionError):
        value = None
    numbers = [value] if type(value) is int else value
    if not isinstance(numbers, list | tuple) or not all(type(number) is int for number in numbers):
        parser.error(f"argument {option}: expected a GPU or a list of GPUs as JSON, such as 1 or [1,3], got {text!r}")
    return tuple(dict.fromkeys(numbers))


def _order(args: argparse.Namespace, request: GpuRequest, task: Sequence[str]) -> TaskRequest:
    return TaskRequest(
        request,
        lambda numbers: [*task, f"model.n_gpus={len(numbers)}"] if args.cx else list(task),
        lambda numbers: ",".join(map(str, numbers)),
        f"Scheduler (PID: {os.getpid()}) is waiting for GPU(s) {args.force}.",
        Step.TERMINATE,
        is_exit_status=args.is_exit_status,
    )


if __name__ == "__main__":
    sys.exit(main())
