"""`dibs wait`: wait until jobs have finished; the exit code says whether all succeeded."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from dibs.cli import screen
from dibs.client import connection, job_waits, queries
from dibs.client.answers import WaitSummary
from dibs.errors import TimedOut
from dibs.foreground import signals
from dibs.model import units
from dibs.submission import options, times
from dibs.submission.options import Args, Option

SUMMARY = "Wait until jobs finish: exit 0 all succeeded, 1 some did not, 6 only held ones remain."
USAGE = ("[OPTIONS] [SELECTOR...]",)
TIMEOUT = Option(("--timeout",), "Stop waiting after this time (exit code 124).", options.DURATION, "2h")
HELD = Option(
    ("--held",), "When only held jobs remain: leave (exit code 6) or wait.",
    options.one_of("leave", "wait"), "leave|wait",
)  # fmt: skip
OPTIONS: tuple[Option[object], ...] = (TIMEOUT, HELD, options.JSON)
EXAMPLES = ("dibs wait", "dibs wait 12 13 --timeout 2h", "dibs wait name:vit* && ./evaluate", "dibs wait --held wait")

#: Greater than every id.
LAST_ID = 2**31


def main(args: Args) -> int:
    """Wait for the selected jobs, or for all that are unfinished now."""
    words = args.words or _all_but(os.environ.get("DIBS_JOB_ID", ""))
    queries.select(words)
    queue = connection.connect(os.environ)
    limit_s = args.get(TIMEOUT)
    with signals.leaving(), _progress() as tell:
        until = None if limit_s is None else time.monotonic() + limit_s
        waited = job_waits.until_over(
            queue, words, until, tell, leave_held=args.get(HELD) != "wait", is_forecast=_has_progress()
        )
    if args.has(options.JSON):
        screen.print_json({key: waited[key] for key in ("total", "finished", "bad", "over", "held")})
    job_waits.require_unheld(waited)
    if not waited["over"]:
        screen.say(f"{waited['total'] - waited['finished']} of {waited['total']} jobs are not finished yet.")
        return TimedOut.exit_code
    if args.words and not waited["total"]:
        screen.say("no job matches: nothing to wait for.")
    if waited["bad"] and sys.stderr.isatty():
        screen.say(f"{waited['bad']} of {waited['total']} did not succeed: `dibs status bad cancelled`")
    return 1 if waited["bad"] else 0


def _all_but(own: str) -> Sequence[str]:
    """Return the selectors of all unfinished jobs but our own: a job that waits for itself never ends."""
    if not units.is_whole(own):
        return ()
    below, above = int(own) - 1, int(own) + 1
    return [f"unfinished+{first}-{last}" for first, last in ((1, below), (above, LAST_ID)) if first <= last]


def _has_progress() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def end(waited: WaitSummary, now: datetime) -> str:
    """Return when the last job is expected to end, as a part of the progress line; empty if that is unknown."""
    if not waited["expected_end"]:
        return ""
    at = datetime.fromisoformat(waited["expected_end"])
    return f", all {times.between(at, at, now)}" if at > now else ""


@contextmanager
def _progress() -> Iterator[Callable[[WaitSummary], None]]:
    if not _has_progress():
        yield lambda waited: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.completed} of {task.total} finished{task.fields[more]}")
    progress = Progress(BarColumn(), text, TimeElapsedColumn(), console=Console(stderr=True), transient=True)

    def tell(waited: WaitSummary) -> None:
        if waited["over"] and not progress.task_ids:
            # Nothing to wait for: do not flash a bar.
            return
        # Start late: an earlier refusal is then printed as one line on a clean screen.
        progress.start()
        for task in progress.task_ids or [progress.add_task("", total=waited["total"], more="")]:
            bad = f", {waited['bad']} failed" if waited["bad"] else ""
            more = f"{bad}{end(waited, screen.now())}"
            progress.update(task, completed=waited["finished"], total=waited["total"], more=more)

    try:
        yield tell
    finally:
        # The terminal may be gone.
        with suppress(OSError):
            progress.stop()
