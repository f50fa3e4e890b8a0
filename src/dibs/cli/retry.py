"""`dibs retry`: a new attempt of finished jobs."""

from __future__ import annotations

import os

from dibs import client
from dibs.cli import answers, options, screen
from dibs.cli.options import Args, Option

SUMMARY = "Queue finished jobs that did not succeed once more."
USAGE = ("[OPTIONS] SELECTOR...",)
DONE: Option[bool] = Option(("--done",), "Those that succeeded as well.")
OPTIONS: tuple[Option[object], ...] = (DONE, options.JSON)
EXAMPLES = ("dibs retry 12", "dibs retry bad", "dibs retry --done name:eval")


def main(args: Args) -> int:
    """Queue a new attempt of each selected job."""
    answers.require_words("retry", args.words)
    answers.select(args.words)
    acted = answers.act(client.connect(os.environ), "retry", args.words, done=args.has(DONE))
    if args.has(options.JSON):
        screen.print_json(acted)
    else:
        answers.tell(acted)
    return 0
