"""Lists that the page contains, because it needs them before its first request: equal to those of the daemon."""

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


def test_the_filter_has_every_state_and_group() -> None:
    words = re.findall(r'"(\w+)"', written("pages/jobs/filters.js", "STATES = new Set([", "]);"))
    assert sorted(words) == sorted([*selectors.STATE_WORDS, *selectors.GROUP_WORDS])


def test_events_have_the_texts_of_the_command_line() -> None:
    events = written("pages/job/job-text.js", "const EVENTS = {\n", "};")
    pairs = re.findall(r'^  (\w+): "([^"]+)",$', events, re.MULTILINE)
    assert dict(pairs) == show.EVENT_WORDS


def test_the_page_knows_the_events_that_end_a_job() -> None:
    """All that lead to an end, except those that the user requested."""
    words = re.findall(r'"(\w+)"', written("core/state.js", "ENDS = new Set([", "]);"))
    ends = {event.__name__ for (_, event), after in lifecycle.TRANSITIONS.items() if after is State.FINISHED}
    assert set(words) == ends - {"CancelAsked", "GivenUp"}
