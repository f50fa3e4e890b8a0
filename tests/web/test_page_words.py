"""Words that the page has of its own, because it must have them before it asks: the same as those of the daemon."""

from __future__ import annotations

import re
from pathlib import Path

from dibs.cli.verbs import show
from dibs.model import lifecycle, selectors
from dibs.model.jobs import State

WEB = Path(__file__).parents[2] / "src/dibs/web"


def written(name: str, begin: str, end: str) -> str:
    """Return a part of a file of the page."""
    return (WEB / name).read_text().partition(begin)[2].partition(end)[0]


def test_the_filter_knows_every_state_and_group() -> None:
    words = re.findall(r'"(\w+)"', written("pages/jobs/filters.js", "STATES = new Set([", "]);"))
    assert sorted(words) == sorted([*selectors.STATE_WORDS, *selectors.GROUP_WORDS])


def test_events_have_the_words_of_the_command_line() -> None:
    events = written("pages/job/job-text.js", "const EVENTS = {\n", "};")
    pairs = re.findall(r'^  (\w+): "([^"]+)",$', events, re.MULTILINE)
    assert dict(pairs) == show.EVENT_WORDS


def test_the_page_knows_the_events_with_which_jobs_end() -> None:
    """All that lead to the end, but for what somebody asked for himself."""
    words = re.findall(r'"(\w+)"', written("core/state.js", "ENDS = new Set([", "]);"))
    ends = {event.__name__ for (_, event), after in lifecycle.TRANSITIONS.items() if after is State.FINISHED}
    assert set(words) == ends - {"CancelAsked", "GivenUp"}
