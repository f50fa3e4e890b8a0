"""How often the files of starts are read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dibs.engines.exchange.record_watch import FIRST_S, LATEST_S, READS_PER_S, SLOWEST_S, pause_after

READS = st.integers(0, 10_000)
PAUSES = st.floats(FIRST_S, SLOWEST_S)


@given(PAUSES, READS, st.booleans())
def test_no_more_files_are_read_in_a_second_than_allowed(before_s: float, reads: int, has_news: bool) -> None:
    pause_s = pause_after(before_s, reads, has_news=has_news)
    assert FIRST_S <= pause_s <= SLOWEST_S
    assert pause_s == SLOWEST_S or reads <= pause_s * READS_PER_S * 1.001


@given(st.integers(0, READS_PER_S // 10))
def test_few_starts_are_read_soon_after_news_and_at_least_twice_a_second(reads: int) -> None:
    assert pause_after(LATEST_S, reads, has_news=True) == FIRST_S
    assert pause_after(SLOWEST_S, reads, has_news=False) <= LATEST_S


def test_without_news_looks_become_rare() -> None:
    pauses = [FIRST_S]
    for _ in range(30):
        pauses.append(pause_after(pauses[-1], 1, has_news=False))
    assert pauses == sorted(pauses)
    assert pauses[-1] == LATEST_S
