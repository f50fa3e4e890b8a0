"""`dibs unhold`: release held jobs."""

from __future__ import annotations

from dibs.cli import job_action
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Release held jobs into the queue."
USAGE = ("[OPTIONS] SELECTOR...",)
OPTIONS: tuple[Option[object], ...] = (options.QUIET, options.JSON)
EXAMPLES = ("dibs unhold 12", "dibs unhold held")


def main(args: Args) -> None:
    """Release the selected jobs and print the result for each."""
    job_action.act("unhold", args)
