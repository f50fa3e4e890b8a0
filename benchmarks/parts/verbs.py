"""Verbs that ask or tell and end, from start to exit, in a short and in a long queue."""

from __future__ import annotations

import sys

from benchmarks import queues, sandboxes
from benchmarks.errors import Failed
from benchmarks.parts.submit import PYTHON, Command, time_once
from benchmarks.plans import Plan, tell
from benchmarks.queues import Queue
from benchmarks.series import Book

NAME = "verbs"
TITLE = "Verbs that ask or tell, from start to exit, dibs alone, one device that is busy"

#: Each with its words; of `cancel` the job is added.
VERBS = {"status": [], "why": ["2"], "show": ["2"], "gpus": [], "cancel": [], "add": ["--hold", "true"]}
#: Seconds that the submission of a long queue may take.
SUBMIT_FOR_S = 600.0


def subject(verb: str, jobs: int) -> str:
    """Return how results name a verb."""
    return f"dibs {verb}, {jobs:,} jobs"


def measure(plan: Plan, book: Book) -> None:
    """Time every verb in turn, many times, beside a bare interpreter."""
    for jobs in plan.sizes.verb_jobs:
        try:
            with sandboxes.opened(plan.work) as box:
                _one(plan, book, queues.start(box, "fake:1"), jobs)
        except Failed as failure:
            book.note(NAME, f"{jobs:,} jobs: {failure}")


def _one(plan: Plan, book: Book, queue: Queue, jobs: int) -> None:
    box, rounds = queue.box, plan.sizes.submits
    queue.wait_started(queue.add("sleep 3600"))
    lines = box.write("commands", ["true"] * (jobs + rounds))
    ids = box.run(["dibs", "add", "--hold", "-"], lines, SUBMIT_FOR_S).split()
    server = queue.database.with_name("commands.sock")
    queues.wait_for("the command server", server.exists, bool)
    bare = Command(f"{PYTHON}, {jobs:,} jobs", [sys.executable, "-c", "pass"], box.environ)
    for number in range(rounds):
        tell(f"{jobs:,} jobs, round {number + 1} of {rounds}")
        time_once(NAME, bare, book)
        for verb, words in VERBS.items():
            more = [ids[-1 - number]] if verb == "cancel" else words
            time_once(NAME, Command(subject(verb, jobs), ["dibs", verb, *more], box.environ), book)
