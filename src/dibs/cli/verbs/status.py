"""`dibs status`, or just `dibs`: an overview on a terminal, a plain table for scripts."""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime
from pathlib import Path

from dibs.cli import job_columns, repaint, screen, status_view
from dibs.cli.screen import Screen
from dibs.client import connection, queries, stand_in
from dibs.client.answers import Jobs
from dibs.client.queries import Starts
from dibs.errors import NoDaemon, UserError
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import logout_policy
from dibs.version import __version__

SUMMARY = "Show the machine and the running, next and latest jobs, or selected jobs."
USAGE = ("[OPTIONS] [SELECTOR...]",)
OPTIONS: tuple[Option[object], ...] = (*job_columns.OPTIONS, repaint.WATCH, options.QUIET, options.JSON)
EXAMPLES = (
    "dibs",
    "dibs status -w",
    "dibs status failed since:24h",
    "dibs status all",
    "dibs status all --sort -priority,id --columns id,name,priority,time",
    "dibs status running --format '{id} {gpu} {report.loss}'",
    "dibs status -q name:vit*+queued",
    "dibs status --json | jq '.jobs[].id'",
)

DAY_S = 86400.0
NOTHING = "No job matches."


def main(args: Args) -> int:
    """Print jobs as an overview, as a table, as ids, or as JSON."""
    queue = stand_in.connect(os.environ)
    view = screen.screen_of_stream(sys.stdout, args)
    is_data = args.has(options.JSON) or args.has(options.QUIET)
    is_chosen = any(args.has(option) for option in job_columns.OPTIONS)
    if is_chosen and is_data:
        raise UserError("--columns, --sort and --format are for rows, not for --json and --quiet.", "Leave one out.")
    answer = queries.overview(queue, args.words, None if is_data or is_chosen else status_view.FOLD_FROM)
    if args.has(repaint.WATCH) and view.is_terminal and not is_data:
        return repaint.watch(lambda: _look_again(queue, args), args.get(repaint.WATCH) or repaint.USUAL_S)
    if args.has(options.JSON):
        screen.print_json(answer)
    elif args.has(options.QUIET):
        print("".join(f"{job['id']}\n" for job in answer["jobs"]), end="")
    elif is_chosen:
        _print_chosen(view, args, answer)
    elif view.is_terminal:
        print(picture(view, args, answer, _starts(queue, args, answer)))
        screen.say(*_hints(answer, queue.home))
    else:
        _print_plain(view, args, answer)
    return 0


def _look_again(queue: connection.Client, args: Args) -> str:
    """Return the current screen; if the daemon was stopped, raise NoDaemon instead of starting one."""
    if not queue.is_daemon_there():
        raise NoDaemon("the daemon is not running any more; waiting for it.")
    if any(args.has(option) for option in job_columns.OPTIONS):
        return _chosen(screen.screen_of_stream(sys.stdout, args), args, queries.overview(queue, args.words)) or NOTHING
    answer = queries.overview(queue, args.words, status_view.FOLD_FROM)
    return picture(screen.screen_of_stream(sys.stdout, args), args, answer, _starts(queue, args, answer))


def _starts(queue: connection.Client, args: Args, answer: Jobs) -> Starts:
    """Return the expected starts, if the overview shows them."""
    return queries.starts(queue, status_view.NEXT_ROWS) if answer["counts"].get("queued") and not args.words else {}


def picture(view: Screen, args: Args, answer: Jobs, starts: Starts) -> str:
    """Return the screen for a terminal: the overview, or one row per selected job."""
    now = screen.now()
    if not args.words:
        return status_view.paint(view, answer, now, starts)
    head = [status_view.headline(answer), *status_view.warnings(answer["machine"])]
    lines = [screen.wrapped(view, screen.clean(line), "  ") for line in head]
    return "\n".join([*lines, _one_by_one(view, answer, now) if answer["jobs"] else NOTHING])


def _one_by_one(view: Screen, answer: Jobs, now: datetime) -> str:
    """Return a table with one row per job."""
    return status_view.table(view, [[status_view.alone(job) for job in answer["jobs"]]], now)


def _print_plain(view: Screen, args: Args, answer: Jobs) -> None:
    """Print the rows of a terminal, complete and with a header; messages about the queue go to stderr."""
    said = [status_view.PAUSED] if answer["queue"]["paused"] else []
    said += status_view.warnings(answer["machine"])
    for text in said:
        print(screen.clean(text), file=sys.stderr)
    screen.say(*on_skew(answer))
    if answer["jobs"]:
        now = screen.now()
        folded = status_view.table(view, status_view.arrange(answer, {}), now) if not args.words else ""
        print(folded or _one_by_one(view, answer, now))
    else:
        print(NOTHING if args.words else status_view.EMPTY, file=sys.stderr)


def _print_chosen(view: Screen, args: Args, answer: Jobs) -> None:
    """Print one row per job with the columns that were asked for; nothing but rows goes to stdout."""
    if text := _chosen(view, args, answer):
        print(text)
    else:
        print(NOTHING if args.words else status_view.EMPTY, file=sys.stderr)


def _chosen(view: Screen, args: Args, answer: Jobs) -> str:
    now = screen.now()
    jobs = job_columns.ordered(answer["jobs"], args.get(job_columns.SORT) or (), now)
    names = args.get(job_columns.COLUMNS) or job_columns.USUAL
    form = args.get(job_columns.FORMAT) or "table"
    return job_columns.lines(view, jobs, names, form, now) if jobs or form in ("csv", "tsv") else ""


def on_skew(answer: Jobs) -> list[str]:
    """Return a hint if the daemon's version differs from ours."""
    theirs = answer["daemon"]["version"] if "daemon" in answer else "an older version"
    if theirs == __version__:
        return []
    return [f"the daemon is {theirs}, this is dibs {__version__}: `dibs daemon restart`; running jobs continue."]


def _hints(answer: Jobs, home: Path) -> list[str]:
    """Return the hints below the overview on a terminal."""
    why = logout_policy.logout_kills(answer["daemon"]["pid"]) if "daemon" in answer else None
    return [*on_skew(answer), *on_logout(why, home)]


def on_logout(why: str | None, home: Path) -> list[str]:
    """Return a hint that a logout would end jobs, at most once a day."""
    return [f"{why}. {logout_policy.REMEDY}"] if why and _is_due(home / "told-logout", time.time()) else []


def _is_due(stamp: Path, now: float) -> bool:
    """Return whether a hint was not given in the last 24 hours, and record that it is given now."""
    try:
        if 0 <= now - stamp.stat().st_mtime < DAY_S:
            return False
    except OSError:
        pass
    try:
        fd = os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.utime(fd, (now, now))
        os.close(fd)
    except OSError:
        # Without a record the hint would appear every time.
        return False
    return True
