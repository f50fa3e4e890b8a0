"""`dibs add`: queue a command, or one a line; the ids alone on stdout."""

from __future__ import annotations

import os
import sys

from dibs.cli import hints, screen
from dibs.client import connection
from dibs.errors import UserError
from dibs.submission import drafts, job_options, options, script_files
from dibs.submission.options import Args, Option

SUMMARY = "Queue a command; print its id."
USAGE = (
    "[OPTIONS] COMMAND...",
    '[OPTIONS] "SHELL COMMAND"',
    "[OPTIONS] SCRIPT",
    "[OPTIONS] --script FILE [--] [ARGUMENTS]",
    "[OPTIONS] -",
    "[OPTIONS] --file FILE",
)
FILE = Option(("--file",), "One job a line of this file; - is stdin.", options.PATH, "FILE")
OPTIONS: tuple[Option[object], ...] = (*job_options.OPTIONS, *job_options.BATCH_OPTIONS, FILE, options.JSON)
TAKES_COMMAND = True
EXAMPLES = (
    "dibs add python train.py --lr 1e-3",
    "dibs add -g 2 -n big -t 12h python train.py",
    'dibs add "cd runs && ./prepare.sh | tee log"',
    "dibs add --after @ --retries 2 python evaluate.py",
    "dibs add train.sh",
    "dibs add --array 0-99%4 --script job.sh",
    "generate-commands | dibs add -j 4 -",
)


def main(args: Args) -> int:
    """Queue what was given and print the ids."""
    asking = read(args)
    return deliver(asking.args, asking.body, follows_one=True)


def deliver(args: Args, body: drafts.Body, *, follows_one: bool = False) -> int:
    """Send a request and print the ids, or what would be queued; `follows_one`: say how to follow a single job."""
    queue = connection.connect(os.environ)
    if args.has(job_options.DRY_RUN):
        from dibs.cli import dry_run  # draws a job whole; who queues one does not pay for it

        return dry_run.show(queue, args, body)
    answer = queue.post("/v1/jobs", body)
    hints.about_devices(queue.home, os.environ)
    hints.about_assignment(body)
    hints.about_submission(answer)
    ids = answer["ids"]
    if args.has(options.JSON):
        screen.print_json({"ids": ids})
        return 0
    print("\n".join(str(job_id) for job_id in ids))
    if sys.stderr.isatty():
        follow = f"; dibs follow {ids[0]}" if follows_one and len(ids) == 1 else ""
        print(f"{screen.clean(answer['receipt'])}{drafts.told_begin(args)}{follow}", file=sys.stderr)
    return 0


def read(args: Args) -> script_files.Asking:
    """Return what a command line asks for."""
    file = args.get(FILE)
    if file is None and (args.words != ("-",) or args.has(job_options.SCRIPT)):
        return script_files.read(args, "add", screen.say)
    return script_files.Asking(args, _lines(args, file))


def _lines(args: Args, file: str | None) -> drafts.Body:
    if file is not None and args.words:
        raise UserError(f'--file takes no command, got "{options.shown(" ".join(args.words))}".')
    for option in (job_options.SCRIPT, job_options.WRAP, job_options.ARRAY):
        if args.has(option):
            raise UserError(f"{option.names[0]} is for one command, not for one a line.")
    if file in (None, "-"):
        return drafts.from_lines(args, sys.stdin.buffer, "stdin")
    assert file is not None
    try:
        with open(file, "rb") as lines:
            return drafts.from_lines(args, lines, file)
    except OSError as error:
        raise UserError(f"--file cannot read {file}: {error.strerror}.") from None
