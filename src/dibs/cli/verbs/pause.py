"""`dibs pause`: start nothing new, or stop the processes of running jobs, until `dibs resume`."""

from __future__ import annotations

import os

from dibs.cli import job_action, screen
from dibs.client import connection
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Pause the queue, or suspend running jobs."
USAGE = ("[OPTIONS]", "[OPTIONS] SELECTOR...")
OPTIONS: tuple[Option[object], ...] = (options.QUIET, options.JSON)
EXAMPLES = ("dibs pause", "dibs pause && dibs wait running", "dibs pause 12")


def main(args: Args) -> int:
    """Pause the queue, or the selected jobs; return 1 if none of them was running."""
    if not args.words:
        turn(args, True, "queue paused; running jobs continue")
        return 0
    acted = job_action.act("pause", args)
    if acted["changed"] and not args.has(options.JSON) and not args.has(options.QUIET):
        screen.say("a paused job keeps its GPUs and their memory; its time limit is suspended.")
    return job_action.code(acted, "paused")


def turn(args: Args, is_paused: bool, text: str) -> None:
    """Pause or resume the queue, and print the result."""
    queue = connection.connect(os.environ).post("/v1/queue", {"paused": is_paused})
    if args.has(options.JSON):
        screen.print_json(queue)
    elif not args.has(options.QUIET):
        print(text)
