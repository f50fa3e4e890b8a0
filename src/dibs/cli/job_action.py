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


def code(acted: answers.ActionResult, *wanted: str) -> int:
    """Return 1 if no job changed and one is in a state that excludes the verb; `wanted` are those it would lead to."""
    return int(not acted["changed"] and any(left["state"] not in wanted for left in acted["unchanged"]))


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
    # One line for each reason, with all its jobs.
    reasons: dict[str, list[int]] = {}
    for left in acted["unchanged"]:
        why = left["why"].removeprefix("it is ").removeprefix(f"{left['state']}: ")
        reason = why if why.startswith("already ") else f"{left['state']}: {why}"
        reasons.setdefault(reason, []).append(left["id"])
    for reason, ids in reasons.items():
        print(safe_text.clean(f"{options.shown(selectors.ranges(ids))} {reason}"), file=sys.stderr)
    if note := acted.get("note"):
        screen.say(f"{safe_text.clean(note)}.")
