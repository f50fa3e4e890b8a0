"""`dibs hold`: prevent queued jobs from starting."""

from __future__ import annotations

from dibs.cli import job_action
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Hold queued jobs until `dibs unhold`."
USAGE = ("[OPTIONS] SELECTOR...",)
OPTIONS: tuple[Option[object], ...] = (options.QUIET, options.JSON)
EXAMPLES = ("dibs hold 12", "dibs hold queued", "dibs hold name:vit*")


def main(args: Args) -> int:
    """Hold the selected jobs and print the result for each; return 1 if none of them was waiting."""
    return job_action.code(job_action.act("hold", args), "held")
