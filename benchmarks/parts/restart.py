"""The daemon is killed while jobs run and wait: how soon is the next one there, knows them all, and starts one?"""

from __future__ import annotations

import json
import os
import signal
import time

from benchmarks import queues, sandboxes, stamps
from benchmarks.errors import Failed
from benchmarks.plans import Plan, Sizes, tell
from benchmarks.queues import Daemon, Queue
from benchmarks.sandboxes import PATIENCE_S
from benchmarks.series import Book, Key
from benchmarks.stamps import Sheet

NAME = "restart"
TITLE = "A new daemon after kill -9 of the old one, dibs alone"

#: Numbers of the jobs that stamp: the one that ends without a daemon, one that ends after, and the two that follow.
ENDS_BEFORE, ENDS_AFTER, FIRST, SECOND = 0, 1, 2, 3


def measure(plan: Plan, book: Book) -> None:
    """Kill and start a daemon, round by round."""
    for number in range(plan.sizes.own_rounds):
        tell(f"round {number + 1} of {plan.sizes.own_rounds}")
        try:
            with sandboxes.opened(plan.work) as box:
                queue = queues.start(box, f"fake:{plan.sizes.restart_running}")
                _one(plan.sizes, book, queue, stamps.sheet(plan.stamp, box.folder))
        except Failed as failure:
            book.note(NAME, str(failure))


def _one(sizes: Sizes, book: Book, queue: Queue, sheet: Sheet) -> None:
    subject = f"{sizes.restart_queued:,} queued, {sizes.restart_running} running"

    def add(measure: str, unit: str, value: float) -> None:
        book.add(Key(NAME, subject, measure), unit, value)

    box = queue.box
    before, after = queues.gate(box, "before"), queues.gate(box, "after")
    running = [before.command(sheet, ENDS_BEFORE), after.command(sheet, ENDS_AFTER)]
    running += ["sleep 600"] * (sizes.restart_running - 2)
    # Behind the two that stamp nothing may run and disturb: whatever gets their device keeps it.
    waiting = [sheet.command(FIRST), "sleep 600", sheet.command(SECOND), "sleep 600"]
    waiting += ["sleep 600"] * (sizes.restart_queued - len(waiting))
    daemon = queue.daemon()
    box.run(["dibs", "add", "-"], box.write("running", running))
    everything = sizes.restart_running
    queues.wait_for(f"running of {everything} jobs", lambda: _running(daemon), everything.__eq__)
    box.run(["dibs", "add", "-"], box.write("waiting", waiting))

    os.kill(daemon.pid, signal.SIGKILL)
    before.open()
    sheet.wait(1, PATIENCE_S)
    began_ns = time.monotonic_ns()
    box.run(["dibs", "daemon", "start"])
    add("answers", "s", (time.monotonic_ns() - began_ns) / 1e9)
    adopted = sizes.restart_running - 1
    sheet.wait(2, PATIENCE_S)
    add("not adopted", "", adopted - _still_running(queue.daemon(), adopted + 1))
    after.open()
    found = {stamp.number: stamp for stamp in sheet.wait(4, PATIENCE_S)}
    add("first start", "s", (found[FIRST].started_ns - began_ns) / 1e9)
    add("start after an adopted job's end", "ms", (found[SECOND].started_ns - found[ENDS_AFTER].ended_ns) / 1e6)


def _running(daemon: Daemon) -> int:
    return int(json.loads(queues.get(daemon, "/v1/jobs"))["counts"].get("running", 0))


def _still_running(daemon: Daemon, last_id: int) -> int:
    """Return how many of the jobs that ran before, all but the first, are still known to run."""
    jobs = json.loads(queues.get(daemon, f"/v1/jobs?select=2-{last_id}"))["jobs"]
    return sum(job["state"] == "running" for job in jobs)
