"""The lifecycle of a job: which transitions are allowed, and invariants after every step."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.errors import Bug
from dibs.model import lifecycle
from dibs.model.jobs import ACTIVE, BAD, WAITING, Cause, JobId, Outcome, State

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"

#: Events that queue a job for its next attempt.
AGAIN = (lifecycle.RetryAsked, lifecycle.NeedRetried, lifecycle.Evicted)

#: One event of each kind, for where its contents do not matter.
SAMPLES = {
    type(event): event
    for event in (
        lifecycle.Placed(1, build.ids(0)),
        lifecycle.GivenUp(2, "refused"),
        lifecycle.Started(3, 77),
        lifecycle.Ended(4, exit_code=0),
        lifecycle.LostTrack(5, "no record"),
        lifecycle.Orphaned(6),
        lifecycle.CannotStart(7, "no room"),
        lifecycle.Misused(7, "uses GPU 1"),
        lifecycle.StoppedEarly(7, "uses GPU 1"),
        lifecycle.EvictAsked(7, "1001", 30_007),
        lifecycle.Evicted(8, signal=9),
        lifecycle.CancelAsked(8),
        lifecycle.NeedFailed(14, JobId(7)),
        lifecycle.NeedRetried(15, JobId(7)),
        lifecycle.HoldAsked(9),
        lifecycle.UnholdAsked(10),
        lifecycle.Paused(11),
        lifecycle.Resumed(12),
        lifecycle.RetryAsked(13),
    )
}


def explored():
    """Return a job in each reachable state, and the pairs of state and event on the way."""
    found, met, to_visit = {}, set(), [build.job()]
    while to_visit:
        job = to_visit.pop()
        if job.state in found:
            continue
        found[job.state] = job
        for kind, event in SAMPLES.items():
            if lifecycle.allows(job, kind):
                met.add((job.state, kind))
                to_visit.append(lifecycle.advance(job, event))
    return found, met


def life(numbers):
    """Return a life step by step: the job before, the event, and the job after it."""
    steps, job = [], build.job(gpus=2)
    for at, number in enumerate(numbers):
        event = build.event(job, number, at)
        steps.append((job, event, lifecycle.advance(job, event)))
        job = steps[-1][2]
    return steps


LIVES = st.lists(build.NUMBERS, min_size=1, max_size=25).map(life)


# -- the table ----------------------------------------------------------------------------------------------------


def test_every_row_of_the_table_can_happen():
    assert explored()[1] == set(lifecycle.TRANSITIONS)


def test_every_state_is_reachable():
    assert set(explored()[0]) == set(State)


@pytest.mark.parametrize(
    ("state", "kind"), sorted(set(itertools.product(State, build.EVENT_KINDS)) - set(lifecycle.TRANSITIONS), key=str)
)
def test_a_transition_outside_the_table_is_a_bug_that_names_it(state, kind):
    job = explored()[0][state]
    with pytest.raises(Bug, match=f"job 1 is {job.word}: {kind.__name__} cannot happen"):
        lifecycle.advance(job, SAMPLES[kind])


@given(LIVES)
def test_a_step_follows_the_table(life):
    for before, event, after in life:
        assert after.state is lifecycle.TRANSITIONS[before.state, type(event)]


# -- invariants after every step ----------------------------------------------------------------------------------


@given(LIVES)
def test_a_job_is_finished_exactly_when_it_has_an_outcome_and_an_end(life):
    for _, _, job in life:
        assert job.is_finished is (job.outcome is not None) is (job.finished_at is not None)


@given(LIVES)
def test_a_waiting_job_has_no_devices_no_process_and_no_result(life):
    for _, _, job in life:
        if job.state in WAITING:
            assert (job.allocation, job.pid, job.started_at, job.exit_code, job.signal) == ((), None, None, None, None)


@given(LIVES)
def test_an_attempt_under_way_has_been_started(life):
    assert all(job.start >= 1 for _, _, job in life if job.state in ACTIVE)


@given(LIVES)
def test_the_attempt_number_grows_by_one_with_each_retry_or_eviction_only(life):
    """A job cancelled before it started, because of a dependency, has no attempt to count."""
    for before, event, after in life:
        has_run = isinstance(event, lifecycle.NeedRetried) and before.start > 0
        is_next = isinstance(event, (lifecycle.RetryAsked, lifecycle.Evicted))
        assert after.attempt - before.attempt == (is_next or has_run)


@given(LIVES)
def test_an_eviction_uses_no_retry_and_is_counted(life):
    for before, event, after in life:
        is_evicted = isinstance(event, lifecycle.Evicted)
        assert after.evictions - before.evictions == is_evicted
        assert after.retried == before.retried or not is_evicted


@given(LIVES)
def test_only_a_job_that_is_stopping_is_being_evicted(life):
    assert all(job.leaves_at is None for _, _, job in life if job.state is not State.STOPPING)


@pytest.mark.parametrize(
    ("end", "is_evicted"),
    [
        ({"exit_code": 75, "was_stopped": True}, True),
        ({"signal": 9, "was_stopped": True}, True),
        ({"exit_code": 0, "was_stopped": True}, False),
        ({"exit_code": 1}, False),
        ({"signal": 15, "was_stopped": True, "timed_out": True}, False),
    ],
)
def test_only_a_job_that_the_eviction_ended_is_evicted(end, is_evicted):
    """One that completes in its grace is done, and one that failed before the order came has failed."""
    running = build.lived(build.job(), lifecycle.Placed(1, build.ids(0)), lifecycle.Started(2, 77))
    event = lifecycle.Ended(9, **end)
    assert lifecycle.is_evicted(build.lived(running, lifecycle.EvictAsked(3, "1001", 30_003)), event) is is_evicted
    assert not lifecycle.is_evicted(build.lived(running, lifecycle.CancelAsked(3)), event)


def test_a_job_that_completes_while_it_is_evicted_is_done_and_a_cancelled_one_is_cancelled():
    running = build.lived(build.job(), lifecycle.Placed(1, build.ids(0)), lifecycle.Started(2, 77))
    evicted = build.lived(running, lifecycle.EvictAsked(3, "1001", 30_003))
    end = lifecycle.Ended(9, exit_code=0, was_stopped=True)
    assert build.lived(evicted, end).outcome is Outcome.DONE
    assert build.lived(evicted, lifecycle.CancelAsked(4), end).outcome is Outcome.CANCELLED


@given(LIVES)
def test_the_start_number_grows_by_one_with_each_placement_until_a_retry(life):
    for before, event, after in life:
        if isinstance(event, AGAIN):
            assert after.start == 0
        else:
            assert after.start - before.start == isinstance(event, lifecycle.Placed)


@given(LIVES)
def test_no_two_starts_of_a_job_have_the_same_number(life):
    placed = [(after.attempt, after.start) for _, event, after in life if isinstance(event, lifecycle.Placed)]
    assert len(placed) == len(set(placed))


@given(LIVES)
def test_a_placed_job_keeps_its_devices_until_the_start_is_given_up_or_retried(life):
    for before, event, after in life:
        if isinstance(event, lifecycle.Placed):
            assert after.allocation == event.devices
        elif after.state not in WAITING:
            assert after.allocation == before.allocation


@given(LIVES)
def test_a_job_is_done_exactly_when_its_command_exited_with_zero_by_itself(life):
    for _, event, after in life:
        went_well = (
            isinstance(event, lifecycle.Ended)
            and event.exit_code == 0
            and not (event.timed_out or event.was_stopped or event.not_started)
        )
        assert (after.outcome is Outcome.DONE) is went_well


@given(LIVES)
def test_a_done_job_has_no_cause(life):
    assert all(job.cause is None for _, _, job in life if job.outcome is Outcome.DONE)


@given(LIVES)
def test_a_job_that_did_not_succeed_has_a_cause(life):
    assert all(job.cause is not None for _, _, job in life if job.outcome in BAD)


@given(LIVES)
def test_only_a_finished_job_has_a_cause_or_one_that_is_stopped_early(life):
    with_cause = [job for _, _, job in life if job.cause is not None]
    assert all(job.is_finished or (job.state is State.STOPPING and job.cause is Cause.EARLY) for job in with_cause)


@given(LIVES)
def test_only_starts_with_a_dead_runner_are_counted_until_a_retry(life):
    for before, event, after in life:
        if isinstance(event, AGAIN):
            assert after.dead_starts == 0
        else:
            died = isinstance(event, lifecycle.GivenUp) and event.runner_died and after.state is State.QUEUED
            assert after.dead_starts - before.dead_starts == died


@given(LIVES)
def test_no_event_changes_the_spec(life):
    assert {(job.id, job.spec, job.submitted_at) for _, _, job in life} == {(1, build.spec(gpus=2), build.NOW)}


# -- outcomes -----------------------------------------------------------------------------------------------------

STARTED = (lifecycle.Placed(1, build.ids(0)), lifecycle.Started(2, 77))


@pytest.mark.parametrize(
    ("end", "outcome", "cause"),
    [
        (lifecycle.Ended(9, exit_code=0), Outcome.DONE, None),
        (lifecycle.Ended(9, exit_code=3), Outcome.FAILED, Cause.EXIT),
        (lifecycle.Ended(9, signal=11), Outcome.FAILED, Cause.SIGNAL),
        (lifecycle.Ended(9, signal=15, timed_out=True), Outcome.TIMEOUT, Cause.TIMEOUT),
        (lifecycle.Ended(9, exit_code=0, timed_out=True), Outcome.TIMEOUT, Cause.TIMEOUT),
        (lifecycle.Ended(9, signal=15, was_stopped=True), Outcome.CANCELLED, None),
        (lifecycle.Ended(9, exit_code=0, was_stopped=True), Outcome.CANCELLED, None),
        (lifecycle.Ended(9, exit_code=127, not_started="no such file"), Outcome.FAILED, Cause.START),
        (lifecycle.Ended(9, exit_code=127, not_started="no such file", was_stopped=True), Outcome.FAILED, Cause.START),
        (lifecycle.LostTrack(9, "no record"), Outcome.LOST, Cause.LOST),
    ],
)
def test_the_end_of_the_command_decides_the_outcome(end, outcome, cause):
    job = build.lived(build.job(), *STARTED, end)
    assert (job.outcome, job.cause, job.finished_at) == (outcome, cause, 9)


def test_an_end_without_an_exit_code_is_never_a_success():
    with pytest.raises(Bug, match="job 1 ended without an exit code"):
        build.lived(build.job(), *STARTED, lifecycle.Ended(9))


def test_a_finished_job_keeps_its_exit_code_and_times():
    job = build.lived(build.job(), *STARTED, lifecycle.Ended(9, exit_code=3))
    assert (job.exit_code, job.started_at, job.finished_at, job.pid) == (3, 2, 9, 77)


def test_the_start_time_recorded_by_the_runner_is_used():
    job = build.lived(build.job(), STARTED[0], lifecycle.Ended(9, exit_code=0, started_at=5))
    assert job.started_at == 5


def test_a_start_given_up_while_stopping_does_not_requeue_the_job():
    job = build.lived(build.job(), STARTED[0], lifecycle.CancelAsked(2), lifecycle.GivenUp(3, "buried"))
    assert job.outcome is Outcome.CANCELLED


def test_a_start_given_up_gives_the_reason_for_waiting_again():
    job = build.lived(build.job(), STARTED[0], lifecycle.GivenUp(3, "FAKE-0: held by bob"))
    assert (job.state, job.remark) == (State.QUEUED, "FAKE-0: held by bob")


def test_the_next_event_clears_an_old_remark():
    job = build.lived(build.job(), STARTED[0], lifecycle.GivenUp(3, "held by bob"), lifecycle.Placed(4, build.ids(1)))
    assert job.remark is None


def test_a_job_whose_runner_is_gone_stays_running_with_a_remark():
    job = build.lived(build.job(), *STARTED, lifecycle.Orphaned(3))
    assert job.state is State.RUNNING
    assert "its runner is gone" in job.remark


# -- the documentation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "after"), lifecycle.TRANSITIONS.items())
def test_the_page_has_every_row_of_the_table(row, after):
    before, kind = row
    assert f"| {before.value} | {after.value} | {kind.__doc__} |" in PAGE.read_text()
