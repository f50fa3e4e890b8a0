"""`dibs follow`: print a job's output until it ends; the same as `dibs log -f`."""

from __future__ import annotations

import os

from dibs.cli.verbs import log
from dibs.client import connection, queries
from dibs.submission.options import Args, Option

SUMMARY = "Follow a job's output until it ends; exit with the job's code."
USAGE = ("[OPTIONS] SELECTOR",)
OPTIONS: tuple[Option[object], ...] = (log.LINES,)
EXAMPLES = ("dibs follow 12", "dibs follow -n 20 @")


def main(args: Args) -> int:
    """Follow one job to its end."""
    queue = connection.connect(os.environ)
    job = queries.find_one(queue, "follow", args.words)
    return log.show(queue, job, None, args.get(log.LINES), is_followed=True)
