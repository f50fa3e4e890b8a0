"""`dibs map`: one job per argument, with the syntax of GNU parallel; only the ids go to stdout."""

from __future__ import annotations

import os

from dibs.cli import screen
from dibs.cli.verbs import add
from dibs.client import connection, template_job
from dibs.errors import UserError
from dibs.submission import drafts, job_options, options
from dibs.submission.drafts import Body
from dibs.submission.options import Args, Option
from dibs.system import commands

SUMMARY = "Submit one job per argument, like GNU parallel, and print their ids."
USAGE = (
    "[OPTIONS] COMMAND... [{}] ::: ARGUMENT...",
    '[OPTIONS] "SHELL COMMAND {1} {2}" ::: ARGUMENT... ::: ...',
    "[OPTIONS] COMMAND... ::: ARGUMENT... :::+ ARGUMENT...",
)
OPTIONS: tuple[Option[object], ...] = (*job_options.JOB_OPTIONS, *job_options.TEMPLATES, *add.MANY_OPTIONS)
TAKES_COMMAND = True
EXAMPLES = (
    "dibs map python evaluate.py {} ::: runs/*.ckpt",
    "dibs map -j 2 python train.py --lr {1} --seed {2} ::: 0.1 0.01 ::: 0 1 2",
    'dibs map "gzip -dc {} > {.}" ::: *.gz',
)
#: The daemon's limit for one submission.
MOST = 100_000


def main(args: Args) -> None:
    """Queue one job per argument, or per combination of arguments."""
    args = template_job.completed(args, lambda: connection.connect(os.environ), "map", takes_command=False)
    body = read(args)
    if not args.has(options.QUIET) and (warning := drafts.first_warning(args, drafts.lines_of(body), body)):
        screen.say(warning)
    add.deliver(args, body)


def read(args: Args) -> Body:
    """Return the request that the command line describes."""
    from dibs.sweeps import parallel_args
    from dibs.sweeps.grid import Points
    from dibs.sweeps.templates import Writer

    for word in args.words:
        commands.check_text(word, "the command")
    given, words = drafts.split_variables(args.words)
    template, space = parallel_args.parse(words)
    points = Points(space)
    if points.most > MOST:
        raise UserError(f"expected at most {MOST:,} jobs at once, got {points.most:,}.", "Use `dibs sweep` for more.")
    defaults = drafts.common(args, given)
    if not template.is_shell:
        drafts.check_template(args, template, defaults, "map")
    written = [Writer(template).command(point) for point in points]
    jobs: Body = {"commands": written}
    if not template.is_shell:
        jobs = {"jobs": [{"argv": list(each)} for each in written]}
    return {"defaults": defaults} | jobs | drafts.rules(args)
