"""`dibs wait`: block until jobs have finished; the exit code says whether all succeeded."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dibs import answers, client, options
from dibs.absence import Absence
from dibs.answers import Waited
from dibs.cli import screen, signals
from dibs.errors import NoDaemon
from dibs.options import Args, Option

SUMMARY = "Wait for jobs: 0 if all are done, 1 if not, 124 if the time is over."
USAGE = ("[OPTIONS] [SELECTOR...]",)
TIMEOUT = Option(("--timeout",), "Give up after this long.", options.DURATION, "2h")
OPTIONS: tuple[Option[object], ...] = (TIMEOUT, options.JSON)
EXAMPLES = ("dibs wait", "dibs wait 12 13 --timeout 2h", "dibs wait name:vit* && ./evaluate")

#: Seconds of one long poll.
POLL_FOR_S = 20.0
#: Seconds between two questions at least: a daemon that is about to stop answers at once.
REST_S = 0.05
TIMED_OUT = 124


def main(args: Args) -> int:
    """Wait for the selected jobs, or for all that are unfinished now."""
    answers.select(args.words)
    queue = client.connect(os.environ)
    limit_s = args.get(TIMEOUT)
    with signals.leaving(), _progress() as tell:
        waited = until_over(queue, args.words, None if limit_s is None else time.monotonic() + limit_s, tell)
    if args.has(options.JSON):
        screen.print_json({key: waited[key] for key in ("total", "finished", "bad", "over")})
    if not waited["over"]:
        screen.say(f"{waited['total'] - waited['finished']} of {waited['total']} jobs are not finished yet.")
        return TIMED_OUT
    if waited["bad"] and sys.stderr.isatty():
        screen.say(f"{waited['bad']} of {waited['total']} did not succeed: `dibs status bad`")
    return 1 if waited["bad"] else 0


def until_over(
    queue: client.Client, words: tuple[str, ...], until: float | None, tell: Callable[[Waited], None]
) -> Waited:
    """Return when all jobs have finished or the moment `until` has come; `tell` hears of each that finishes."""
    query = answers.select(words)
    waited: Waited = queue.get("/v1/jobs/wait", [*query, ("seen", "-1"), ("wait_s", "0")])
    tell(waited)
    while not waited["over"]:
        left_s = POLL_FOR_S if until is None else until - time.monotonic()
        if left_s <= 0:
            break
        more = [("seen", str(waited["finished"])), ("wait_s", f"{min(left_s, POLL_FOR_S):.3f}")]
        waited = _ask(queue, [*query, *more, ("mark", waited["mark"])], until) or waited
        tell(waited)
        time.sleep(0 if waited["over"] else min(left_s, REST_S))
    return waited


def _ask(queue: client.Client, query: list[tuple[str, str]], until: float | None) -> Waited | None:
    """Ask once, or until a daemon that went away is back; None if the time was over before that."""
    absence = Absence(queue)
    while until is None or time.monotonic() < until:
        if absence.is_over():
            try:
                answer: Waited = queue.get("/v1/jobs/wait", query)
                return answer
            except NoDaemon as error:
                absence.go_on(error)
        time.sleep(REST_S)
    return None


@contextmanager
def _progress() -> Iterator[Callable[[Waited], None]]:
    """Show a bar on a terminal that can draw one, nothing elsewhere."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda waited: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.completed} of {task.total} finished{task.fields[bad]}")
    progress = Progress(BarColumn(), text, TimeElapsedColumn(), console=Console(stderr=True), transient=True)

    def tell(waited: Waited) -> None:
        if waited["over"] and not progress.task_ids:
            # Nothing to wait for: no bar for a moment.
            return
        # Only now: what is refused before is said in one line on a screen that nobody has touched.
        progress.start()
        for task in progress.task_ids or [progress.add_task("", total=waited["total"], bad="")]:
            bad = f", {waited['bad']} not done" if waited["bad"] else ""
            progress.update(task, completed=waited["finished"], total=waited["total"], bad=bad)

    try:
        yield tell
    finally:
        # The terminal may be what we lost.
        with suppress(OSError):
            progress.stop()
