"""`dibs clean`: delete finished jobs, their rows and their logs."""

from __future__ import annotations

import os
import sys
from typing import TypedDict

from dibs.cli import screen
from dibs.client import connection, queries
from dibs.client.connection import Client
from dibs.model import units
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Forget finished jobs: rows and logs. Checkpoints stay unless you say so."
USAGE = ("[OPTIONS] [SELECTOR...]",)
CHECKPOINTS: Option[bool] = Option(("--checkpoints",), "Remove their checkpoints too.")
DRY_RUN: Option[bool] = Option(("--dry-run",), "Only say what would be forgotten.")
OPTIONS: tuple[Option[object], ...] = (CHECKPOINTS, DRY_RUN, options.YES, options.JSON)
EXAMPLES = ("dibs clean", "dibs clean failed --checkpoints", "dibs clean project:old+finished -y")

#: Timeout in seconds: there may be very many files to remove.
PATIENCE_S = 6 * 3600.0


class Cleaned(TypedDict):
    """The answer to `clean`."""

    jobs: int
    bytes: int
    #: Jobs that stay because others wait for them.
    needed: list[int]


def main(args: Args) -> int:
    """Show what would be deleted, ask for confirmation on a terminal, and delete it."""
    queries.select(args.words)
    queue = connection.connect(os.environ)
    is_asking = sys.stdin.isatty() and not args.has(options.YES)
    cleaned = _clean(queue, args, is_dry_run=True) if is_asking or args.has(DRY_RUN) else None
    if cleaned is not None and cleaned["jobs"] and not args.has(DRY_RUN):
        if not screen.confirm(f"forget {_amount(cleaned)} for ever?"):
            screen.say("nothing was forgotten.")
            return 130
        cleaned = None
    if cleaned is None:
        cleaned = _clean(queue, args, is_dry_run=False)
    if args.has(options.JSON):
        screen.print_json(cleaned)
        return 0
    print(f"{'would forget' if args.has(DRY_RUN) else 'forgot'} {_amount(cleaned)}")
    if cleaned["needed"]:
        screen.say(f"kept {queries.few(cleaned['needed'])}: unfinished jobs wait for what became of them.")
    return 0


def _clean(queue: Client, args: Args, *, is_dry_run: bool) -> Cleaned:
    body = {
        "verb": "clean",
        "select": list(args.words) or ["finished"],
        "checkpoints": args.has(CHECKPOINTS),
        "dry_run": is_dry_run,
    }
    answer: Cleaned = queue.post("/v1/jobs/actions", body, patience_s=PATIENCE_S)
    return answer


def _amount(cleaned: Cleaned) -> str:
    jobs = cleaned["jobs"]
    return f"{jobs} finished job{'' if jobs == 1 else 's'} and {units.format_size(cleaned['bytes'])} of files"
