"""A refused start pauses what its scope names, each time longer, and one start at a time probes the machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.jobqueue.start_pauses import SPANS_S, YIELD_S, StartPauses
from dibs.model.jobs import JobId
from dibs.scheduling.planner import Start
from dibs.system.refusals import DEVICE, JOB, QUEUE, Refusal

FULL = Refusal(QUEUE, "No space left on device (/data)")
ONE, TWO = JobId(1), JobId(2)


STARTS = (Start(ONE, ()), Start(TWO, ()))


def test_a_refusal_pauses_all_starts_and_then_lets_one_probe():
    pauses = StartPauses().refused(FULL, ONE, 100.0)
    assert pauses.told([], 100.1) == "starts are paused: No space left on device (/data); next try in 1 s"
    assert pauses.told([], 100.5) is None
    assert pauses.let_through(STARTS) == STARTS[:1]


def test_without_a_refusal_everything_starts():
    assert StartPauses().told([], 100.0) is None
    assert StartPauses().let_through(STARTS) == STARTS
    assert StartPauses().probed_by(STARTS) == StartPauses()


def test_while_one_start_probes_no_other_starts():
    pauses = StartPauses().refused(FULL, ONE, 100.0).probed_by(STARTS[1:])
    told = "starts are paused: No space left on device (/data); next try is under way"
    assert pauses.told([TWO], 101.0) == told
    # It ended without saying anything about the machine, for example because it was cancelled.
    assert pauses.told([], 101.0) is None


def test_another_job_probes_each_time():
    """One job that has the trouble alone does not keep back the others."""
    pauses = StartPauses().refused(FULL, ONE, 100.0).probed_by(STARTS[:1]).refused(FULL, ONE, 101.0)
    assert pauses.let_through(STARTS) == STARTS[1:]


def test_a_refused_job_lets_others_probe_for_a_while():
    pauses = StartPauses().refused(FULL, ONE, 100.0)
    again = pauses.queue.until
    assert pauses.yielding(again) == {ONE}
    assert pauses.yielding(again + YIELD_S) == set()
    assert pauses.refused(FULL, TWO, again).yielding(again) == {ONE, TWO}


def test_only_the_probe_ends_the_pause_of_all_starts():
    pauses = StartPauses().refused(FULL, ONE, 100.0).probed_by(STARTS[1:])
    assert pauses.begun(ONE, ()).told([TWO], 101.0)
    assert pauses.begun(TWO, ()) == StartPauses()


def test_starts_that_were_under_way_do_not_make_the_pause_longer():
    pauses = StartPauses().refused(FULL, ONE, 100.0)
    assert pauses.refused(FULL, TWO, 100.1).queue == pauses.queue


@given(st.integers(1, 20))
def test_each_refused_probe_makes_the_pause_longer_up_to_a_limit(count):
    pauses, now, spans = StartPauses(), 0.0, []
    for _ in range(count):
        pauses = pauses.refused(FULL, ONE, now)
        spans.append(pauses.queue.until - now)
        now = pauses.queue.until
    assert spans == sorted(spans)
    assert spans[0] == SPANS_S[0]
    assert spans[-1] <= SPANS_S[-1]


def test_a_pause_of_one_device_does_not_affect_others():
    first, second = build.ids(0, 1)
    pauses = StartPauses().refused(Refusal(DEVICE, "cannot use it", first), ONE, 100.0)
    assert pauses.unusable(100.1) == {first: "cannot use it"}
    assert pauses.told([], 100.1) is None
    assert pauses.begun(ONE, (second,)).unusable(100.1)
    assert not pauses.begun(ONE, (first,)).unusable(100.1)


def test_a_pause_of_one_job_does_not_affect_others():
    pauses = StartPauses().refused(Refusal(JOB, "Disk quota exceeded (/home/me/out)"), ONE, 100.0)
    assert pauses.resting(100.1) == {ONE: "Disk quota exceeded (/home/me/out); next try in 1 s"}
    assert pauses.told([], 100.1) is None
    assert pauses.resting(101.0) == {}
    assert pauses.begun(ONE, ()) == StartPauses()


def test_a_trouble_that_is_seen_to_be_over_ends_its_pause_and_the_next_refusal_makes_a_longer_one():
    first, second = build.ids(0, 1)
    pauses = StartPauses().refused(FULL, ONE, 100.0).refused(FULL, ONE, 101.0)
    for device in (first, second):
        pauses = pauses.refused(Refusal(DEVICE, "cannot use it", device), ONE, 101.0)
    assert pauses.lasting(101.1) == {None, first, second}
    over = pauses.over({None, first}, 101.1)
    assert over.lasting(101.1) == {second}
    assert over.told([], 101.1) is None
    assert over.refused(FULL, ONE, 101.1).queue.until == 101.1 + SPANS_S[2]
    assert StartPauses().over({None, first}, 101.1) == StartPauses()
