"""`dibs cancel`: drop waiting jobs, stop running ones."""

from __future__ import annotations

import os
import sys

from dibs.cli import job_action, screen
from dibs.client import connection, job_waits, queries
from dibs.client.answers import ActionResult
from dibs.errors import NotFound
from dibs.model import units
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import settings

SUMMARY = "Cancel queued jobs and stop running ones, with all their processes."
USAGE = ("[OPTIONS] SELECTOR...",)
GRACE = Option(("--grace",), "Time between SIGTERM and SIGKILL.", options.DURATION, "30s")
WAIT: Option[bool] = Option(("--wait",), "Wait until the jobs have ended.")
OPTIONS: tuple[Option[object], ...] = (GRACE, options.YES, WAIT, options.QUIET, options.JSON)
EXAMPLES = ("dibs cancel 12", "dibs cancel queued", "dibs cancel --grace 5m 12-20")


def main(args: Args) -> int:
    """Cancel the selected jobs and print the result for each."""
    queries.require_words("cancel", args.words)
    given = args.get(GRACE)
    grace_s = settings.load(os.environ).grace if given is None else given
    queue = connection.connect(os.environ)
    if not args.has(options.YES) and sys.stdin.isatty() and not _is_meant(queue, args):
        screen.say("nothing was cancelled.")
        return 130
    acted = queries.act(queue, "cancel", args.words, grace_s=grace_s)
    if args.has(WAIT):
        acted = _ended(queue, acted)
    how = f": TERM now, KILL in {units.format_duration(grace_s)}"
    job_action.tell(acted, args, lambda state: f"{state}{how}" if state == "stopping" else state)
    return 0


def _is_meant(queue: connection.Client, args: Args) -> bool:
    """Ask for confirmation before several running jobs are ended."""
    # Fetch only these: the rest may be a hundred thousand.
    words = [f"{word}+{state}" for word in queries.compact(args.words) for state in ("running", "paused")]
    try:
        running = queries.overview(queue, words)["jobs"]
    except NotFound:
        return True
    if len(running) < 2:
        return True
    few = queries.few([job["id"] for job in running])
    return screen.confirm(f"stop {len(running)} running jobs ({few})?")


def _ended(queue: connection.Client, acted: ActionResult) -> ActionResult:
    stopping = [job["id"] for job in (*acted["changed"], *acted["unchanged"]) if job["state"] == "stopping"]
    if stopping:
        words = tuple(str(job_id) for job_id in stopping)
        job_waits.until_over(queue, words, None)
        states = {job["id"]: job["state"] for job in queries.overview(queue, words)["jobs"]}
        for job in (*acted["changed"], *acted["unchanged"]):
            job["state"] = states.get(job["id"], job["state"])
    return acted
