"""`dibs why`: why a job is not running, what would help, and when it may start."""

from __future__ import annotations

import os
import sys
from datetime import datetime

from dibs.cli import expected_start, job_action, screen
from dibs.client import queries, stand_in
from dibs.client.answers import Why
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Explain why a job is waiting, what would help, and when it may start."
USAGE = ("[OPTIONS] SELECTOR...",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs why 12", "dibs why @")


def main(args: Args) -> None:
    """Print a sentence or two about each job."""
    queue = stand_in.connect(os.environ)
    reasons: list[Why] = [queue.get(f"/v1/jobs/{job_id}/why") for job_id in queries.find_ids(queue, "why", args.words)]
    if args.has(options.JSON):
        screen.print_json(reasons[0] if len(reasons) == 1 else reasons)
        return
    if not reasons:
        screen.say(job_action.NOTHING)
    view, now = screen.screen_of_stream(sys.stdout, args), screen.now()
    for why in reasons:
        parts = (f"job {why['id']}: {why['reason']}.", why["hint"], _expected(why, now))
        print(screen.wrapped(view, screen.clean(" ".join(part for part in parts if part))))


def _expected(why: Why, now: datetime) -> str:
    """Return when a waiting job is expected to start, unless the reason already says why that is unknown."""
    unknown = why["unknown"]
    if unknown is not None and unknown["why"] in why["reason"]:
        return ""
    hint = unknown["hint"] if unknown is not None and unknown["hint"] not in why["hint"] else ""
    return f"{expected_start.sentence(why['expected_start'], unknown, now)} {hint}".strip()
