"""`dibs version`: the version of dibs, and of the daemon if it differs."""

from __future__ import annotations

import os
import platform

from dibs.cli import screen
from dibs.client import connection, queries
from dibs.client.daemon_process import Unresponsive
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.version import __version__

SUMMARY = "Show the version of dibs and of the running daemon."
USAGE = ("[OPTIONS]",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs version", "dibs --version")


def main(args: Args) -> None:
    """Print the version; ask a daemon only if one runs."""
    options.refuse_words("version", args)
    try:
        running = queries.identity(connection.connect(os.environ))
    except Unresponsive as error:
        screen.say(error.line())
        running = None
    theirs = running["version"] if running else None
    if args.has(options.JSON):
        facts = {"python": platform.python_version(), "kernel": platform.release(), "machine": platform.machine()}
        screen.print_json({"version": __version__, "daemon": theirs, **facts})
        return
    print(f"dibs {__version__}")
    if theirs not in (None, __version__):
        print(screen.clean(f"daemon {theirs} (`dibs daemon restart` starts this one; running jobs continue)"))
