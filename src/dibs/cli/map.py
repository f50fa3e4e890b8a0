"""`dibs map`: one job an argument, in the form of GNU parallel; the ids alone on stdout."""

from __future__ import annotations

import os
import sys

from dibs import client, commands
from dibs.cli import hints, job_options, options, rehearsing, screen, submission
from dibs.cli.options import Args, Option
from dibs.cli.submission import Body
from dibs.errors import UserError

SUMMARY = "Queue one job an argument, as GNU parallel runs them; print their ids."
USAGE = (
    "[OPTIONS] COMMAND... [{}] ::: ARGUMENT...",
    '[OPTIONS] "SHELL COMMAND {1} {2}" ::: ARGUMENT... ::: ...',
    "[OPTIONS] COMMAND... ::: ARGUMENT... :::+ ARGUMENT...",
)
OPTIONS: tuple[Option[object], ...] = (
    *job_options.JOB_OPTIONS,
    job_options.AT_ONCE,
    job_options.HALT,
    job_options.DRY_RUN,
    options.JSON,
)
TAKES_COMMAND = True
EXAMPLES = (
    "dibs map python evaluate.py {} ::: runs/*.ckpt",
    "dibs map -j 2 python train.py --lr {1} --seed {2} ::: 0.1 0.01 ::: 0 1 2",
    'dibs map "gzip -dc {} > {.}" ::: *.gz',
)
#: What the daemon takes in one submission.
MOST = 100_000


def main(args: Args) -> int:
    """Queue one job for each argument, or each combination of them."""
    body = read(args)
    queue = client.connect(os.environ)
    if args.has(job_options.DRY_RUN):
        return rehearsing.show(queue, args, body)
    answer = queue.post("/v1/jobs", body)
    hints.about_devices(queue.home, os.environ)
    for note in answer["notes"]:
        screen.say(note)
    if args.has(options.JSON):
        screen.print_json({"ids": answer["ids"]})
        return 0
    print("\n".join(str(job_id) for job_id in answer["ids"]))
    if sys.stderr.isatty():
        print(f"{screen.clean(answer['receipt'])}{submission.told_begin(args)}", file=sys.stderr)
    return 0


def read(args: Args) -> Body:
    """Return the request that a command line asks for."""
    from dibs import arguments
    from dibs.grid import Points
    from dibs.run_commands import Writer

    for word in args.words:
        commands.check_text(word, "the command")
    given, words = submission.split_variables(args.words)
    template, space = arguments.parse(words)
    points = Points(space)
    if points.most > MOST:
        raise UserError(
            f"expected at most {MOST:,} jobs at once, got {points.most:,}.", "For more there is `dibs sweep`."
        )
    defaults = submission.common(args, given)
    if not template.is_shell:
        submission.check_template(template, defaults, "map")
    written = [Writer(template).command(point) for point in points]
    jobs: Body = {"commands": written}
    if not template.is_shell:
        jobs = {"jobs": [{"argv": list(each)} for each in written]}
    return {"defaults": defaults} | jobs | submission.rules(args)
