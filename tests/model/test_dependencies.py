"""Jobs that depend on other jobs: what happens to each, against a definition that does not know the loop."""

import dataclasses
import os

import pytest
from hypothesis import given, settings

import build
from dibs.model import dependencies, lifecycle
from dibs.model.dependencies import Hopeless, Met, Open
from dibs.model.jobs import After, Cause, JobId, Outcome, State, When

MANY = settings(max_examples=settings.default.max_examples * (50 if os.environ.get("DIBS_PROVE") else 5))

DONE, FAILED, NOT_YET = Outcome.DONE, Outcome.FAILED, None


def judge(*wants):
    """Judge needs written as ("done", outcome), numbered from 1."""
    return dependencies.judge([(JobId(n), When(when), outcome) for n, (when, outcome) in enumerate(wants, 1)])


# -- one job ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wants", "verdict"),
    [
        ([], Met()),
        ([("done", DONE), ("done", DONE)], Met()),
        ([("done", DONE), ("done", NOT_YET)], Open((2,))),
        ([("done", NOT_YET), ("done", FAILED)], Hopeless(2)),
        ([("end", DONE), ("end", FAILED), ("end", Outcome.LOST)], Met()),
        ([("end", FAILED), ("end", NOT_YET)], Open((2,))),
        ([("any", FAILED), ("any", DONE), ("any", NOT_YET)], Met()),
        ([("any", FAILED), ("any", NOT_YET), ("any", NOT_YET)], Open((2, 3))),
        ([("any", FAILED), ("any", Outcome.CANCELLED)], Hopeless(1)),
        ([("any", DONE), ("done", NOT_YET), ("end", NOT_YET)], Open((2, 3))),
        ([("any", DONE), ("done", Outcome.TIMEOUT)], Hopeless(2)),
        ([("end", NOT_YET), ("any", FAILED)], Hopeless(2)),
    ],
)
def test_a_job_waits_becomes_ready_or_can_never_run(wants, verdict):
    assert judge(*wants) == verdict


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not DONE])
def test_every_outcome_but_done_fails_the_jobs_that_need_it_done(outcome):
    assert judge(("done", outcome)) == judge(("any", outcome)) == Hopeless(1)


# -- many jobs ----------------------------------------------------------------------------------------------------


class Queue:
    """Jobs in memory and the consequences of their ends, in the order of `dispatch` and `verbs`."""

    def __init__(self, after):
        self.jobs = {n: build.job(n, after=tuple(sorted_needs)) for n, sorted_needs in after.items()}
        self.finished = []
        self.settle(list(self.jobs))

    def record(self, number, event):
        self.jobs[number] = lifecycle.advance(self.jobs[number], event)
        if self.jobs[number].is_finished:
            self.finished.append(number)

    def settle(self, unsure=()):
        """Apply the consequences of the latest ends, as `dispatch.follow_up` does."""
        for number in unsure:
            self.refresh(number)
        while self.finished:
            for dependant in self.dependants(self.finished.pop(0)):
                self.refresh(dependant)

    def refresh(self, number):
        job = self.jobs[number]
        if not job.is_waiting:
            return
        verdict = dependencies.judge([(need.id, need.when, self.jobs[need.id].outcome) for need in job.spec.after])
        if isinstance(verdict, Hopeless):
            self.record(number, lifecycle.NeedFailed(build.NOW, verdict.because))
        else:
            self.jobs[number] = dataclasses.replace(job, is_ready=isinstance(verdict, Met))

    def dependants(self, number):
        return [job.id for job in self.jobs.values() if any(need.id == number for need in job.spec.after)]

    def ready(self):
        return [job.id for job in self.jobs.values() if job.state is State.QUEUED and job.is_ready]

    def run(self, number, outcome):
        """Run a job to its end."""
        self.record(number, lifecycle.Placed(build.NOW, ()))
        self.record(number, lifecycle.Started(build.NOW, 77))
        if outcome is Outcome.LOST:
            self.record(number, lifecycle.LostTrack(build.NOW, "no record"))
        else:
            self.record(number, lifecycle.Ended(build.NOW, exit_code=0 if outcome is DONE else 1))
        self.settle()

    def cancel(self, number):
        self.record(number, lifecycle.CancelAsked(build.NOW))
        self.settle()

    def retry(self, number):
        """Queue a job again, together with those that were cancelled because of it."""
        self.record(number, lifecycle.RetryAsked(build.NOW))
        unsure = [number]
        for need in unsure:
            for dependant in self.dependants(need):
                if self.jobs[dependant].cause is Cause.DEPENDENCY:
                    self.record(dependant, lifecycle.NeedRetried(build.NOW, need))
                    unsure.append(dependant)
        self.settle(unsure)


@dataclasses.dataclass(frozen=True)
class Story:
    """Which job depends on which, and the events: in each turn a ready job runs, or a user intervenes."""

    after: dict
    dice: build.Dice


def story(dice):
    """Make up to eight jobs that depend on earlier ones."""
    after = {1: ()}
    for number in range(2, dice.number(2, 8) + 1):
        known = dice.some(range(1, number), high=3)
        after[number] = tuple(After(JobId(need), dice.one([*When, When.DONE])) for need in sorted(known))
    return Story(after, dice)


STORIES = build.drawn(story)
ENDS = [DONE, DONE, FAILED, Outcome.LOST]


def turns(story):
    """Play a story until everything is finished; yield the queue after every turn."""
    queue = Queue(story.after)
    yield queue
    while ready := queue.ready():
        if story.dice.number(0, 9) == 9:
            queue.cancel(story.dice.one([job.id for job in queue.jobs.values() if job.is_waiting]))
        else:
            queue.run(story.dice.one(ready), story.dice.one(ENDS))
        yield queue


def hopeless(queue):
    """Return the jobs that can never run: the least set that is closed under the kinds of need.

    Given are the outcomes that jobs had themselves; those that were cancelled because of others are found.
    """
    own = {n: job.outcome for n, job in queue.jobs.items() if job.cause is not Cause.DEPENDENCY}
    dead: set = set()

    def is_bad(need):
        return need.id in dead or own.get(need.id) not in (None, DONE)

    def is_dead(job):
        done = [need for need in job.spec.after if need.when is When.DONE]
        either = [need for need in job.spec.after if need.when is When.ANY]
        return any(map(is_bad, done)) or (bool(either) and all(map(is_bad, either)))

    while more := {n for n, job in queue.jobs.items() if own.get(n) is None and n not in dead and is_dead(job)}:
        dead |= more
    return dead


def can_start(queue, number):
    """Return whether all needs of a job are met, by the definition of `When`."""
    job = queue.jobs[number]

    def ends(when):
        return [queue.jobs[need.id].outcome for need in job.spec.after if need.when is when]

    all_done = all(outcome is DONE for outcome in ends(When.DONE))
    one_done = not ends(When.ANY) or DONE in ends(When.ANY)
    return all_done and one_done and None not in ends(When.END)


def assert_exact(queue):
    """Check that exactly the jobs that can never run are cancelled, and exactly those whose needs are met are ready."""
    cancelled = {n for n, job in queue.jobs.items() if job.cause is Cause.DEPENDENCY}
    assert cancelled == hopeless(queue)
    assert queue.ready() == [n for n, job in queue.jobs.items() if job.is_waiting and can_start(queue, n)]


@MANY
@given(STORIES)
def test_after_every_end_exactly_the_right_jobs_are_cancelled_or_ready(story):
    for queue in turns(story):
        assert_exact(queue)


@MANY
@given(STORIES)
def test_in_the_end_every_job_is_finished(story):
    *_, queue = turns(story)
    assert all(job.is_finished for job in queue.jobs.values())


@MANY
@given(STORIES)
def test_a_job_runs_only_with_its_needs_met_and_is_cancelled_without_running(story):
    *_, queue = turns(story)
    for n, job in queue.jobs.items():
        assert (job.start == 0) or can_start(queue, n)
        assert job.cause is not Cause.DEPENDENCY or (job.start == 0 and not can_start(queue, n))


@MANY
@given(STORIES)
def test_the_same_holds_after_retries(story):
    """Some failed jobs are retried, with other outcomes."""
    *_, queue = turns(story)
    for _ in range(3):
        bad = [n for n, job in queue.jobs.items() if job.outcome is not DONE]
        if not bad:
            return
        queue.retry(story.dice.one(bad))
        assert_exact(queue)
        while ready := queue.ready():
            queue.run(story.dice.one(ready), story.dice.one(ENDS))
            assert_exact(queue)


@MANY
@given(STORIES)
def test_retrying_all_failed_jobs_with_success_makes_every_job_done(story):
    *_, queue = turns(story)
    for number in queue.jobs:
        if queue.jobs[number].outcome is not DONE:
            queue.retry(number)
        while ready := queue.ready():
            queue.run(ready[0], DONE)
    assert {job.outcome for job in queue.jobs.values()} == {DONE}


@MANY
@given(STORIES)
def test_the_order_of_needs_affects_only_which_one_is_named(story):
    *_, queue = turns(story)
    for job in queue.jobs.values():
        told = [(need.id, need.when, queue.jobs[need.id].outcome) for need in job.spec.after]
        there, back = dependencies.judge(told), dependencies.judge(told[::-1])
        assert type(there) is type(back)
        assert not isinstance(there, Open) or set(there.ids) == set(back.ids)
