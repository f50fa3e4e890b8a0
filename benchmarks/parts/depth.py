"""Long queues: what a thousand, or a million, waiting jobs cost dibs, and what those pay who look at it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import floors, processes, queues, sandboxes, stamps
from benchmarks.errors import Failed
from benchmarks.plans import Plan, tell
from benchmarks.queues import Queue
from benchmarks.series import Book, Key

NAME = "depth"
TITLE = "Long queues, dibs alone, one device that is busy"

#: Looks at the queue at each depth; the median counts.
LOOKS = 7
#: Starts measured at each depth, one after the other on the one device.
STARTS = 20
#: Seconds after the submit until the daemon has nothing left to do.
SETTLE_S = 1.0
#: Seconds that one submit may take.
SUBMIT_FOR_S = 600.0
#: Lines of one submit when all of them at once are refused.
PIECE = 100_000
#: From this many on one round must do.
LONG = 1_000_000


def measure(plan: Plan, book: Book) -> None:
    """Fill a queue to every depth, round by round."""
    for number in range(plan.sizes.own_rounds):
        for depth in plan.sizes.depths:
            if number and depth >= LONG:
                continue
            tell(f"round {number + 1} of {plan.sizes.own_rounds}: {depth:,} jobs")
            try:
                with sandboxes.opened(plan.work) as box:
                    _one(plan, book, queues.start(box, "fake:1"), depth)
            except Failed as failure:
                book.note(NAME, f"{depth:,} jobs: {failure}")


def _one(plan: Plan, book: Book, queue: Queue, depth: int) -> None:
    def add(measure: str, unit: str, value: float) -> None:
        book.add(Key(NAME, f"{depth:,}", measure), unit, value)

    box = queue.box
    sheet = stamps.sheet(plan.stamp, box.folder)
    busy, after = queues.gate(box, "busy"), queues.gate(box, "after")
    queue.wait_started(queue.add(busy.command(sheet, 0)))
    starts = [sheet.command(number) for number in range(1, STARTS + 1)]
    lines = [*starts, after.command(sheet, 0), *["true"] * (depth - STARTS - 1)]
    add("submit", "s", submit(book, queue, lines))
    add("bare insert", "s", floors.insert(queue.database, box.folder / "floor.db"))
    time.sleep(SETTLE_S)
    daemon = queue.daemon()
    add("memory", "MiB", processes.memory_mib(daemon.pid))
    add("most memory", "MiB", processes.memory_mib(daemon.pid, "VmHWM"))
    add("idle CPU", "%", _idle_percent(daemon.pid, plan.sizes.idle_for_s))
    add("status", "ms", median_ms(lambda: box.run(["dibs", "status"])))
    add("first page", "ms", median_ms(lambda: queues.get(daemon, "/v1/jobs")))
    busy.open()
    found = sheet.wait(STARTS + 1, sandboxes.PATIENCE_S)
    add("next start", "ms", statistics.median(stamps.gaps_ns(found, 1)) / 1e6)


def submit(book: Book, queue: Queue, lines: Sequence[str]) -> float:
    """Return the seconds that `dibs add -` took for all lines."""
    commands = queue.box.write("commands", lines)
    began = time.monotonic()
    try:
        queue.box.run(["dibs", "add", "-"], commands, SUBMIT_FOR_S)
    except Failed as failure:
        book.note(NAME, f"{len(lines):,} jobs by one `dibs add -`: {failure}; submitted in pieces of {PIECE:,}")
        return _submit_in_pieces(queue, lines)
    return time.monotonic() - began


def _submit_in_pieces(queue: Queue, lines: Sequence[str]) -> float:
    pieces: list[Path] = []
    for first in range(0, len(lines), PIECE):
        pieces.append(queue.box.write(f"piece-{first}", lines[first : first + PIECE]))
    began = time.monotonic()
    for piece in pieces:
        queue.box.run(["dibs", "add", "-"], piece, SUBMIT_FOR_S)
    return time.monotonic() - began


def _idle_percent(pid: int, seconds: float) -> float:
    began, used_s = time.monotonic(), processes.cpu_s(pid)
    time.sleep(seconds)
    return 100 * (processes.cpu_s(pid) - used_s) / (time.monotonic() - began)


def median_ms(look: Callable[[], object]) -> float:
    def timed() -> float:
        began = time.perf_counter_ns()
        look()
        return (time.perf_counter_ns() - began) / 1e6

    return statistics.median(timed() for _ in range(LOOKS))
