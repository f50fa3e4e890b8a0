"""`dibs resume`: start jobs again after `dibs pause`."""

from __future__ import annotations

from dibs.cli import options, pause
from dibs.cli.options import Args, Option

SUMMARY = "Start jobs again after `dibs pause`."
USAGE = ("[OPTIONS]",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs resume",)


def main(args: Args) -> int:
    """Let the queue go on."""
    pause.refuse_jobs("resume", args, "To let held ones go: dibs unhold SELECTOR")
    return pause.turn(args, False, "queue resumed: jobs start again")
