"""What happens to the points of a sweep when it is submitted, and submitted again; and which results are kept."""

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
from dibs.scheduling import views
from dibs.store.query_results import RunsSince
from dibs.sweeps import values
from dibs.sweeps.records import SweepSubmission


def submission(**more):
    return Submission(build.spec("-"), environ=b"A=1\0", **more)


def member(x):
    return Member(f"train {x}", f"lr-{x}", x, None, None, values.identity({"x": x}), json.dumps({"x": x}), None)


def runs(desk, sweeping, most=100):
    """Return all runs of a sweep, read in pages of the given size, in the order of their points."""
    found, since = [], RunsSince()
    while since is not None:
        part, since = desk.store.runs(sweeping.id, since, most)
        assert len(part) <= most
        found += part
    return sorted(found, key=lambda run: run.index)


class SweepDesk:
    """A sweep on a desk; every submission of points is a separate turn."""

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
        """Submit points; return the count of each result."""
        points = [member(x) for x in xs]
        added = self._do(sweeps.add, self.id, submission(**more), points, again=again, is_last=is_last)
        return {fate.value: count for fate, count in added.fates.items()}

    def happen(self, job_id, *events):
        """Record events of a run, and let the machine act on them."""
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
    return SweepDesk(desk)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (None, Fate.NEW),
        ("queued", Fate.QUEUED),
        ("held", Fate.RELEASED),
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
def test_the_newest_run_of_a_point_decides_what_happens_to_it(word, expected):
    assert sweeps.fate(word) is expected


def test_again_also_reruns_finished_points_but_not_waiting_or_running_ones():
    assert sweeps.fate("done", again=True) is Fate.RETRIED
    assert sweeps.fate("queued", again=True) is Fate.QUEUED
    assert sweeps.fate("running", again=True) is Fate.RUNNING


def test_a_deleted_run_cannot_be_retried_and_becomes_a_new_job():
    assert sweeps.fate("failed", has_job=False) is Fate.NEW
    assert sweeps.fate("done", has_job=False) is Fate.DONE


def test_a_sweep_submitted_again_queues_new_and_failed_points_only(lr, desk):
    assert lr.add(0, 1, 2, 3) == {"new": 4}
    lr.happen(1, *DONE)
    lr.happen(2, *FAILED)
    lr.happen(3, PLACED)
    assert lr.add(0, 1, 2, 3, 4) == {"done": 1, "retried": 1, "running": 1, "queued": 1, "new": 1}
    assert lr.words() == ["done", "queued", "starting", "queued", "queued"]
    assert desk.store.job(JobId(2)).attempt == 2


def test_submitting_the_same_part_twice_changes_nothing(lr, desk):
    lr.add(0, 1, 2)
    before = desk.rows()
    assert lr.add(0, 1, 2) == {"queued": 3}
    assert desk.rows() == before


def test_a_duplicate_point_in_one_part_is_one_run(lr):
    assert lr.add(0, 0) == {"new": 1, "queued": 1}


def test_a_retried_run_uses_the_current_options_of_the_sweep(lr, desk):
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


def test_arguments_may_differ_from_run_to_run(lr, desk):
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


def test_an_impossible_sweep_is_refused_before_it_is_stored(desk):
    with pytest.raises(UserError), desk.store.batch():
        sweeps.begin(desk.new_turn(), SweepSubmission("default", "big", "x"), Rules(), replace(submission(), gpus=99))
    assert desk.store.sweeps() == []


# -- halt ---------------------------------------------------------------------------------------------------------


def test_the_rest_is_held_if_the_first_three_runs_all_fail(lr):
    lr.add(*range(6))
    for n in (1, 2):
        lr.happen(n, *FAILED)
    assert lr.words()[2:] == ["queued"] * 4
    lr.happen(3, *FAILED)
    assert lr.words()[3:] == ["held"] * 3
    assert {lr.desk.store.job(JobId(n)).remark for n in (4, 5, 6)} == {"the first 3 runs failed"}


def test_runs_that_lie_far_apart_start_first_and_keep_their_numbers(lr):
    """Four GPUs: four probes. The rest follows in order, in this part and in the next."""
    lr.add(*range(9), is_last=False)
    lr.add(9, 10)
    heads = views.order(lr.desk.store.head(20))
    assert [job.id - 1 for job in heads] == [0, 2, 4, 8, 1, 3, 5, 6, 7, 9, 10]
    assert [run.index for run in runs(lr.desk, lr)] == list(range(11))


def test_one_success_among_the_first_three_runs_is_enough_to_continue(lr):
    lr.add(*range(6))
    lr.happen(1, *DONE)
    for n in (2, 3, 4):
        lr.happen(n, *FAILED)
    assert lr.words()[4:] == ["queued"] * 2


def test_the_option_halt_overrides_the_default(lr):
    lr.begin(rules=Rules(halt_after=1))
    lr.add(*range(3))
    lr.happen(1, *DONE)
    lr.happen(2, *FAILED)
    assert lr.words()[2:] == ["held"]


def test_submitting_again_releases_held_runs_and_resets_the_failure_count(lr):
    lr.add(*range(6))
    for n in (1, 2, 3):
        lr.happen(n, *FAILED)
    lr.begin()
    assert lr.add(*range(6)) == {"retried": 3, "released": 3}
    lr.happen(1, *FAILED)
    assert lr.words() == ["failed"] + ["queued"] * 5


def test_a_sweep_submitted_as_held_stays_held(lr):
    lr.add(0, 1, is_held=True)
    assert lr.words() == ["held", "held"]
    assert lr.add(0, 1, is_held=True) == {"held": 2}


# -- selectors ----------------------------------------------------------------------------------------------------


def test_a_sweep_is_selected_by_its_name_its_project_or_a_glob(lr, desk):
    lr.add(0, 1)
    desk.job()
    for word in ("sweep:lr", "sweep:default/lr", "sweep:l*"):
        assert desk.store.select_ids(selectors.parse([word]), build.NOW) == [1, 2]


def test_an_ambiguous_sweep_name_is_refused_with_both_projects(lr, desk):
    lr._do(sweeps.begin, SweepSubmission("other", "lr", "x"), Rules(), submission())
    with pytest.raises(UserError) as refused:
        desk.store.select_ids(selectors.parse(["sweep:lr"]), build.NOW)
    assert "sweep:default/lr and sweep:other/lr" in refused.value.hint


def test_an_unknown_sweep_is_not_found(lr, desk):
    with pytest.raises(NotFound, match='no sweep "lrr"'):
        turns.pick(desk.turn, selectors.parse(["sweep:lrr"]))


# -- results ------------------------------------------------------------------------------------------------------


def test_a_finished_run_is_a_result_whose_metrics_are_to_be_read(lr, desk):
    lr.add(0, 1)
    lr.happen(1, *DONE)
    assert desk.turn.has_unread_numbers
    assert desk.store.unread_results(10) == [(1, 1)]
    lr.read(1, loss=0.5)
    assert desk.store.unread_results(10) == []
    assert [(run.word, run.numbers) for run in runs(desk, lr)] == [("done", {"loss": 0.5}), ("queued", None)]


def test_metrics_of_an_attempt_are_stored_once(lr, desk):
    lr.add(0)
    lr.happen(1, *DONE)
    lr.read(1, loss=0.5)
    lr.read(1, loss=0.7)
    assert runs(desk, lr)[0].numbers == {"loss": 0.5}


def test_metrics_of_an_old_attempt_do_not_count_for_the_new_one(lr, desk):
    lr.add(0)
    lr.happen(1, *FAILED)
    lr.read(1, loss=9.0)
    lr.add(0)
    assert runs(desk, lr)[0].numbers is None
    lr.happen(1, *DONE)
    lr.read(1, attempt=1, loss=9.0)
    lr.read(1, attempt=2, loss=0.1)
    assert runs(desk, lr)[0].numbers == {"loss": 0.1}


def test_a_run_that_never_started_has_no_metrics_to_read(lr, desk):
    lr.add(0)
    lr.happen(1, lifecycle.CancelAsked(1))
    assert desk.store.unread_results(10) == []
    assert runs(desk, lr)[0].word == "cancelled"


def test_runs_cancelled_together_are_results_too(lr, desk):
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


def test_a_job_is_not_deleted_before_its_metrics_are_stored(lr, desk):
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


def test_a_sweep_is_not_over_before_its_last_part_was_submitted(desk):
    sweeping = SweepDesk(desk)
    batch = desk.store.sweep(sweeping.id).batch
    sweeping.add(0, is_last=False)
    sweeping.happen(1, *ends(0))
    assert not desk.store.batch_tally(batch).is_over
    sweeping.add(1)
    # The last run is still unfinished: its end will be reported.
    assert desk.turn.finished_for_good == []
    assert not desk.store.batch_tally(batch).is_over
    sweeping.happen(2, *ends(0))
    assert desk.store.batch_tally(batch).is_over


def test_if_all_runs_have_ended_the_last_part_reports_the_end(desk):
    sweeping = SweepDesk(desk)
    sweeping.add(0, 1, is_last=False)
    sweeping.happen(1, *ends(0))
    sweeping.happen(2, *ends(1))
    sweeping.add(0)
    assert [job.id for job in desk.turn.finished_for_good] == [2]
    assert desk.store.batch_tally(desk.store.sweep(sweeping.id).batch).is_over


def test_resubmitting_a_finished_sweep_reports_nothing(desk):
    sweeping = SweepDesk(desk)
    sweeping.add(0)
    sweeping.happen(1, *ends(0))
    desk.now += 1_000_000
    sweeping.begin()
    sweeping.add(0)
    assert desk.turn.finished_for_good == []


@pytest.mark.parametrize("most", [1, 2, 3, 4, 100])
def test_the_runs_of_a_sweep_are_paged_without_gaps_or_duplicates(desk, most):
    """Including those with only a result left; jobs of others in between are excluded."""
    sweeping = SweepDesk(desk)
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
    """Queue runs like one of the sweep, in a separate turn."""
    return lr._do(sweeps.extend, lr.id, JobId(job_id), changes)


def test_more_runs_like_one_have_its_request(lr, desk):
    lr.add(0, 1)
    lr.happen(1, *DONE)
    assert like(lr, 1, {"x": 1}, {"x": 7}, {"x": 7}) == {"new": 1, "known": 2}
    model, more = (desk.store.job(JobId(n)).spec for n in (1, 3))
    assert (more.command, more.params, more.index, more.name) == ("train 7", '{"x": 7}', 3, "lr-3")
    assert (more.environ_id, more.request, more.batch) == (model.environ_id, model.request, model.batch)
    assert [run.params["x"] for run in runs(desk, lr)] == [0, 1, 7]


def test_more_runs_like_one_do_not_have_its_dependencies(lr, desk):
    first = desk.job()
    lr.add(0, after=((str(first), When.DONE),))
    assert desk.store.job(JobId(first + 1)).spec.after
    like(lr, first + 1, {"x": 1})
    assert desk.store.job(JobId(first + 2)).spec.after == ()


def test_only_a_run_of_the_sweep_can_be_the_model(lr, desk):
    other = desk.job()
    with pytest.raises(UserError, match=f'expected a run of the sweep "lr", got job {other}'):
        like(lr, other, {"x": 1})
    with pytest.raises(NotFound):
        like(lr, 99, {"x": 1})


def test_a_point_with_only_a_result_left_is_known_and_its_index_is_not_reused(lr, desk):
    lr.add(0, 5)
    lr.happen(2, *DONE)
    lr.read(2)
    forget(desk, 2)
    assert like(lr, 1, {"x": 5}, {"x": 6}) == {"new": 1, "known": 1}
    assert [run.index for run in runs(desk, lr)] == [0, 5, 7]


def test_two_runs_of_one_sweep_never_share_a_folder(desk):
    """Neither in one part nor in two; the same run keeps its own."""
    sweeping = SweepDesk(desk)

    def add(*told):
        points = [member(x)._replace(folder=folder) for x, folder in told]
        return sweeping._do(sweeps.add, sweeping.id, submission(), points)

    with pytest.raises(UserError, match="point 2 has the same folder as point 1, which has other parameters: /r/a"):
        add((1, "/r/a"), (2, "/r/a"))
    add((1, "/r/a"), (2, "/r/b"), (3, None), (4, None))
    assert add((1, "/r/a")).fates == {Fate.QUEUED: 1}
    with pytest.raises(UserError, match="point 5 has the same folder as job 2"):
        add((5, "/r/b"))
    assert len(runs(desk, sweeping)) == 4
