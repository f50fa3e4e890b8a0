"""`schedule`: the command line of 2016. The task is one quoted string, split into words but given to no shell."""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import sys
from collections.abc import Sequence

from dibs.errors import DibsError
from dibs_compat.schedule import arguments
from dibs_compat.schedule.gpu_wait import GpuRequest
from dibs_compat.schedule.invocation import Invocation, Output, TaskRequest, guarded
from dibs_compat.schedule.task import Step

USAGE = (
    "[-h] [-gc GPU_COUNT] [-i INIT [INIT ...]] [-v] [-o [OUT]]",
    "[-e [ERR]] [-pg PREFERED_GPU] [-fg FORCED_GPU] [-s]",
    "[-rg RELEASE_GPU [RELEASE_GPU ...]]",
    "[task]",
)
PROSE = """\
positional arguments:
  task                  The quoted task with arguments which will be started
                        on free GPUs as soon as possible.

options:
  -h, --help            show this help message and exit
  -gc GPU_COUNT, --gpu_count GPU_COUNT
                        The count of required GPUs for specified task.
  -i INIT [INIT ...], --init INIT [INIT ...]
                        Initializes gpu info file. List of numbers is
                        expected, where first number is total count of GPUs
                        and the rest of the numbers denotes unavailable GPUs.
                        e.g -i 5 3 4 means that total count of GPUs is 5 and
                        GPU 3 and 4 are currently unavailable.
  -v, --verbose         Prints info about the process, when the task is
                        completed.
  -o [OUT], --out [OUT]
                        The name of the file, which will be used to store
                        stdout. The default file is sys.stdout.
  -e [ERR], --err [ERR]
                        The name of the file, which will be used to store
                        stderr. The default file is sys.stderr.
  -pg PREFERED_GPU, --prefered_gpu PREFERED_GPU
                        If possible, prefered GPU is assigned to the task,
                        otherwise is assigned random free GPU.
  -fg FORCED_GPU, --forced_gpu FORCED_GPU
                        Wait until specified GPU is free.
  -s, --status          Show info about GPU usage - user/GPU/taskPID/start
  -rg RELEASE_GPU [RELEASE_GPU ...], --release_gpu RELEASE_GPU [RELEASE_GPU ...]
                        Releases GPUs according their indices. e.g -rg 0 2
                        will release GPU 0 and 2.
"""
MORE = """\
new in dibs-compat:
  --exit-status         Exit with the code of the task (128+n for signal n) instead of 0.
  --force               With -rg: end what runs on the GPUs first.
  -pg, -fg              Several GPUs, separated by commas, with -gc 2 and more."""

#: Words of a task that become a port of its own for each GPU: the first port, and how far apart they are.
PORT_WORD, FIRST_PORT, PORT_STEP = "__num__", 3600, 100


class BadTask(DibsError):
    """The quoted task cannot be split into words."""

    exit_code = 1


def main() -> int:
    """Run the command line of this process."""
    parser = _parser()
    return guarded(parser.prog, lambda: _main(parser, sys.argv[1:]))


def _main(parser: arguments.Parser, words: Sequence[str]) -> int:
    invocation = Invocation(parser.prog)
    # As the old tool: before anything is read from the command line.
    invocation.set_up_if_new()
    args = _parse(parser, words)
    return invocation.perform(args, args.init, "cuda", _order(parser, args) if args.task else None)


def _parser() -> arguments.Parser:
    parser = arguments.Parser(USAGE, PROSE, MORE)
    parser.add_argument("-gc", "--gpu_count", type=int, default=1)
    parser.add_argument("-i", "--init", nargs="+", type=int)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-o", "--out", nargs="?")
    parser.add_argument("-e", "--err", nargs="?")
    parser.add_argument("-pg", "--prefered_gpu", type=_numbers, default=())
    parser.add_argument("-fg", "--forced_gpu", type=_numbers, default=())
    parser.add_argument("-s", "--status", action="store_true")
    parser.add_argument("-rg", "--release_gpu", dest="release", type=int, nargs="+")
    parser.add_argument("--force", dest="is_forced", action="store_true")
    parser.add_argument("--exit-status", dest="is_exit_status", action="store_true")
    parser.add_argument("task", nargs="?")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}") from None


def _parse(parser: arguments.Parser, words: Sequence[str]) -> argparse.Namespace:
    if not words:
        parser.error("expected a task, or one of -i, -rg and -s")
    # --force 2 used to be short for --forced_gpu 2.
    spelled = [
        "--forced_gpu" if word == "--force" and following and arguments.is_number(following) else word
        for word, following in itertools.zip_longest(words, words[1:])
    ]
    args = parser.parse_args(arguments.numbers_last(spelled, ("-i", "--init", "-rg", "--release_gpu")))
    arguments.check_count(parser, "-gc/--gpu_count", args.gpu_count)
    if args.init is not None:
        count, *set_aside = args.init
        arguments.check_count(parser, "-i/--init", count)
        for number in set_aside:
            if not 0 <= number < count:
                parser.error(f"argument -i/--init: there is no GPU {number} among {count} GPUs, counted from 0")
    return args


def _order(parser: arguments.Parser, args: argparse.Namespace) -> TaskRequest:
    task = _split(args.task)
    forced = ",".join(map(str, args.forced_gpu))
    # Files are emptied before the task waits, and only when all else was right.
    outputs = (
        _output(parser, "-o/--out", args.out, "<stdout>"),
        _output(parser, "-e/--err", args.err, "<stderr>"),
    )
    return TaskRequest(
        GpuRequest(args.gpu_count, args.prefered_gpu, args.forced_gpu),
        lambda numbers: _with_ports(task, numbers),
        lambda numbers: ",".join(f"cuda{number}" for number in numbers),
        f"Scheduler (PID: {os.getpid()}) is waiting for GPU {forced}.",
        Step.WARN,
        outputs,
        has_summary=args.verbose,
        is_exit_status=args.is_exit_status,
    )


def _split(text: str) -> list[str]:
    """Return the words of a task, line by line, by the rules of a shell."""
    try:
        words = [word for line in text.split("\n") if line for word in shlex.split(line)]
    except ValueError as error:
        raise BadTask(f"cannot split the task {text!r} into words: {error}.") from None
    if not words:
        raise BadTask(f"expected a command as the task, got {text!r}.")
    return words


def _with_ports(task: Sequence[str], numbers: Sequence[int]) -> list[str]:
    port = str(FIRST_PORT + PORT_STEP * (numbers[0] if numbers else 0))
    return [port if word == PORT_WORD else word for word in task]


def _output(parser: arguments.Parser, option: str, path: str | None, own_name: str) -> Output:
    """Open a file for a stream of the task; both streams may go to the same one."""
    if path is None or path == "-":
        return None, own_name
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        parser.error(f"argument {option}: can't open {path!r}: {error}")
    return fd, path


if __name__ == "__main__":
    sys.exit(main())
