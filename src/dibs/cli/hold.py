"""`dibs hold`: keep queued jobs back."""

from __future__ import annotations

import os

from dibs import client
from dibs.cli import answers, options, screen
from dibs.cli.options import Args, Option

SUMMARY = "Keep queued jobs back until `dibs unhold`."
USAGE = ("[OPTIONS] SELECTOR...",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs hold 12", "dibs hold queued", "dibs hold name:vit*")


def main(args: Args) -> int:
    """Hold the selected jobs and say what became of each."""
    answers.require_words("hold", args.words)
    answers.select(args.words)
    acted = answers.act(client.connect(os.environ), "hold", args.words)
    if args.has(options.JSON):
        screen.print_json(acted)
    else:
        answers.tell(acted)
    return 0
