"""`dibs add`: queue a command, or one per line; only the ids go to stdout."""

from __future__ import annotations

import os
import sys

from dibs.cli import screen
from dibs.client import connection
from dibs.submission import add_command, device_hints, drafts, job_options, options
from dibs.submission.options import Args, Option

#: Command lines that a daemon stores in a second, roughly.
LINES_PER_S = 40_000

SUMMARY = "Submit a command to the queue and print its id."
USAGE = (
    "[OPTIONS] COMMAND...",
    '[OPTIONS] "SHELL COMMAND"',
    "[OPTIONS] SCRIPT",
    "[OPTIONS] --script FILE [--] [ARGUMENTS]",
    "[OPTIONS] -",
    "[OPTIONS] --file FILE",
)
OPTIONS = add_command.OPTIONS
#: What verbs that submit many jobs take beside the options of a job.
MANY_OPTIONS: tuple[Option[object], ...] = (
    job_options.AT_ONCE, job_options.HALT, job_options.DRY_RUN, options.QUIET, options.JSON,
)  # fmt: skip
TAKES_COMMAND = True
EXAMPLES = (
    "dibs add python train.py --lr 1e-3",
    "dibs add -g 2 -n big -t 12h python train.py",
    'dibs add "cd runs && ./prepare.sh | tee log"',
    "dibs add --after @ --retries 2 python evaluate.py",
    "dibs add --like 12 -t 4h",
    "dibs add --preset big python train.py",
    "dibs add train.sh",
    "dibs add --array 0-99%4 --script job.sh",
    "generate-commands | dibs add -j 4 -",
)


def main(args: Args) -> None:
    """Queue the command and print its ids."""
    is_quiet = args.has(options.QUIET)
    if args.has(job_options.LIKE):
        from dibs.client import template_job  # few jobs are like another, and most submissions must be quick

        # With --file or - every line is a command.
        takes_command = not args.has(add_command.FILE)
        args = template_job.completed(args, lambda: connection.connect(os.environ), "add", takes_command=takes_command)
    args, body = add_command.draft(args, (lambda *texts: None) if is_quiet else screen.say)
    deliver(args, body, names_follow=True)


def _patience_s(args: Args, body: drafts.Body) -> float:
    """Return for how long to wait for the answer; say so before long work, on a terminal."""
    lines = body.get("lines")
    if not isinstance(lines, str):
        return connection.ANSWER_FOR_S
    count = lines.count("\n") + 1
    if sys.stderr.isatty() and not args.has(options.QUIET):
        screen.say(f"submitting {count:,} jobs, all or none; this takes about {max(1, round(count / LINES_PER_S))} s")
    return connection.ANSWER_FOR_S + 10 * count / LINES_PER_S


def deliver(args: Args, body: drafts.Body, *, names_follow: bool = False) -> None:
    """Send a request and print the ids, or for a dry run what would be queued."""
    queue = connection.connect(os.environ)
    if args.has(job_options.DRY_RUN):
        from dibs.cli import dry_run  # it prints a whole job, and its imports cost more than a submission

        dry_run.show(queue, args, body)
        return
    try:
        answer = queue.post("/v1/jobs", body, patience_s=_patience_s(args, body))
    except KeyboardInterrupt:
        # The daemon does what it has read: many jobs may be queued although nobody saw their ids.
        screen.say_if_possible("interrupted before the answer: everything was queued, or nothing. See `dibs status`")
        raise
    if not args.has(options.QUIET):
        screen.say(*device_hints.about_shell(queue.home, os.environ), *device_hints.about_assignment(body))
    for line in add_command.report(args, answer, is_terminal=sys.stderr.isatty(), names_follow=names_follow):
        is_data = line.stream == add_command.STDOUT
        print(line.text if is_data else screen.clean(line.text), file=sys.stdout if is_data else sys.stderr, flush=True)
