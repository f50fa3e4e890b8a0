"""`dibs clean`: delete finished jobs, their rows and their logs."""

from __future__ import annotations

import os
import sys

from dibs.cli import screen
from dibs.client import connection, queries
from dibs.client.answers import ActionResult
from dibs.client.connection import Client
from dibs.model import units
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Delete finished jobs and their logs. Checkpoints are kept by default."
USAGE = ("[OPTIONS] [SELECTOR...]",)
CHECKPOINTS: Option[bool] = Option(("--checkpoints",), "Delete checkpoints too.")
DRY_RUN: Option[bool] = Option(("--dry-run",), "Only show what would be deleted.")
OPTIONS: tuple[Option[object], ...] = (CHECKPOINTS, DRY_RUN, options.YES, options.JSON)
EXAMPLES = ("dibs clean", "dibs clean failed --checkpoints", "dibs clean project:old+finished -y")

#: Timeout in seconds: there may be very many files to remove.
PATIENCE_S = 6 * 3600.0


def main(args: Args) -> int:
    """Show what would be deleted, ask for confirmation on a terminal, and delete it."""
    queries.select(args.words)
    queue = connection.connect(os.environ)
    is_asking = sys.stdin.isatty() and not args.has(options.YES)
    cleaned = _clean(queue, args, is_dry_run=True) if is_asking or args.has(DRY_RUN) else None
    if cleaned is not None and cleaned["jobs"] and not args.has(DRY_RUN):
        if not screen.confirm(f"delete {_amount(cleaned)} permanently?"):
            screen.say("nothing was deleted.")
            return 130
        cleaned = None
    if cleaned is None:
        cleaned = _clean(queue, args, is_dry_run=False)
    if args.has(options.JSON):
        screen.print_json(cleaned)
        return 0
    print(f"{'would delete' if args.has(DRY_RUN) else 'deleted'} {_amount(cleaned)}")
    if cleaned["needed"]:
        screen.say(f"kept {queries.few(cleaned['needed'])}: unfinished jobs depend on them.")
    return 0


def _clean(queue: Client, args: Args, *, is_dry_run: bool) -> ActionResult:
    body = {
        "verb": "clean",
        "select": list(args.words) or ["finished"],
        "checkpoints": args.has(CHECKPOINTS),
        "dry_run": is_dry_run,
    }
    answer: ActionResult = queue.post("/v1/jobs/actions", body, patience_s=PATIENCE_S)
    return answer


def _amount(cleaned: ActionResult) -> str:
    jobs = cleaned["jobs"]
    return f"{jobs} finished job{'' if jobs == 1 else 's'} and {units.format_size(cleaned['bytes'])} of files"
