"""Many jobs by one `dibs.submit_many` of a Python program, beside the bare insert of the same rows."""

from __future__ import annotations

import sys

from benchmarks import floors, queues, sandboxes
from benchmarks.errors import Failed
from benchmarks.plans import Plan, tell
from benchmarks.series import Book, Key

NAME = "python-submit"
TITLE = "Jobs by one dibs.submit_many from Python, dibs alone"

PROGRAM = """
import sys, time, dibs
lines = [f"true {number}" for number in range(int(sys.argv[1]))]
dibs.submit("true", hold=True)
began = time.perf_counter()
dibs.submit_many(lines, hold=True)
print(time.perf_counter() - began)
"""


def measure(plan: Plan, book: Book) -> None:
    """Submit the same jobs to a new queue in each round."""
    count = plan.sizes.python_jobs
    for number in range(plan.sizes.rounds):
        tell(f"round {number + 1} of {plan.sizes.rounds}: {count:,} jobs")
        try:
            with sandboxes.opened(plan.work) as box:
                queue = queues.start(box, "fake:1")
                took_s = float(box.run([sys.executable, "-c", PROGRAM, str(count)]))
                floor_s = floors.insert(queue.database, box.folder / "floor.db", "held")
        except Failed as failure:
            book.note(NAME, str(failure))
            return
        book.add(Key(NAME, "dibs.submit_many", "all"), "s", took_s)
        book.add(Key(NAME, "bare insert", "all"), "s", floor_s)
