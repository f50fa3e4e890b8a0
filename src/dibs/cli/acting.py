"""What the verbs on jobs that need no more than a selection have in common: do it, and say what became of each."""

from __future__ import annotations

import os

from dibs import client
from dibs.cli import answers, options, screen
from dibs.cli.options import Args


def act(verb: str, args: Args, **said: object) -> answers.Acted:
    """Do a verb to the selected jobs and say what became of each."""
    answers.require_words(verb, args.words)
    answers.select(args.words)
    acted = answers.act(client.connect(os.environ), verb, args.words, **said)
    if args.has(options.JSON):
        screen.print_json(acted)
    else:
        answers.tell(acted)
    return acted
