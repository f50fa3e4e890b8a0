"""One run of one tool: a file of jobs through it, from the first submit to the end of the last job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import cpu_time, sandboxes, stamps
from benchmarks.errors import Failed
from benchmarks.plans import SLOTS, Plan, tell
from benchmarks.sandboxes import Sandbox
from benchmarks.series import Book
from benchmarks.stamps import Sheet, Stamp
from benchmarks.tools.tool import Tool

#: Seconds after the last job's end in which a server may still write down what happened; counted as its CPU time.
SETTLE_S = 0.2
#: Seconds for which a server was idle before its jobs are measured.
IDLE_S = 4.0
#: Seconds until a run that does not end is given up, and what each job adds to that.
PATIENCE_S, PATIENCE_PER_JOB_S = 60.0, 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """What one run showed."""

    stamps: Sequence[Stamp]
    began_ns: int
    submitted_ns: int
    #: None where it cannot be known.
    cpu_s: float | None

    @property
    def took_s(self) -> float:
        """Return the time from the first submit to the end of the last job, as the job itself noted it."""
        return (max(stamp.ended_ns for stamp in self.stamps) - self.began_ns) / 1e9

    @property
    def submit_s(self) -> float:
        """Return the time until the tool had taken all jobs."""
        return (self.submitted_ns - self.began_ns) / 1e9


def alone(plan: Plan, book: Book, name: str, one: Callable[[Sandbox], None]) -> None:
    """Measure what no other tool has, round by round, each in a sandbox of its own; a round that fails is noted."""
    for number in range(plan.sizes.own_rounds):
        tell(f"round {number + 1} of {plan.sizes.own_rounds}")
        try:
            with sandboxes.opened(plan.work) as box:
                one(box)
        except Failed as failure:
            book.note(name, str(failure))


def _delete_files(folder: Path, count: int) -> None:
    """Make files and delete them again: a disk with many files that were just deleted is slower."""
    folder.mkdir()
    for number in range(count):
        (folder / str(number)).touch()
    for number in range(count):
        (folder / str(number)).unlink()


def once(plan: Plan, tool: Tool, sleeps_us: Sequence[int]) -> Run:
    """Run one job for each sleep through a fresh instance of a tool."""
    with (
        cpu_time.counted(tool.is_server) as cpu,
        sandboxes.opened(plan.work) as box,
        tool.opened(box, SLOTS) as submit,
    ):
        if tool.is_server:
            # A server lives for days: its first jobs are not what is measured.
            warm = stamps.sheet(plan.stamp, box.folder, "warm")
            submit(box.write("warming", _commands(warm, [0] * SLOTS)))
            warm.wait(SLOTS, PATIENCE_S)
            time.sleep(IDLE_S)
        _delete_files(box.folder / "deleted", plan.sizes.deleted_files)
        sheet = stamps.sheet(plan.stamp, box.folder)
        commands = box.write("commands", _commands(sheet, sleeps_us))
        cpu_before = cpu()
        began_ns = time.monotonic_ns()
        submit(commands)
        submitted_ns = time.monotonic_ns()
        found = sheet.wait(len(sleeps_us), PATIENCE_S + PATIENCE_PER_JOB_S * len(sleeps_us))
        if tool.is_server:
            time.sleep(SETTLE_S)
        used = _difference(cpu, cpu_before)
    stamps.check(found, range(len(sleeps_us)), SLOTS)
    return Run(found, began_ns, submitted_ns, used)


def _commands(sheet: Sheet, sleeps_us: Sequence[int]) -> list[str]:
    return [sheet.command(number, sleep_us) for number, sleep_us in enumerate(sleeps_us)]


def _difference(cpu: Callable[[], float | None], before: float | None) -> float | None:
    after = cpu()
    return None if before is None or after is None else after - before
