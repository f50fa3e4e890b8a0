"""`dibs pause`: start nothing new until `dibs resume`."""

from __future__ import annotations

import os

from dibs import client
from dibs.cli import options, screen
from dibs.cli.options import Args, Option
from dibs.errors import UserError

SUMMARY = "Start nothing new; running jobs go on."
USAGE = ("[OPTIONS]",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs pause", "dibs pause && dibs wait running")


def main(args: Args) -> int:
    """Pause the queue."""
    refuse_jobs("pause", args, "To keep queued ones back: dibs hold SELECTOR")
    return turn(args, True, "queue paused: nothing new starts; running jobs go on")


def refuse_jobs(verb: str, args: Args, hint: str) -> None:
    """Refuse selectors: nobody must think that one job was meant and understood."""
    if args.words:
        given = options.shown(" ".join(args.words))
        raise UserError(f'{verb} takes no jobs, got "{given}": pausing single jobs is not there yet.', hint)


def turn(args: Args, is_paused: bool, told: str) -> int:
    """Pause the queue or let it go on, and say so."""
    queue = client.connect(os.environ).post("/v1/queue", {"paused": is_paused})
    if args.has(options.JSON):
        screen.print_json(queue)
    else:
        print(told)
    return 0
