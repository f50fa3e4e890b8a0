"""No-op jobs a second on four slots, end to end: from the first submit to the end of the last job."""

from __future__ import annotations

from benchmarks import runs
from benchmarks.errors import Failed
from benchmarks.plans import SLOTS, Plan
from benchmarks.series import Book, Key
from benchmarks.tools.tool import Tool

NAME = "throughput"
TITLE = f"No-op jobs on {SLOTS} slots, end to end"


def measure(plan: Plan, book: Book) -> None:
    """Run the same jobs through every tool, round by round."""
    failed: set[Tool] = set()
    for _, tool in plan.turns(failed):
        count = min(plan.sizes.throughput_jobs, tool.most_jobs)
        if count < plan.sizes.throughput_jobs:
            book.note(NAME, f"{tool.name}: {count} jobs only, {min(tool.most_rounds, plan.sizes.rounds)} round(s)")
        try:
            run = runs.once(plan, tool, [0] * count)
        except Failed as failure:
            book.note(NAME, f"{tool.name}: {failure}")
            failed.add(tool)
            continue
        book.add(Key(NAME, tool.name, "jobs/s"), "", count / run.took_s)
        book.add(Key(NAME, tool.name, "CPU per job"), "ms", None if run.cpu_s is None else run.cpu_s * 1000 / count)
        if tool.is_server:
            book.add(Key(NAME, tool.name, "submit of all"), "ms", run.submit_s * 1000)
