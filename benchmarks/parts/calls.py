"""Python functions that do nothing, through executors that people know: from the first submit to the last result."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import cpu_time, queues, sandboxes
from benchmarks.errors import Failed
from benchmarks.plans import SLOTS, Plan, tell
from benchmarks.sandboxes import Sandbox
from benchmarks.series import Book, Key
from benchmarks.tools import dibs
from benchmarks.tools.tool import from_pypi

NAME = "calls"
TITLE = f"No-op calls of a Python function, {SLOTS} at once"

#: The program that calls, and the module of the function; workers import that by name.
PROGRAM = Path(__file__).parents[1] / "call_program.py"
FUNCTION = "def nothing(number):\n    return number\n"
NOTE = (
    "submitit has no queue: the program keeps {slots} jobs under way and looks every 10 ms which of them have ended; "
    "{rounds} round(s)"
)
#: Seconds until a run is given up: a call of the slowest takes about one.
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Subject:
    """One executor: how the program knows it, and whether something stays when the program has ended."""

    name: str
    word: str
    is_server: bool = False
    most_rounds: int = 1_000


SUBJECTS = (
    Subject("dibs.Executor", "dibs", is_server=True),
    Subject("dibs.Executor, 25 a job", "dibs-chunks", is_server=True),
    Subject("submitit, local", "submitit", most_rounds=1),
    Subject("ProcessPoolExecutor", "processes"),
)


def measure(plan: Plan, book: Book) -> None:
    """Make the same calls through every executor, round by round."""
    subjects = [subject for subject in SUBJECTS if _is_wanted(subject, plan)]
    for number in range(plan.sizes.rounds):
        first = number % max(1, len(subjects))
        for subject in subjects[first:] + subjects[:first]:
            if number < subject.most_rounds:
                tell(f"round {number + 1} of {plan.sizes.rounds}: {subject.name}")
                _one(subject, plan, book)
    if any(subject.word == "submitit" for subject in subjects):
        book.note(NAME, NOTE.format(slots=SLOTS, rounds=1))


def _is_wanted(subject: Subject, plan: Plan) -> bool:
    if subject.word == "submitit":
        return from_pypi("submitit") is not None
    return dibs.TOOL in plan.tools or not subject.is_server


def _one(subject: Subject, plan: Plan, book: Book) -> None:
    count = plan.sizes.calls
    try:
        with cpu_time.counted(subject.is_server) as cpu, sandboxes.opened(plan.work) as box:
            if subject.is_server:
                queues.start(box, f"fake:{SLOTS}")
            before = cpu()
            took_s = _run(subject, count, box)
            after = cpu()
    except Failed as failure:
        book.note(NAME, f"{subject.name}: {failure}")
        return
    used_s = None if before is None or after is None else after - before
    book.add(Key(NAME, subject.name, "calls/s"), "", count / took_s)
    book.add(Key(NAME, subject.name, "CPU per call"), "ms", None if used_s is None else used_s * 1000 / count)


def _run(subject: Subject, count: int, box: Sandbox) -> float:
    """Run the program; return the seconds that it took for its calls, without its own start."""
    (box.folder / "functions.py").write_text(FUNCTION)
    box.environ["PYTHONPATH"] = str(box.folder)
    words = [sys.executable, str(PROGRAM), subject.word, str(count), str(SLOTS)]
    return float(box.run(words, patience_s=PATIENCE_S))
