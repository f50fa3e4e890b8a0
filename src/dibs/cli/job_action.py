"""Shared by verbs that act on a selection of jobs: send the action and print the result for each job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from dibs.cli import screen
from dibs.client import answers, connection, queries, safe_text
from dibs.model import selectors
from dibs.submission import options
from dibs.submission.options import Args

#: Said when no job is in the selected states.
NOTHING = "no job matches: nothing to do."
#: Maximum number of jobs to list one by one.
MOST_NAMED = 20


def act(verb: str, args: Args, became: Callable[[str], str] = str, **said: object) -> answers.ActionResult:
    """Apply a verb to the selected jobs and print the result for each; `became` formats a state."""
    queries.require_words(verb, args.words)
    acted = queries.act(connection.connect(os.environ), verb, args.words, **said)
    tell(acted, args, became)
    return acted


def tell(acted: answers.ActionResult, args: Args, became: Callable[[str], str] = str) -> None:
    """Print the new state of each job, and which jobs did not change.

    On a terminal, many jobs are summarized in one line per state; a pipe always gets one line per job.
    """
    if args.has(options.JSON):
        screen.print_json(acted)
        return
    changed = acted["changed"]
    if args.has(options.QUIET):
        print("".join(f"{job['id']}\n" for job in changed), end="")
        return
    if not changed and not acted["unchanged"]:
        screen.say(NOTHING)
    if sys.stdout.isatty() and len(changed) > MOST_NAMED:
        for state in dict.fromkeys(job["state"] for job in changed):
            ids = [job["id"] for job in changed if job["state"] == state]
            which = options.shown(selectors.ranges(ids))
            print(f"{len(ids)} {'job' if len(ids) == 1 else 'jobs'} {safe_text.clean(became(state))} ({which})")
    else:
        for job in changed:
            print(f"{job['id']} {safe_text.clean(became(job['state']))}")
    # Of many that did not change, only the count of the rest.
    for left in acted["unchanged"][:MOST_NAMED]:
        why = left["why"].removeprefix(f"it is {left['state']}: ")
        print(safe_text.clean(f"{left['id']} {left['state']}: {why}"), file=sys.stderr)
    if (more := len(acted["unchanged"]) - MOST_NAMED) > 0:
        print(f"{more} more are unchanged", file=sys.stderr)
    if note := acted.get("note"):
        screen.say(f"{safe_text.clean(note)}.")
