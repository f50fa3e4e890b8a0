"""What can be done to submitted jobs: cancel, signal, pause, move, edit, clean."""

import dataclasses
import os

import pytest

import build
from desk import DONE, FAILED, PLACED, RUNNING
from dibs.daemon import cleanup
from dibs.errors import Conflict, Impossible, NotFound, UserError
from dibs.http_api.schemas import submission
from dibs.jobqueue import control, dispatch, edits, turns, validation
from dibs.jobqueue.validation import Submission
from dibs.model import lifecycle, selectors
from dibs.model.jobs import JobId, Outcome, State, When
from dibs.runner import attempts
from dibs.system.settings import Settings

PAUSED = (*RUNNING, lifecycle.Paused(3))
ORPHANED = (*RUNNING, lifecycle.Orphaned(3))


def lines(desk):
    """Return the orders that are still to be sent."""
    return [(effect.job.id, effect.line) for effect in desk.turn.effects]


def whys(acted):
    return [(left.id, left.why) for left in acted.unchanged]


def edit(desk, *words, **changes):
    return desk.do(edits.edit, *words, change=submission.change(changes))


def queue(desk):
    """Return the waiting jobs in the order in which they are served."""
    found = desk.store.select(selectors.parse(["held", "queued"]), build.NOW)
    return [job.id for job in sorted(found, key=lambda job: (-job.spec.priority, job.rank, job.id))]


# -- cancel, hold and unhold many jobs ----------------------------------------------------------------------------


def wait_for_each(desk, *kinds):
    """Submit one job, and for each kind one that depends on the job before it."""
    ids = [desk.job()]
    for when in kinds:
        ids.append(wait_for(desk, ids[-1], when))
    return ids


def wait_for(desk, need, when):
    return desk.submit(Submission(build.spec(), after=((str(need), when),))).ids[0]


def test_cancelling_a_job_cancels_the_whole_chain_of_jobs_that_need_it_done(desk):
    first, second, third = wait_for_each(desk, When.DONE, When.DONE)
    wait_for(desk, third, When.DONE)
    desk.do(control.cancel, str(first))
    assert [desk.store.job(n).outcome for n in (1, 2, 3, 4)] == [Outcome.CANCELLED] * 4
    assert desk.store.job(second).remark == "job 1, a dependency, did not succeed"
    assert desk.store.job(third).remark == "job 2, a dependency, did not succeed"
    assert [event.kind for event in desk.store.events(third)][-1] == "NeedFailed"
    assert set(desk.turn.changed) == {1, 2, 3, 4}


def test_a_job_that_only_waits_for_an_end_is_checked_and_becomes_ready(desk):
    wait_for_each(desk, When.END)
    desk.do(control.cancel, "1")
    assert desk.turn.needs_check == [2]
    with desk.store.batch():
        dispatch.follow_up(desk.turn)
    assert (desk.store.job(2).state, desk.store.job(2).is_ready) == (State.QUEUED, True)


def test_changing_many_jobs_at_once_equals_changing_each(desk):
    """The set operations and the transition table give the same result."""
    ids = wait_for_each(desk, When.DONE, When.DONE)
    expected = lifecycle.advance(desk.store.job(ids[0]), lifecycle.CancelAsked(build.NOW))
    doomed = [lifecycle.advance(desk.store.job(n), lifecycle.NeedFailed(build.NOW, JobId(n - 1))) for n in ids[1:]]
    desk.do(control.cancel, "1")
    assert [desk.store.job(n) for n in ids] == [expected, *doomed]
    assert [len(desk.store.attempts(n)) for n in ids] == [1, 1, 1]
    assert desk.store.counts()["cancelled"] == 3


def test_retrying_a_job_also_retries_the_jobs_cancelled_because_of_it(desk):
    wait_for_each(desk, When.DONE, When.DONE)
    desk.do(control.cancel, "1")
    desk.do(control.retry, "1")
    assert [desk.store.job(n).state for n in (1, 2, 3)] == [State.QUEUED] * 3


def test_a_cancelled_job_triggers_its_notification(desk):
    desk.job()
    desk.job(notify="mail")
    desk.do(control.cancel, "all")
    assert [(job.id, job.word) for job in desk.turn.finished_for_good] == [(2, "cancelled")]


def test_an_unheld_job_is_checked_for_its_begin_time(desk):
    desk.job(begin_at=build.NOW + 1000)
    desk.do(control.hold, "1")
    desk.do(control.unhold, "1")
    assert desk.turn.needs_check == [1]


# -- kill, pause, resume ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [RUNNING, PAUSED, (*RUNNING, lifecycle.CancelAsked(3))])
def test_a_signal_is_an_order_to_the_runner_and_an_event(desk, events):
    job_id = desk.job(*events)
    before = desk.store.job(job_id)
    desk.do(control.kill, str(job_id), number=10)
    assert lines(desk) == [(job_id, "signal 10")]
    assert desk.store.job(job_id) == before
    assert (desk.store.events(job_id)[-1].kind, desk.store.events(job_id)[-1].detail) == ("Signalled", "SIGUSR1")


@pytest.mark.parametrize(("events", "word"), [((), "queued"), ((PLACED,), "starting"), (DONE, "done")])
def test_a_job_that_is_not_running_gets_no_signal(desk, events, word):
    job_id = desk.job(*events)
    acted = desk.do(control.kill, str(job_id), number=10)
    assert whys(acted) == [(job_id, f"it is {word}: only running jobs can receive signals")]
    assert lines(desk) == []


def test_a_running_job_is_paused_and_resumed(desk):
    job_id = desk.job(*RUNNING)
    assert [(job.id, job.word) for job in desk.do(control.pause, "1").changed] == [(1, "paused")]
    assert lines(desk) == [(job_id, "pause")]
    assert desk.store.job(job_id).allocation == build.ids(0)
    assert [(job.id, job.word) for job in desk.do(control.resume, "1").changed] == [(1, "running")]
    assert lines(desk) == [(job_id, "resume")]


@pytest.mark.parametrize(
    ("verb", "events", "why"),
    [
        (control.pause, (), "it is queued: only running jobs can be paused; use hold for waiting jobs"),
        (control.pause, PAUSED, "it is paused: only running jobs can be paused; use hold for waiting jobs"),
        (control.pause, ORPHANED, "its runner is gone, so this is not possible; cancel stops it"),
        (control.resume, RUNNING, "it is running: it is not paused"),
        (control.resume, DONE, "it is done: it is not paused"),
    ],
)
def test_a_job_that_cannot_be_paused_or_resumed_is_unchanged(desk, verb, events, why):
    desk.job(*events)
    before = desk.store.job(1)
    assert whys(desk.do(verb, "1")) == [(1, why)]
    assert (desk.store.job(1), lines(desk)) == (before, [])


# -- move ---------------------------------------------------------------------------------------------------------


def move(desk, job_id, where, other=None):
    desk.turn = desk.new_turn()
    with desk.store.batch():
        return edits.move(desk.turn, JobId(job_id), where, None if other is None else JobId(other))


def test_a_job_is_moved_first_last_before_and_after(desk):
    for _ in range(4):
        desk.job()
    move(desk, 3, "first")
    assert queue(desk) == [3, 1, 2, 4]
    move(desk, 3, "last")
    assert queue(desk) == [1, 2, 4, 3]
    move(desk, 4, "before", 2)
    assert queue(desk) == [1, 4, 2, 3]
    move(desk, 1, "after", 3)
    assert queue(desk) == [4, 2, 3, 1]
    assert desk.job() == 5
    assert queue(desk) == [4, 2, 3, 1, 5]
    assert (desk.store.events(1)[-1].kind, desk.store.events(1)[-1].detail) == ("Moved", "after job 3")


def test_the_plan_follows_the_new_order(desk):
    for _ in range(3):
        desk.job()
    move(desk, 3, "first")
    assert [waiting.id for waiting in sorted(desk.store.head(2), key=lambda waiting: waiting.place)] == [3, 1]


def test_first_means_first_of_its_priority_and_the_answer_says_so(desk):
    desk.job(priority=5)
    desk.job()
    desk.job()
    assert move(desk, 3, "first") == "first of priority 0; jobs with a higher priority stay ahead of it"
    assert queue(desk) == [1, 3, 2]


def test_jobs_of_different_priority_cannot_be_moved_next_to_each_other(desk):
    desk.job(priority=5)
    desk.job()
    with pytest.raises(Conflict, match="priority 0 and job 1 has 5") as refused:
        move(desk, 2, "before", 1)
    assert refused.value.hint == "Change its priority first: dibs edit 2 --priority 5"


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ((1, "first"), Conflict, "job 1 is running: only waiting jobs can be moved"),
        ((2, "before", 1), Conflict, "job 1 is running"),
        ((2, "before", 2), UserError, "cannot be moved before itself"),
        ((2, "before"), UserError, "move before expected another job"),
        ((2, "first", 3), UserError, "move first expected no other job"),
        ((2, "up"), UserError, "move expected first, last, before ID or after ID"),
        ((9, "first"), NotFound, "there is no job 9"),
        ((2, "after", 9), NotFound, "there is no job 9"),
    ],
)
def test_an_impossible_move_is_refused(desk, words, error, message):
    desk.job(*RUNNING)
    desk.job()
    desk.job()
    with pytest.raises(error, match=message):
        move(desk, *words)
    assert queue(desk) == [2, 3]


# -- edit ---------------------------------------------------------------------------------------------------------


def test_options_of_waiting_jobs_are_changed_and_the_rest_is_kept(desk):
    (job_id,) = desk.submit(
        Submission(build.spec(tags=("x",), priority=1), gpu_ids=("0", "2"), cpus=2, environ=b"A=1")
    ).ids
    before = desk.store.job(job_id).spec
    edit(desk, str(job_id), priority=7, name="vit", time_limit_s=60)
    after = desk.store.job(job_id).spec
    request = dataclasses.replace(before.request, limit_s=60.0)
    assert after == dataclasses.replace(before, priority=7, name="vit", request=request)
    assert (desk.store.events(job_id)[-1].kind, desk.store.events(job_id)[-1].detail) == (
        "Edited",
        "name, priority, time_limit_s",
    )


def test_null_restores_the_default(desk):
    desk.submit(Submission(build.spec(tags=("x",), retries=3, name="vit"), gpus=2, time_limit_s=60))
    edit(desk, "1", tags=None, retries=None, name=None, time_limit_s=None)
    spec = desk.store.job(1).spec
    assert (spec.tags, spec.retries, spec.name, spec.time_limit_s) == ((), 0, "train.py", None)
    assert spec.request.gpus == 2


@pytest.mark.parametrize(
    ("before", "changes", "gpus", "ids"),
    [
        ({"gpu_ids": ("0", "1")}, {"gpus": 3}, 3, ()),
        ({"gpus": 3}, {"gpu_ids": ["1"]}, 1, build.ids(1)),
        ({"gpu_ids": ("0", "1")}, {"gpu_ids": None}, 2, ()),
        ({"gpu_ids": ("0", "1")}, {"cpus": 1}, 2, build.ids(0, 1)),
        ({"gpus": 3}, {"gpus": 1, "gpu_ids": ["0", "1"]}, 1, build.ids(0, 1)),
        ({"gpus": 1, "gpu_ids": ("0", "1")}, {"cpus": 1}, 1, build.ids(0, 1)),
        ({"gpus": 1, "gpu_ids": ("0", "1")}, {"gpus": None, "gpu_ids": ["0", "1"]}, 2, build.ids(0, 1)),
        ({"gpus": 1, "gpu_ids": ("0", "1")}, {"gpus": 1, "gpu_ids": None}, 1, ()),
    ],
)
def test_a_count_and_a_list_of_gpus_replace_each_other(desk, before, changes, gpus, ids):
    desk.submit(Submission(build.spec(), **before))
    edit(desk, "1", **changes)
    request = desk.store.job(1).spec.request
    assert (request.gpus, request.gpu_ids) == (gpus, ids)


def test_variables_are_merged_with_the_existing_ones(desk):
    desk.job(env=(("A", "1"), ("B", "2")))
    edit(desk, "1", env={"B": "3", "C": "4"})
    assert dict(desk.store.job(1).spec.env) == {"A": "1", "B": "3", "C": "4"}
    edit(desk, "1", env=None)
    assert desk.store.job(1).spec.env == ()


def test_a_command_replaces_the_arguments(desk):
    desk.job(command="a b", argv=("a", "b"))
    edit(desk, "1", command="c | d")
    assert (desk.store.job(1).spec.command, desk.store.job(1).spec.argv) == ("c | d", None)


def test_a_script_keeps_its_text_with_other_arguments_and_loses_it_with_another_command(desk):
    words = ("/home/ada/train.sh", "1")
    (job_id,) = desk.submit(Submission(build.spec("train.sh 1", argv=words), script=b"#!/bin/sh")).ids
    edit(desk, str(job_id), argv=["/home/ada/train.sh", "2 3"])
    spec = desk.store.job(job_id).spec
    assert (spec.command, desk.store.script(spec.script_id)) == ("train.sh '2 3'", b"#!/bin/sh")
    edit(desk, str(job_id), command="true")
    assert desk.store.job(job_id).spec.script_id is None


def test_a_warning_must_come_before_the_new_limit(desk):
    desk.submit(Submission(build.spec(), time_limit_s=3600))
    edit(desk, "1", warn={"signal": "USR1", "before_s": 60}, metric={"loss": "loss=([0-9.]+)"})
    spec = desk.store.job(1).spec
    assert (spec.warn.signal, spec.metrics) == ("USR1", (("loss", "loss=([0-9.]+)"),))
    assert spec.time_limit_s == 3600
    with pytest.raises(UserError, match="--signal comes 1m00s before the time limit, which is 30s"):
        edit(desk, "1", time_limit_s=30)
    with pytest.raises(UserError, match="--signal needs a time limit or --evictable: it warns before one of them"):
        edit(desk, "1", time_limit_s=None)


def test_a_new_request_moves_the_job_to_another_line(desk):
    desk.job()
    edit(desk, "1", gpus=3)
    assert [waiting.request.gpus for waiting in desk.store.head(5)] == [3]


def test_a_job_with_a_new_priority_is_ordered_by_its_age(desk):
    desk.job(priority=5)
    desk.job()
    desk.job(priority=5)
    move(desk, 3, "first")
    edit(desk, "2", priority=5)
    assert queue(desk) == [3, 1, 2]


def test_dependencies_are_replaced_and_checked(desk):
    for _ in range(3):
        desk.job()
    edit(desk, "3", after=[{"select": "1-2"}])
    assert [need.id for need in desk.store.job(3).spec.after] == [1, 2]
    assert desk.turn.needs_check == [3]
    edit(desk, "3", after=None)
    assert desk.store.job(3).spec.after == ()


@pytest.mark.parametrize(("job", "needs"), [("1", "3"), ("1", "1"), ("1-2", "3")])
def test_circular_dependencies_are_refused(desk, job, needs):
    wait_for_each(desk, When.DONE, When.END)
    with pytest.raises(Conflict, match="would depend on itself"):
        edit(desk, job, after=[{"select": needs}])


def test_if_one_job_cannot_be_changed_none_is(desk):
    desk.job()
    desk.job(*RUNNING)
    before, rows = desk.store.job(1), desk.rows()
    with pytest.raises(Conflict, match="job 2 is running: only waiting jobs can be changed") as refused:
        edit(desk, "all", priority=5)
    assert "SELECTOR+queued" in refused.value.hint
    assert (desk.store.job(1), desk.rows()) == (before, rows)


def test_a_request_the_machine_cannot_satisfy_is_refused_for_all(desk):
    desk.job()
    desk.job()
    with pytest.raises(Impossible, match="asks for 9 GPUs; this machine has 4"):
        edit(desk, "all", gpus=9)
    assert [desk.store.job(n).spec.request.gpus for n in (1, 2)] == [1, 1]


def test_a_job_that_already_has_the_value_is_unchanged(desk):
    desk.job(priority=5)
    acted = edit(desk, "1", priority=5)
    assert (acted.changed, whys(acted)) == ([], [(1, "no change")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "at least one change"),
        ({"priority": "high"}, "priority: expected"),
        ({"colour": 1}, "colour"),
        ({"command": None}, "expected a command, got none"),
        ({"environ": ""}, "environ cannot be changed after submission"),
        ({"at_once": 0}, "at_once expected a whole number from 1 up"),
        ([], "expected the changes to be an object"),
    ],
)
def test_invalid_changes_are_refused(desk, changes, message):
    desk.job()
    with pytest.raises(UserError, match=message):
        desk.do(edits.edit, "1", change=submission.change(changes))


@pytest.mark.parametrize("events", [(PLACED,), RUNNING, PAUSED])
@pytest.mark.parametrize(("limit_s", "line"), [(7200, "limit 7200.0"), (None, "limit none")])
def test_a_new_time_limit_of_a_running_job_is_an_order(desk, events, limit_s, line):
    desk.submit(Submission(build.spec(), time_limit_s=60))
    with desk.store.batch():
        for event in events:
            desk.store.record(desk.store.job(1), event)
    edit(desk, "1", time_limit_s=limit_s)
    assert lines(desk) == [(1, line)]
    assert desk.store.job(1).spec.time_limit_s == limit_s


def test_the_rules_of_a_batch_can_be_changed_through_any_of_its_jobs(desk):
    desk.turn = desk.new_turn()
    with desk.store.batch():
        control.submit(desk.turn, [Submission(build.spec())] * 3, validation.Rules(at_once=3))
    edit(desk, "2", at_once=1)
    assert {waiting.room for waiting in desk.store.head(5)} == {1}


def test_jobs_without_a_batch_become_one(desk):
    for events in ((), (), RUNNING, ()):
        desk.job(*events)
    edit(desk, "1-3", at_once=1)
    assert [desk.store.job(n).spec.batch for n in (1, 2, 3, 4)] == [1, 1, 0, 0]
    assert {(waiting.id, waiting.room) for waiting in desk.store.head(5)} == {(1, 1), (2, 1), (4, None)}


def test_jobs_of_several_batches_have_no_common_rules(desk):
    desk.job()
    desk.job()
    edit(desk, "1", at_once=1)
    with pytest.raises(Conflict, match="not submitted together"):
        edit(desk, "1-2", at_once=1)


def test_a_batch_that_already_has_too_many_failures_is_held(desk):
    desk.turn = desk.new_turn()
    with desk.store.batch():
        control.submit(desk.turn, [Submission(build.spec())] * 3, validation.Rules(at_once=3))
        for event in FAILED:
            desk.store.record(desk.store.job(JobId(1)), event)
        desk.store.count_bad(1)
    edit(desk, "1", halt_after=1)
    assert [desk.store.job(n).state for n in (2, 3)] == [State.HELD] * 2


def test_editing_keeps_every_column_that_submitting_writes(desk):
    """A new column of a submission must be added to both."""
    added = desk.store.queries["add_job"].partition("(")[2].partition(")")[0]
    edited = desk.store.queries["edit_job"].partition("SET")[2].partition("WHERE")[0]
    names = {part.partition("=")[0].strip() for part in edited.split(",")}
    assert {name.strip() for name in added.split(",")} - names == {"id", "submitted_at", "is_ready", "rank"}


# -- clean --------------------------------------------------------------------------------------------------------


def forget(desk, *ids):
    desk.turn = desk.new_turn()
    with desk.store.batch():
        return cleanup.forget_rows(desk.turn, ids, with_checkpoints=False)


def test_cleaning_deletes_all_rows_of_a_job_and_its_id_is_never_reused(desk):
    desk.job(*DONE)
    desk.job(*FAILED)
    assert forget(desk, 1, 2) == [1, 2]
    assert {table: count for table, count in desk.rows().items() if table in ("jobs", "events", "attempts")} == {
        "jobs": 0,
        "events": 0,
        "attempts": 0,
    }
    assert desk.store.forgotten(False) == [1, 2]
    assert set(desk.store.counts().values()) == {0}
    assert desk.job() == 3
    with pytest.raises(NotFound, match=r"there is no job 1 any more \(the newest is 3\)"):
        desk.store.job(1)


@pytest.mark.parametrize("events", [(), (PLACED,), RUNNING, (lifecycle.HoldAsked(1),)])
def test_an_unfinished_job_is_never_deleted(desk, events):
    desk.job(*DONE)
    desk.job(*events)
    with pytest.raises(Conflict, match=r"job 2 is .*: only finished jobs can be deleted\. Nothing was changed"):
        cleanup.choose(desk.store, selectors.parse(["all"]), build.NOW)
    assert forget(desk, 2) == []


def test_a_job_that_others_depend_on_is_kept(desk):
    desk.job(*FAILED)
    wait_for(desk, 1, When.END)
    choice = cleanup.choose(desk.store, selectors.parse(["finished"]), build.NOW)
    assert (choice.ids, choice.needed) == ([], [1])
    assert forget(desk, 1) == []


def test_a_finished_job_whose_dependency_was_deleted_can_be_retried(desk):
    wait_for_each(desk, When.DONE)
    desk.do(control.cancel, "1")
    forget(desk, 1)
    desk.do(control.retry, "2")
    with desk.store.batch():
        dispatch.follow_up(desk.turn)
    assert desk.store.job(2).is_ready


def test_environments_of_deleted_jobs_are_deleted_too(desk):
    desk.submit(Submission(build.spec(), environ=b"A=1"), Submission(build.spec(), environ=b"B=1"))
    desk.do(control.cancel, "1")
    forget(desk, 1)
    with desk.store.batch():
        desk.store.tidy()
    assert (desk.rows()["environs"], desk.store.environ(desk.store.job(2).spec.environ_id)) == (1, b"B=1")


def test_jobs_beyond_the_age_or_the_number_to_keep_are_overdue(desk):
    for at in (1000, 2000, 3000):
        desk.job(*RUNNING, lifecycle.Ended(at, exit_code=0))
    desk.job()
    last = desk.store.last_event()
    assert cleanup.overdue(desk.store, 10_000, Settings(keep_jobs=3), last) == []
    assert cleanup.overdue(desk.store, 10_000, Settings(keep_jobs=2), last) == [1]
    assert cleanup.overdue(desk.store, 10_000, Settings(keep_for=7.5, keep_jobs=100), last) == [1, 2]
    assert cleanup.overdue(desk.store, 10_000, Settings(keep_for=7.5, keep_jobs=1), last) == [1, 2]


def test_a_job_is_not_overdue_by_the_clock_alone(desk):
    """The clock may be a year ahead: only what happened before an event that is old enough may be deleted."""
    desk.job(*RUNNING, lifecycle.Ended(1000, exit_code=0))
    old = desk.store.last_event()
    desk.job(*RUNNING, lifecycle.Ended(2000, exit_code=0))
    values = Settings(keep_for=7.5)
    assert cleanup.overdue(desk.store, 10**12, values, 0) == []
    assert cleanup.overdue(desk.store, 10**12, values, old) == [1]


def test_many_jobs_are_not_deleted_for_their_age_without_asking(desk):
    for _ in range(60):
        desk.job(*RUNNING, lifecycle.Ended(1000, exit_code=0))
    assert cleanup.doubt(desk.store, 10**12, 60.0, 0) == ""
    told = cleanup.doubt(desk.store, 10**12, 60.0, desk.store.last_event())
    assert "60 of 60 finished jobs are older than keep_for (1m00s)" in told
    assert "dibs clean" in told


def test_cleaning_proceeds_in_small_steps(desk):
    desk.submit(*[Submission(build.spec())] * 500)
    desk.do(control.cancel, "all")
    assert len(cleanup.overdue(desk.store, build.NOW, Settings(keep_jobs=1), 0)) == cleanup.MOST_IN_A_STEP


# -- orders that were recorded and never sent ---------------------------------------------------------------------


def claimed(desk, job):
    """Claim the start of a job as a live runner does; closing the descriptor ends it."""
    os.makedirs(desk.engine.folder(job))
    claim = attempts.claim(desk.engine.folder(job), job.start, "shim 1 1 x")
    assert claim is not None
    return claim


@pytest.mark.parametrize(
    ("events", "given", "expected"),
    [
        (PAUSED, [], ["pause"]),
        (PAUSED, ["pause"], []),
        (PAUSED, ["pause", "resume"], ["pause"]),
        ((*PAUSED, lifecycle.Resumed(4)), ["pause"], ["resume"]),
        (RUNNING, [], []),
        (RUNNING, ["pause", "resume", "signal 10"], []),
    ],
)
def test_a_new_daemon_sends_the_orders_that_the_last_one_could_not(desk, events, given, expected):
    desk.job(*events)
    job = desk.store.job(1)
    claim = claimed(desk, job)
    for line in given:
        attempts.append_order(desk.engine.folder(job), job.start, line)
    desk.turn = desk.new_turn()
    with desk.store.batch():
        dispatch.settle(desk.turn, job)
    os.close(claim)
    assert [effect.line for effect in desk.turn.effects if isinstance(effect, turns.Order)] == expected


def test_a_new_daemon_sends_a_new_limit_again(desk):
    desk.job(*RUNNING)
    edit(desk, "1", time_limit_s=60)
    job = desk.store.job(1)
    claim = claimed(desk, job)
    for given in (["limit 60.0"], []):
        desk.turn = desk.new_turn()
        with desk.store.batch():
            dispatch.settle(desk.turn, job)
        assert [effect.line for effect in desk.turn.effects if isinstance(effect, turns.Order)] == (given)
        attempts.append_order(desk.engine.folder(job), job.start, "limit 60.0")
    os.close(claim)
