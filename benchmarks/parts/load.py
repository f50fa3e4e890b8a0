"""Many readers: do jobs notice that hundreds listen and ask, and what does the daemon need for it?"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import processes, queues, sandboxes, stamps
from benchmarks.errors import Failed
from benchmarks.parts import gap
from benchmarks.plans import SLOTS, Plan, Sizes, tell
from benchmarks.queues import Queue
from benchmarks.sandboxes import PATIENCE_S
from benchmarks.series import Book, Key, quantile

NAME = "load"
TITLE = f"Short jobs on {SLOTS} pretend GPUs, with and without a crowd of readers, dibs alone"

ALONE, CROWD = "nobody reads", "a crowd reads"
#: Jobs before all others: a daemon lives for days, and its first ones are not what is measured.
WARMING = SLOTS
#: How far the lengths of jobs differ from their mean, so that the slots do not fall into step.
SPREAD = gap.LONGEST_US / (gap.SHORTEST_US + gap.LONGEST_US) * 2 - 1


def measure(plan: Plan, book: Book) -> None:
    """Run the same jobs alone and with a crowd, round by round."""
    sizes = plan.sizes
    book.note(NAME, f"the crowd: {sizes.load_streams} event streams, {sizes.load_rate:g} requests/s")
    for number in range(sizes.own_rounds):
        for subject in (ALONE, CROWD):
            tell(f"round {number + 1} of {sizes.own_rounds}: {subject}")
            try:
                with sandboxes.opened(plan.work) as box:
                    _one(plan, book, queues.start(box, f"fake:{SLOTS}"), subject, random.Random(number))
            except Failed as failure:
                book.note(NAME, f"{subject}: {failure}")


def _one(plan: Plan, book: Book, queue: Queue, subject: str, chance: random.Random) -> None:
    def add(measure: str, unit: str, value: float) -> None:
        book.add(Key(NAME, subject, measure), unit, value)

    sheet = stamps.sheet(plan.stamp, queue.box.folder)
    lengths = _lengths_us(plan.sizes, chance)
    warm = queue.box.write("warming", [sheet.command(number) for number in range(WARMING)])
    commands = queue.box.write("commands", [sheet.command(n, us) for n, us in enumerate(lengths, WARMING)])
    queue.box.run(["dibs", "add", "-"], warm)
    sheet.wait(WARMING, PATIENCE_S)
    pid = queue.daemon().pid
    before = _need(pid)
    with contextlib.ExitStack() as until_done:
        crowd = until_done.enter_context(_crowd(queue, plan.sizes)) if subject == CROWD else None
        queue.box.run(["dibs", "add", "-"], commands)
        found = sheet.wait(WARMING + len(lengths), PATIENCE_S + 3 * plan.sizes.load_for_s)
        during = _need(pid)
        told = _told(crowd) if crowd else None
    stamps.check(found, range(WARMING + len(lengths)), SLOTS)
    gaps_ms = [gap_ns / 1e6 for gap_ns in stamps.gaps_ns(found[WARMING:], SLOTS)]
    add("gap p50", "ms", quantile(gaps_ms, 0.5))
    add("gap p99", "ms", quantile(gaps_ms, 0.99))
    add("CPU of the daemon per job", "ms", (during.cpu_s - before.cpu_s) * 1000 / len(lengths))
    if told is not None:
        _tell(book, add, told)
    after = queues.wait_for("descriptors", lambda: _need(pid), lambda now: now.files <= before.files + SLOTS)
    for when, need in (("before", before), ("during", during), ("after", after)):
        add(f"memory {when}", "MiB", need.memory_mib)
        add(f"files {when}", "", need.files)


def _lengths_us(sizes: Sizes, chance: random.Random) -> list[int]:
    """Return the lengths of jobs that keep all slots busy for as long as is asked."""
    mean_us = sizes.load_for_s * SLOTS / sizes.load_jobs * 1e6
    return [round(chance.uniform(1 - SPREAD, 1 + SPREAD) * mean_us) for _ in range(sizes.load_jobs)]


@dataclass(frozen=True, slots=True)
class Need:
    """What the daemon takes of the machine."""

    memory_mib: float
    files: int
    cpu_s: float


def _need(pid: int) -> Need:
    return Need(processes.memory_mib(pid), len(os.listdir(f"/proc/{pid}/fd")), processes.cpu_s(pid))


@contextlib.contextmanager
def _crowd(queue: Queue, sizes: Sizes) -> Iterator[subprocess.Popen[str]]:
    """Let a crowd read while inside."""
    words = [sys.executable, "-m", "benchmarks.crowd", queue.daemon().socket]
    words += [str(sizes.load_streams), str(sizes.load_rate)]
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as crowd:
        try:
            assert crowd.stdout is not None
            if crowd.stdout.readline() != "ready\n":
                raise Failed("the crowd could not listen")
            yield crowd
        finally:
            crowd.kill()


def _told(crowd: subprocess.Popen[str]) -> dict[str, Any]:
    """Send the crowd home, and return what it saw."""
    output, _ = crowd.communicate(timeout=PATIENCE_S)
    return dict(json.loads(output))


def _tell(book: Book, add: Any, told: dict[str, Any]) -> None:
    for failure in dict.fromkeys(told["failures"]):
        book.note(NAME, failure)
    if not told["took_ms"]:
        raise Failed("no request was answered")
    add("API p50", "ms", quantile(told["took_ms"], 0.5))
    add("API p99", "ms", quantile(told["took_ms"], 0.99))
    add("requests", "", len(told["took_ms"]))
    add("failed requests", "", len(told["failures"]))
    add("streams cut", "", told["cut"])
    add("received", "MiB", told["received"] / 2**20)
