"""`dibs unhold`: let held jobs go on."""

from __future__ import annotations

import os

from dibs import client
from dibs.cli import answers, options, screen
from dibs.cli.options import Args, Option

SUMMARY = "Let held jobs wait for their turn again."
USAGE = ("[OPTIONS] SELECTOR...",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs unhold 12", "dibs unhold held")


def main(args: Args) -> int:
    """Unhold the selected jobs and say what became of each."""
    answers.require_words("unhold", args.words)
    answers.select(args.words)
    acted = answers.act(client.connect(os.environ), "unhold", args.words)
    if args.has(options.JSON):
        screen.print_json(acted)
    else:
        answers.tell(acted)
    return 0
