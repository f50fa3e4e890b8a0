"""What becomes of the points of a sweep that is submitted, and submitted again; and which results are kept."""

import json
from dataclasses import replace

import pytest

import build
from desk import DONE, FAILED, PLACED, RUNNING
from dibs.daemon import cleanup
from dibs.errors import NotFound, UserError
from dibs.jobqueue import dispatch, sweeps, turns
from dibs.jobqueue.sweeps import Fate
from dibs.jobqueue.validation import NO_RULES, Rules, Submission
from dibs.model import lifecycle, selectors
from dibs.model.jobs import JobId, Member, State, When
from dibs.store.query_results import RunsSince
from dibs.sweeps import values
from dibs.sweeps.records import SweepSubmission


def submission(**more):
    return Submission(build.spec("-"), environ=b"A=1\0", **more)


def member(x):
    return Member(f"train {x}", f"lr-{x}", x, None, None, values.identity({"x": x}), json.dumps({"x": x}), None)


def runs(desk, sweeping, most=100):
    """Return all runs of a sweep, taken in parts of so many, in the order of their points."""
    found, since = [], RunsSince()
    while since is not None:
        part, since = desk.store.runs(sweeping.id, since, most)
        assert len(part) <= most
        found += part
    return sorted(found, key=lambda run: run.index)


class Sweeping:
    """A sweep on a desk; every submission of some points is a turn of its own."""

    def __init__(self, desk):
        self.desk = desk
        self.id = self.begin()

    def begin(self, command="train {x}", rules=NO_RULES, **more):
        sweep, _ = self._do(sweeps.begin, SweepSubmission("default", "lr", command, **more), rules, submission())
        return sweep.id

    def _do(self, verb, *given, **options):
        self.desk.turn = self.desk.new_turn()
        with self.desk.store.batch():
            return verb(self.desk.turn, *given, **options)

    def add(self, *xs, again=False, is_last=True, **more):
        """Submit points; return how many became what."""
        points = [member(x) for x in xs]
        added = self._do(sweeps.add, self.id, submission(**more), points, again=again, is_last=is_last)
        return {fate.value: count for fate, count in added.fates.items()}

    def happen(self, job_id, *events):
        """Let things happen to a run, and let the machine do what follows."""
        self.desk.turn = self.desk.new_turn()
        with self.desk.store.batch():
            for event in events:
                self.desk.turn.record(self.desk.store.job(JobId(job_id)), event)
            dispatch.follow_up(self.desk.turn)

    def words(self):
        return [job.word for job in self.desk.store.select(selectors.parse(["sweep:lr"]), build.NOW)]

    def read(self, job_id, attempt=1, **numbers):
        with self.desk.store.batch():
            self.desk.store.keep_numbers(JobId(job_id), attempt, json.dumps(numbers), "{}")


@pytest.fixture
def lr(desk):
    return Sweeping(desk)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (None, Fate.NEW),
        ("queued", Fate.QUEUED),
        ("held", Fate.LET_GO),
        ("starting", Fate.RUNNING),
        ("running", Fate.RUNNING),
        ("paused", Fate.RUNNING),
        ("stopping", Fate.RUNNING),
        ("done", Fate.DONE),
        ("failed", Fate.RETRIED),
        ("cancelled", Fate.RETRIED),
        ("timeout", Fate.RETRIED),
        ("lost", Fate.RETRIED),
    ],
)
def test_the_fate_of_a_point_follows_from_its_newest_run(word, expected):
    assert sweeps.fate(word) is expected


def test_again_runs_also_what_is_done_but_leaves_what_waits_or_runs():
    assert sweeps.fate("done", again=True) is Fate.RETRIED
    assert sweeps.fate("queued", again=True) is Fate.QUEUED
    assert sweeps.fate("running", again=True) is Fate.RUNNING


def test_a_run_that_was_forgotten_cannot_be_retried_and_is_made_anew():
    assert sweeps.fate("failed", has_job=False) is Fate.NEW
    assert sweeps.fate("done", has_job=False) is Fate.DONE


def test_submitted_again_a_sweep_queues_what_is_new_or_failed_and_leaves_the_rest(lr, desk):
    assert lr.add(0, 1, 2, 3) == {"new": 4}
    lr.happen(1, *DONE)
    lr.happen(2, *FAILED)
    lr.happen(3, PLACED)
    assert lr.add(0, 1, 2, 3, 4) == {"done": 1, "retried": 1, "running": 1, "queued": 1, "new": 1}
    assert lr.words() == ["done", "queued", "starting", "queued", "queued"]
    assert desk.store.job(JobId(2)).attempt == 2


def test_the_same_part_twice_changes_nothing(lr, desk):
    lr.add(0, 1, 2)
    before = desk.rows()
    assert lr.add(0, 1, 2) == {"queued": 3}
    assert desk.rows() == before


def test_a_point_that_comes_twice_in_one_part_is_one_run(lr):
    assert lr.add(0, 0) == {"new": 1, "queued": 1}


def test_a_retried_run_is_asked_for_as_the_sweep_is_now(lr, desk):
    lr.add(0)
    lr.happen(1, *FAILED)
    lr.add(0, time_limit_s=7200.0)
    assert desk.store.job(JobId(1)).spec.time_limit_s == 7200.0


def test_a_run_knows_its_sweep_its_point_and_its_batch(lr, desk):
    lr.add(0, 5)
    spec = desk.store.job(JobId(2)).spec
    sweep = desk.store.sweep(lr.id)
    assert (spec.sweep, spec.sweep_id, spec.index, spec.params) == ("lr", sweep.id, 5, '{"x": 5}')
    assert spec.batch == sweep.batch
    assert desk.store.batch_tally(sweep.batch).size == 2


def test_words_may_differ_from_run_to_run(lr, desk):
    one = replace_argv(member(0), ("train", "0"))
    other = replace_argv(member(1), ("train", "1 2"))
    lr._do(sweeps.add, lr.id, submission(), [one, other])
    assert [desk.store.job(JobId(n)).spec.argv for n in (1, 2)] == [("train", "0"), ("train", "1 2")]


def replace_argv(one, argv):
    return one._replace(argv=argv)


def test_the_same_name_with_another_command_is_refused_and_changes_nothing(lr, desk):
    before = desk.rows()
    with pytest.raises(UserError, match=r"another command: train \{x\}"):
        lr.begin("evaluate {x}")
    assert desk.rows() == before


def test_a_sweep_that_could_never_start_here_is_refused_before_it_is_kept(desk):
    with pytest.raises(UserError), desk.store.batch():
        sweeps.begin(desk.new_turn(), SweepSubmission("default", "big", "x"), Rules(), replace(submission(), gpus=99))
    assert desk.store.sweeps() == []


# -- halting ------------------------------------------------------------------------------------------------------


def test_the_rest_is_held_if_the_first_three_to_end_all_fail(lr):
    lr.add(*range(6))
    for n in (1, 2):
        lr.happen(n, *FAILED)
    assert lr.words()[2:] == ["queued"] * 4
    lr.happen(3, *FAILED)
    assert lr.words()[3:] == ["held"] * 3


def test_one_good_end_among_the_first_three_is_enough_to_go_on(lr):
    lr.add(*range(6))
    lr.happen(1, *DONE)
    for n in (2, 3, 4):
        lr.happen(n, *FAILED)
    assert lr.words()[4:] == ["queued"] * 2


def test_halt_says_otherwise(lr):
    lr.begin(rules=Rules(halt_after=1))
    lr.add(*range(3))
    lr.happen(1, *DONE)
    lr.happen(2, *FAILED)
    assert lr.words()[2:] == ["held"]


def test_submitted_again_what_was_held_is_let_go_and_failures_count_anew(lr):
    lr.add(*range(6))
    for n in (1, 2, 3):
        lr.happen(n, *FAILED)
    lr.begin()
    assert lr.add(*range(6)) == {"retried": 3, "let go": 3}
    lr.happen(1, *FAILED)
    assert lr.words() == ["failed"] + ["queued"] * 5


def test_a_sweep_that_is_submitted_held_stays_held(lr):
    lr.add(0, 1, is_held=True)
    assert lr.words() == ["held", "held"]
    assert lr.add(0, 1, is_held=True) == {"held": 2}


# -- selecting ----------------------------------------------------------------------------------------------------


def test_a_sweep_is_selected_by_its_name_its_project_or_a_glob(lr, desk):
    lr.add(0, 1)
    desk.job()
    for word in ("sweep:lr", "sweep:default/lr", "sweep:l*"):
        assert desk.store.select_ids(selectors.parse([word]), build.NOW) == [1, 2]


def test_a_name_that_two_projects_have_is_refused_with_both(lr, desk):
    lr._do(sweeps.begin, SweepSubmission("other", "lr", "x"), Rules(), submission())
    with pytest.raises(UserError) as refused:
        desk.store.select_ids(selectors.parse(["sweep:lr"]), build.NOW)
    assert "sweep:default/lr and sweep:other/lr" in refused.value.hint


def test_a_sweep_that_is_not_there_is_not_found(lr, desk):
    with pytest.raises(NotFound, match='no sweep "lrr"'):
        turns.pick(desk.turn, selectors.parse(["sweep:lrr"]))


# -- results ------------------------------------------------------------------------------------------------------


def test_the_end_of_a_run_is_a_result_whose_numbers_are_to_be_read(lr, desk):
    lr.add(0, 1)
    lr.happen(1, *DONE)
    assert desk.turn.has_unread_numbers
    assert desk.store.unread_results(10) == [(1, 1)]
    lr.read(1, loss=0.5)
    assert desk.store.unread_results(10) == []
    assert [(run.word, run.numbers) for run in runs(desk, lr)] == [("done", {"loss": 0.5}), ("queued", None)]


def test_numbers_of_an_attempt_are_kept_once(lr, desk):
    lr.add(0)
    lr.happen(1, *DONE)
    lr.read(1, loss=0.5)
    lr.read(1, loss=0.7)
    assert runs(desk, lr)[0].numbers == {"loss": 0.5}


def test_numbers_of_an_old_attempt_do_not_stand_for_the_new_one(lr, desk):
    lr.add(0)
    lr.happen(1, *FAILED)
    lr.read(1, loss=9.0)
    lr.add(0)
    assert runs(desk, lr)[0].numbers is None
    lr.happen(1, *DONE)
    lr.read(1, attempt=1, loss=9.0)
    lr.read(1, attempt=2, loss=0.1)
    assert runs(desk, lr)[0].numbers == {"loss": 0.1}


def test_a_run_that_never_began_has_no_numbers_to_be_read(lr, desk):
    lr.add(0)
    lr.happen(1, lifecycle.CancelAsked(1))
    assert desk.store.unread_results(10) == []
    assert runs(desk, lr)[0].word == "cancelled"


def test_many_that_are_cancelled_at_once_are_results_too(lr, desk):
    lr.add(0, 1)
    with desk.store.batch():
        desk.store.cancel_waiting(selectors.parse(["sweep:lr"]), build.NOW)
    assert [run.word for run in runs(desk, lr)] == ["cancelled", "cancelled"]


def forget(desk, *ids):
    with desk.store.batch():
        return cleanup.forget_rows(desk.new_turn(), [JobId(n) for n in ids], with_checkpoints=False)


def test_a_result_outlives_its_job_and_its_point_stays_done(lr, desk):
    lr.add(0, 1)
    lr.happen(1, *DONE)
    lr.happen(2, *FAILED)
    lr.read(1, loss=0.5)
    lr.read(2)
    assert forget(desk, 1, 2) == [1, 2]
    assert [(run.job, run.params, run.word, run.numbers) for run in runs(desk, lr)] == [
        (None, {"x": 0}, "done", {"loss": 0.5}),
        (None, {"x": 1}, "failed", {}),
    ]
    assert lr.add(0, 1) == {"done": 1, "new": 1}
    assert [run.job for run in runs(desk, lr)] == [None, 3]


def test_a_job_is_not_forgotten_before_its_numbers_are_kept(lr, desk):
    lr.add(0)
    lr.happen(1, *DONE)
    assert forget(desk, 1) == []
    lr.read(1)
    assert forget(desk, 1) == [1]


def test_states_are_counted_for_each_sweep(lr, desk):
    lr.add(0, 1)
    lr.happen(1, *RUNNING)
    assert desk.store.states_of_sweeps() == {lr.id: {"queued": 1, State.RUNNING.value: 1}}


# -- a sweep that comes in parts


def ends(code):
    return *RUNNING, lifecycle.Ended(build.NOW, exit_code=code)


def test_a_sweep_is_not_over_before_its_last_part_has_come(desk):
    sweeping = Sweeping(desk)
    batch = desk.store.sweep(sweeping.id).batch
    sweeping.add(0, is_last=False)
    sweeping.happen(1, *ends(0))
    assert not desk.store.batch_tally(batch).is_over
    sweeping.add(1)
    # The run that came last goes on: its end will be told.
    assert desk.turn.finished_for_good == []
    assert not desk.store.batch_tally(batch).is_over
    sweeping.happen(2, *ends(0))
    assert desk.store.batch_tally(batch).is_over


def test_the_end_is_told_with_the_last_part_if_all_have_ended_by_then(desk):
    sweeping = Sweeping(desk)
    sweeping.add(0, 1, is_last=False)
    sweeping.happen(1, *ends(0))
    sweeping.happen(2, *ends(1))
    sweeping.add(0)
    assert [job.id for job in desk.turn.finished_for_good] == [2]
    assert desk.store.batch_tally(desk.store.sweep(sweeping.id).batch).is_over


def test_nothing_is_told_when_a_sweep_that_is_done_is_submitted_again(desk):
    sweeping = Sweeping(desk)
    sweeping.add(0)
    sweeping.happen(1, *ends(0))
    desk.now += 1_000_000
    sweeping.begin()
    sweeping.add(0)
    assert desk.turn.finished_for_good == []


@pytest.mark.parametrize("most", [1, 2, 3, 4, 100])
def test_the_runs_of_a_sweep_come_in_parts_however_small_each_once(desk, most):
    """Also those of which only the result is left; others' jobs in between are not among them."""
    sweeping = Sweeping(desk)
    sweeping.add(0, 1, 2)
    desk.job(*DONE)
    sweeping.add(3, 4)
    for job_id in (1, 2):
        sweeping.happen(job_id, *DONE)
        sweeping.read(job_id, loss=job_id)
    with desk.store.batch():
        assert desk.store.forget([JobId(1), JobId(2)], with_checkpoints=False) == [1, 2]
    found = runs(desk, sweeping, most)
    assert [(run.index, run.job) for run in found] == [(0, None), (1, None), (2, 3), (3, 5), (4, 6)]


def like(lr, job_id, *changes):
    """Queue runs like one of the sweep, in a turn of their own."""
    return lr._do(sweeps.extend, lr.id, JobId(job_id), changes)


def test_more_runs_like_one_ask_for_what_it_asks_for(lr, desk):
    lr.add(0, 1)
    lr.happen(1, *DONE)
    assert like(lr, 1, {"x": 1}, {"x": 7}, {"x": 7}) == {"new": 1, "known": 2}
    model, more = (desk.store.job(JobId(n)).spec for n in (1, 3))
    assert (more.command, more.params, more.index, more.name) == ("train 7", '{"x": 7}', 3, "lr-3")
    assert (more.environ_id, more.request, more.batch) == (model.environ_id, model.request, model.batch)
    assert [run.params["x"] for run in runs(desk, lr)] == [0, 1, 7]


def test_what_a_run_waited_for_is_not_waited_for_again(lr, desk):
    first = desk.job()
    lr.add(0, after=((str(first), When.DONE),))
    assert desk.store.job(JobId(first + 1)).spec.after
    like(lr, first + 1, {"x": 1})
    assert desk.store.job(JobId(first + 2)).spec.after == ()


def test_only_a_run_of_the_sweep_is_a_model(lr, desk):
    other = desk.job()
    with pytest.raises(UserError, match=f'expected a run of the sweep "lr", got job {other}'):
        like(lr, other, {"x": 1})
    with pytest.raises(NotFound):
        like(lr, 99, {"x": 1})


def test_a_point_that_is_left_only_as_a_result_is_known_and_its_index_is_not_given_again(lr, desk):
    lr.add(0, 5)
    lr.happen(2, *DONE)
    lr.read(2)
    forget(desk, 2)
    assert like(lr, 1, {"x": 5}, {"x": 6}) == {"new": 1, "known": 1}
    assert [run.index for run in runs(desk, lr)] == [0, 5, 7]
