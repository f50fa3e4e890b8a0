"""`dibs retry`: run finished jobs again."""

from __future__ import annotations

from dibs.cli import job_action
from dibs.client import job_state
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Retry failed jobs."
USAGE = ("[OPTIONS] SELECTOR...",)
DONE: Option[bool] = Option(("--done",), "Include jobs that succeeded.")
OPTIONS: tuple[Option[object], ...] = (DONE, options.QUIET, options.JSON)
EXAMPLES = ("dibs retry 12", "dibs retry bad", "dibs retry --done name:eval")


def main(args: Args) -> int:
    """Queue a new attempt of each selected job; return 1 if none has finished yet."""
    return job_action.code(job_action.act("retry", args, done=args.has(DONE)), *job_state.FINISHED)
