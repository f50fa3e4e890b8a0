"""`dibs move`: change the position of a waiting job in the queue."""

from __future__ import annotations

import os

from dibs.cli import screen
from dibs.client import connection, queries
from dibs.errors import UserError
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Move a waiting job within the queue, among jobs of the same priority."
USAGE = ("JOB first", "JOB last", "JOB before JOB", "JOB after JOB")
OPTIONS: tuple[Option[object], ...] = (options.QUIET, options.JSON)
EXAMPLES = ("dibs move 12 first", "dibs move @ before 7")

#: The number of words after each position.
PLACES = {"first": 0, "last": 0, "before": 1, "after": 1}


def main(args: Args) -> None:
    """Move one job."""
    words = args.words
    if len(words) < 2 or PLACES.get(words[1], -1) != len(words) - 2:
        raise UserError(f"move expected a job and first, last, before JOB or after JOB, got {options.quoted(words)}.")
    queries.select([words[0], *words[2:]])
    queue = connection.connect(os.environ)
    job_id = queries.find_one(queue, "move", words[:1])["id"]
    more = {"other": queries.find_one(queue, "move", words[2:])["id"]} if words[2:] else {}
    acted = queries.act(queue, "move", [str(job_id)], to=words[1], **more)
    if args.has(options.JSON):
        screen.print_json(acted)
        return
    if args.has(options.QUIET):
        print(job_id)
        return
    where = f"{words[1]} {more['other']}" if more else words[1]
    print(f"{job_id} {screen.clean(acted['changed'][0]['state'])}: {acted.get('note') or where}")
