"""Lists of jobs over HTTP: what a page costs in a short queue and in one of a million jobs."""

from __future__ import annotations

import json
from urllib.parse import quote

from benchmarks import queues, sandboxes
from benchmarks.errors import Failed
from benchmarks.parts import depth
from benchmarks.plans import Plan, tell
from benchmarks.queues import Daemon
from benchmarks.series import Book, Key

NAME = "paging"
TITLE = "Pages of a list of jobs, dibs alone, the queue is paused"

#: Rows of a page.
LIMIT = 100
#: What is asked for, by what it is called in the results.
LISTS = {
    "by id": f"/v1/jobs?limit={LIMIT}",
    "oldest first": f"/v1/jobs?limit={LIMIT}&sort=id",
    "of a state": f"/v1/jobs?limit={LIMIT}&state=queued",
    "of no job": "/v1/jobs?state=failed,timeout,lost",
    "of a project": f"/v1/jobs?limit={LIMIT}&project=default",
    "by name": f"/v1/jobs?limit={LIMIT}&sort=name",
    "text that is nowhere": f"/v1/jobs?limit={LIMIT}&text={quote('no such text')}",
    "ids of all": "/v1/jobs/index",
    "ids of a state": "/v1/jobs/index?state=queued",
}


def measure(plan: Plan, book: Book) -> None:
    """Ask for the same lists in the shortest and in the longest queue."""
    for many in (plan.sizes.depths[0], plan.sizes.depths[-1]):
        tell(f"{many:,} jobs")
        try:
            with sandboxes.opened(plan.work) as box:
                queue = queues.start(box, "fake:1")
                box.run(["dibs", "pause"])
                depth.submit(book, queue, ["true"] * many)
                _ask(book, queue.daemon(), many)
        except Failed as failure:
            book.note(NAME, f"{many:,} jobs: {failure}")


def _ask(book: Book, daemon: Daemon, many: int) -> None:
    for name, path in LISTS.items():
        taken = depth.median_ms(lambda path=path: queues.get(daemon, path))  # type: ignore[misc]
        book.add(Key(NAME, f"{many:,}", name), "ms", taken)
    halfway = f"/v1/jobs?limit={LIMIT}&cursor={_cursor(daemon, many)}"
    book.add(Key(NAME, f"{many:,}", "halfway"), "ms", depth.median_ms(lambda: queues.get(daemon, halfway)))


def _cursor(daemon: Daemon, many: int) -> str:
    """Return where a list by id goes on in its middle."""
    told = json.loads(queues.get(daemon, f"/v1/jobs?limit=1&select={many // 2}-{many // 2 + 1}"))
    return str(told["next"])
