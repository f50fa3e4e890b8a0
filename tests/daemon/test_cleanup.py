"""The age of jobs, counted in the time that daemons ran and not by the clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dibs.daemon.cleanup import MARKS, SeenTime

KEEP_FOR_S = 160.0
LIVES = st.lists(st.tuples(st.floats(0, 500), st.integers(0, 10)), max_size=60)


def lived(*steps: tuple[float, int]) -> SeenTime:
    """Return the seen time after steps of seconds, each with the events in between."""
    seen, event = SeenTime.read(None, 0), 0
    for seconds, more in steps:
        event += more
        seen = seen.later(seconds, event, KEEP_FOR_S)
        seen = SeenTime.read(seen.written(), 0)
    return seen


def test_at_first_everything_counts_as_new() -> None:
    assert SeenTime.read(None, 41).event_before(1.0) == 0


def test_events_before_the_first_daemon_become_old_after_enough_seen_time() -> None:
    seen = SeenTime.read(None, 41).later(KEEP_FOR_S, 50, KEEP_FOR_S)
    assert seen.event_before(KEEP_FOR_S) == 41


@given(LIVES)
def test_no_event_is_old_before_that_much_time_was_seen(steps: list[tuple[float, int]]) -> None:
    event = lived(*steps).event_before(KEEP_FOR_S)
    counted = 0
    for place, (_, more) in enumerate(steps):
        counted += more
        if more and counted <= event:
            # It happened before the end of its step, so the time after that step is less than its age.
            assert sum(seconds for seconds, _ in steps[place:]) >= KEEP_FOR_S - 1e-6


@given(LIVES)
def test_an_event_becomes_old_at_most_a_sixteenth_late(steps: list[tuple[float, int]]) -> None:
    seen = lived(*steps)
    last = sum(more for _, more in steps)
    for _ in range(MARKS + 2):
        seen = seen.later(KEEP_FOR_S / MARKS + 0.01, last, KEEP_FOR_S)
    assert seen.event_before(KEEP_FOR_S) == last


@given(LIVES)
def test_few_times_are_stored(steps: list[tuple[float, int]]) -> None:
    assert len(lived(*steps).moments) <= MARKS + 2
