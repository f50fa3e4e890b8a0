"""`dibs resume`: resume the queue or paused jobs."""

from __future__ import annotations

from dibs.cli import job_action
from dibs.cli.verbs import pause
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Resume the queue or paused jobs."
USAGE = ("[OPTIONS]", "[OPTIONS] SELECTOR...")
OPTIONS: tuple[Option[object], ...] = (options.QUIET, options.JSON)
EXAMPLES = ("dibs resume", "dibs resume 12", "dibs resume paused")


def main(args: Args) -> None:
    """Resume the queue, or the selected jobs."""
    if args.words:
        job_action.act("resume", args)
    else:
        pause.turn(args, False, "queue resumed")
