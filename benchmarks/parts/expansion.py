"""A parameter grid printed as commands: by our `simple_hypersearch`, by the original, and by the core of `dibs sweep`.

Both are called `simple_hypersearch`, so ours runs from the source tree, with the interpreter of the same environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes, sandboxes
from benchmarks.plans import Plan, tell
from benchmarks.sandboxes import BIN, Sandbox
from benchmarks.series import Book, Key
from benchmarks.tools.tool import from_pypi

NAME = "expansion"
TITLE = "A grid of a million points, printed"

ROOT = Path(__file__).parent.parent.parent
ORIGINAL, OURS, CORE = "original", "dibs-compat", "dibs core"
#: Orders, with the options of `simple_hypersearch` for them.
ORDERS = {
    "grid": ["--sampling-mode", "grid"],
    "shuffled": ["--seed", "1"],
    "10 of them": ["--seed", "1", "--n-samples", "10"],
}
#: Reads of its output between two looks at a program's memory.
CHUNKS_BETWEEN_LOOKS = 32
PATTERN = "python train.py --lr {lr} --bs {bs} --seed {seed}"

OUR_PROGRAM = """
import sys; sys.path.insert(0, sys.argv.pop(1))
from simple_gpu_scheduler.hypersearch import generate_commands
sys.exit(generate_commands())
"""
CORE_PROGRAM = """
import itertools, sys
from dibs.sweeps import templates as run_commands; from dibs.sweeps import grid, parameters, spaces
size, order, pattern = int(sys.argv[1]), sys.argv[2], sys.argv[3]
space = spaces.build([parameters.parse([name, *map(str, range(size))]) for name in ("lr", "bs", "seed")])
points = grid.Points(space, 10 if order == "10 of them" else None, order == "shuffled", 1)
lines = run_commands.Writer(run_commands.parse(pattern)).lines(points)
for first in itertools.islice(lines, 1):
    print(first, flush=True)
while some := list(itertools.islice(lines, 512)):
    print("\\n".join(some))
"""


@dataclass(frozen=True, slots=True)
class Printing:
    """What one printing showed."""

    wall_s: float
    first_ms: float
    cpu_s: float
    memory_mib: float
    #: Enough to tell two outputs apart.
    digest: int


def measure(plan: Plan, book: Book) -> None:
    """Print the grid with every tool in every order, in turn."""
    side = round(plan.sizes.points ** (1 / 3))
    if from_pypi("simple-gpu-scheduler") is None:
        book.note(NAME, "the original is not installed: there is nothing to compare with")
    with sandboxes.opened(plan.work) as box:
        for number in range(plan.sizes.rounds):
            seen: dict[str, set[int]] = {}
            programs = [
                word for word in (ORIGINAL, OURS, CORE) if word != ORIGINAL or from_pypi("simple-gpu-scheduler")
            ]
            for order in ORDERS:
                first = number % len(programs)
                for program in programs[first:] + programs[:first]:
                    tell(f"round {number + 1} of {plan.sizes.rounds}: {program}, {order}")
                    found = _print(_words(program, order, side), box)
                    _write_down(book, f"{program}, {order}", found)
                    if program != CORE:
                        seen.setdefault(order, set()).add(found.digest)
            for order, digests in seen.items():
                if len(digests) > 1:
                    book.note(NAME, f"{order}: the original printed something else")


def _words(program: str, order: str, side: int) -> list[str]:
    if program == CORE:
        return [sys.executable, "-c", CORE_PROGRAM, str(side), order, PATTERN]
    values = [str(number) for number in range(side)]
    options = [PATTERN, *ORDERS[order], *(word for name in ("lr", "bs", "seed") for word in ("-p", name, *values))]
    if program == ORIGINAL:
        return [str(BIN / "simple_hypersearch"), *options]
    return [sys.executable, "-c", OUR_PROGRAM, str(ROOT / "compat" / "src"), *options]


def _print(words: list[str], box: Sandbox) -> Printing:
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=box.environ, cwd=box.folder)
    assert process.stdout is not None
    fd = process.stdout.fileno()
    chunk = os.read(fd, 1 << 16)
    first_s = time.perf_counter() - began
    # Not what wait4 tells: that counts our own memory too, from before the exec.
    memory_mib = processes.memory_mib(process.pid, "VmHWM")
    digest, chunks = 0, 0
    while chunk:
        digest, chunks = zlib.crc32(chunk, digest), chunks + 1
        if chunks % CHUNKS_BETWEEN_LOOKS == 0:
            memory_mib = max(memory_mib, processes.memory_mib(process.pid, "VmHWM"))
        chunk = os.read(fd, 1 << 16)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    return Printing(wall_s, first_s * 1000, used.ru_utime + used.ru_stime, memory_mib, digest)


def _write_down(book: Book, subject: str, found: Printing) -> None:
    book.add(Key(NAME, subject, "wall"), "s", found.wall_s)
    book.add(Key(NAME, subject, "CPU"), "s", found.cpu_s)
    book.add(Key(NAME, subject, "first line"), "ms", found.first_ms)
    book.add(Key(NAME, subject, "memory"), "MiB", found.memory_mib)
