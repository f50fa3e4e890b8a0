"""How long a slot is empty between the end of a job and the start of the next, with a full queue."""

from __future__ import annotations

import random

from benchmarks import runs, stamps
from benchmarks.errors import Failed
from benchmarks.plans import SLOTS, Plan
from benchmarks.series import Book, Key, quantile
from benchmarks.tools.tool import Tool

NAME = "gap"
TITLE = f"Gap of a slot between two jobs of 50 ms ± 40 %, {SLOTS} slots"

#: Microseconds: jobs of different lengths, so that the slots do not fall into step.
SHORTEST_US, LONGEST_US = 30_000, 70_000


def measure(plan: Plan, book: Book) -> None:
    """Run the same jobs through every tool, round by round; every round has its own lengths."""
    failed: set[Tool] = set()
    for number, tool in plan.turns(failed):
        count = min(plan.sizes.gap_jobs, tool.most_jobs)
        chosen = random.Random(number)
        try:
            run = runs.once(plan, tool, [chosen.randint(SHORTEST_US, LONGEST_US) for _ in range(count)])
        except Failed as failure:
            book.note(NAME, f"{tool.name}: {failure}")
            failed.add(tool)
            continue
        gaps_ms = [gap / 1e6 for gap in stamps.gaps_ns(run.stamps, SLOTS)]
        book.add(Key(NAME, tool.name, "p50"), "ms", quantile(gaps_ms, 0.5))
        book.add(Key(NAME, tool.name, "p99"), "ms", quantile(gaps_ms, 0.99))
