"""`dibs retry`: run finished jobs again."""

from __future__ import annotations

from dibs.cli import job_action
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Queue finished jobs that did not succeed once more."
USAGE = ("[OPTIONS] SELECTOR...",)
DONE: Option[bool] = Option(("--done",), "Those that succeeded as well.")
OPTIONS: tuple[Option[object], ...] = (DONE, options.JSON)
EXAMPLES = ("dibs retry 12", "dibs retry bad", "dibs retry --done name:eval")


def main(args: Args) -> None:
    """Queue a new attempt of each selected job."""
    job_action.act("retry", args, done=args.has(DONE))
