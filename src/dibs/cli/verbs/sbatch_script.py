"""`dibs sbatch-script`: what a job's engine gets, as text for people."""

from __future__ import annotations

import os

from dibs.cli import screen
from dibs.client import queries, stand_in
from dibs.client.answers import StartScript
from dibs.errors import UserError
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Print the batch script that starts a job on its cluster."
USAGE = ("[OPTIONS] JOB",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs sbatch-script 12", "dibs sbatch-script @ | sbatch --test-only")


def main(args: Args) -> None:
    """Print the script of one job."""
    queue = stand_in.connect(os.environ)
    ids = queries.find_ids(queue, "sbatch-script", args.words)
    if len(ids) != 1:
        raise UserError(f"sbatch-script expected one job, got {len(ids)}.")
    script: StartScript = queue.get(f"/v1/jobs/{ids[0]}/script")
    if args.has(options.JSON):
        screen.print_json(script)
    else:
        print(script["text"], end="" if script["text"].endswith("\n") else "\n")
