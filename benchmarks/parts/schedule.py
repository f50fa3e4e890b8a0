"""Five tasks of a second on one GPU through five calls of the old `schedule`: how long, and in which order."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks import runs, sandboxes, stamps
from benchmarks.errors import Failed
from benchmarks.plans import Plan
from benchmarks.sandboxes import PATIENCE_S, Sandbox
from benchmarks.series import Book, Key
from benchmarks.stamps import Sheet

NAME = "schedule"
TITLE = "Five tasks of 1 s on one GPU, five calls of `schedule` half a second apart"
SUBJECT = "schedule"

TASKS = 5
TASK_US = 1_000_000
#: Seconds between two calls, as when the old tool was observed.
APART_S = 0.5
OLD = "the tool of 2016 took 9.6 s, in the order 0 2 1 4 3 (observed once, on another machine of two cores)"


def measure(plan: Plan, book: Book) -> None:
    """Make the five calls, round by round."""
    book.note(NAME, OLD)
    runs.alone(plan, book, NAME, lambda box: _one(book, box, stamps.sheet(plan.stamp, box.folder)))


def _one(book: Book, box: Sandbox, sheet: Sheet) -> None:
    leases = box.folder / "leases"
    leases.mkdir()
    box.environ.update(DIBS_LEASE_DIR=str(leases), DIBS_DEVICES="fake:1", DIBS_COMPAT_STATE=str(box.folder / "info"))
    # Not installed beside the peers: dibs-compat has the name of one of them.
    box.environ["PYTHONPATH"] = str(sandboxes.ROOT / "compat" / "src")
    began = time.monotonic_ns()
    calls = []
    for number in range(TASKS):
        words = [sys.executable, "-m", "dibs_compat.schedule.schedule", sheet.command(number, TASK_US)]
        calls.append(subprocess.Popen(words, env=box.environ, cwd=box.folder, stdout=subprocess.DEVNULL))
        time.sleep(max(0.0, began / 1e9 + APART_S * (number + 1) - time.monotonic()))
    codes = [call.wait(PATIENCE_S) for call in calls]
    ended = time.monotonic_ns()
    if any(codes):
        raise Failed(f"calls of schedule exited {codes}")
    found = sheet.read()
    stamps.check(found, range(TASKS), 1)
    order = [stamp.number for stamp in found]
    book.add(Key(NAME, SUBJECT, "all"), "s", (ended - began) / 1e9)
    book.add(Key(NAME, SUBJECT, "out of order"), "", sum(a != b for a, b in enumerate(order)))
    gaps = stamps.gaps_ns(found, 1)
    book.add(Key(NAME, SUBJECT, "longest gap"), "ms", max(gaps) / 1e6)
