"""The table of verdicts: files win over what the engine says, and nothing is lost before the grace is over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.engines.exchange import verdicts
from dibs.engines.exchange.verdicts import Sent, Unclaimed
from dibs.engines.protocol import Seen
from dibs.runner.attempts import Alive, Ended, Lost, NeverStarted, NoLease, Records, Refused, Shim, Tombstone
from dibs.runner.records import FINAL_KINDS, Final, RunningCommand

GRACE_S = 10.0
CLAIM = Shim(77, 5, "boot")
RUNNING = RunningCommand(78, 6, 1)

PHASES = st.sampled_from(("waiting", "running", "ended", "gone"))
SEEN = st.builds(Seen, PHASES, st.sampled_from(("", "Resources", "preempted")))
FINALS = st.builds(Final, st.sampled_from(FINAL_KINDS), stopped=st.booleans(), why=st.sampled_from(("", "x")))
RECORDS = st.one_of(
    st.none(),
    st.just(Records(Tombstone())),
    st.builds(Records, st.just(CLAIM), st.sampled_from((None, RUNNING)), st.one_of(st.none(), FINALS)),
)
TIMES = st.floats(0, 100, allow_nan=False)


def judge(found: Records | None, seen: Seen, absent_for_s: float = 0.0, is_stop_asked: bool = False) -> Any:
    return verdicts.judge(found, seen, absent_for_s=absent_for_s, grace_s=GRACE_S, is_stop_asked=is_stop_asked)


@given(FINALS, SEEN, TIMES)
def test_a_final_record_wins_whatever_the_engine_says(final: Final, seen: Seen, absent_for_s: float) -> None:
    found = Records(CLAIM, RUNNING, final)
    expected = {"nolease": NoLease, "refused": Refused, "lost": Lost}.get(final.kind, Ended)
    assert type(judge(found, seen, absent_for_s, is_stop_asked=True)) is expected


@given(SEEN, TIMES, st.booleans())
def test_a_buried_start_never_began_whatever_the_engine_says(seen: Seen, absent_for_s: float, asked: bool) -> None:
    assert judge(Records(Tombstone()), seen, absent_for_s, asked) == NeverStarted()


@given(RECORDS, SEEN, TIMES, st.booleans())
def test_a_start_that_the_engine_has_is_never_lost(
    found: Records | None, seen: Seen, absent_for_s: float, asked: bool
) -> None:
    """Nor is one that it no longer has, before the grace is over."""
    is_there = seen.phase in ("waiting", "running") or absent_for_s < GRACE_S
    verdict = judge(found, seen, absent_for_s, asked)
    if is_there and (found is None or (isinstance(found.decision, Shim) and found.final is None)):
        assert isinstance(verdict, Alive | Sent)


@given(RECORDS, SEEN, TIMES, st.booleans())
def test_only_a_start_without_a_claim_is_sent_again(
    found: Records | None, seen: Seen, absent_for_s: float, asked: bool
) -> None:
    verdict = judge(found, seen, absent_for_s, asked)
    if isinstance(verdict, Unclaimed):
        assert found is None
    if isinstance(verdict, NeverStarted):
        assert found == Records(Tombstone())


@given(RECORDS, SEEN, TIMES, st.booleans())
def test_later_looks_at_unchanged_files_only_settle_what_was_open(
    found: Records | None, seen: Seen, absent_for_s: float, asked: bool
) -> None:
    first = judge(found, seen, absent_for_s, asked)
    later = judge(found, seen, absent_for_s + 1000, asked)
    if not isinstance(first, Alive | Sent):
        assert type(later) is type(first)


@pytest.mark.parametrize("phase", ["ended", "gone"])
def test_a_claim_without_a_record_is_lost_after_the_grace_with_the_engines_reason(phase: Any) -> None:
    found, seen = Records(CLAIM, RUNNING), Seen(phase, "node failed")
    assert judge(found, seen, GRACE_S - 1) == Alive(CLAIM, RUNNING)
    assert judge(found, seen, GRACE_S) == Lost(RUNNING, "node failed")


def test_what_the_engine_stopped_without_being_asked_is_lost_not_cancelled() -> None:
    found = Records(CLAIM, RUNNING, Final("signalled", signal=15, stopped=True))
    assert judge(found, Seen("ended", "preempted")) == Lost(RUNNING, "its cluster stopped it (preempted)")
    assert isinstance(judge(found, Seen("ended"), is_stop_asked=True), Ended)
