"""Verbs of the user: the queue before and after, and the effects that remain."""

import os

import pytest

import build
from desk import DONE, FAILED, PLACED, RUNNING
from dibs.errors import Impossible, NotFound, UserError
from dibs.jobqueue import control, turns, validation
from dibs.jobqueue.validation import Submission
from dibs.model import lifecycle
from dibs.model.devices import Inventory
from dibs.model.jobs import CommandLines, JobId, Member, Outcome, State, When
from dibs.runner import attempts
from dibs.store import writer


def submission(**wanted):
    return Submission(build.spec(), **wanted)


# -- submit -------------------------------------------------------------------------------------------------------


def test_submitted_jobs_are_queued_in_the_order_given(desk):
    submitted = desk.submit(Submission(build.spec("a")), Submission(build.spec("b")))
    assert [(n, desk.store.job(n).spec.command) for n in submitted.ids] == [(1, "a"), (2, "b")]
    assert {desk.store.job(n).state for n in submitted.ids} == {State.QUEUED}
    assert set(desk.turn.changed) == {1, 2}


def test_a_job_without_options_requests_one_gpu(desk):
    submitted = desk.submit(submission())
    assert (desk.store.job(1).spec.request.gpus, submitted.notes) == (1, [])


def test_on_a_machine_without_gpus_it_requests_none_and_a_warning_says_so(desk):
    desk.inventory = build.inventory(0)
    submitted = desk.submit(submission(), submission())
    assert desk.store.job(1).spec.request.gpus == 0
    assert submitted.notes == ["this machine has no GPUs, so the job gets none (pretend GPUs: DIBS_DEVICES=fake:4)"]


def test_before_the_driver_has_answered_it_still_requests_one(desk):
    desk.inventory = Inventory(is_known=False)
    assert [request.gpus for request in desk.requests(submission())] == [1]


def test_named_gpus_are_stored_by_id_and_counted(desk):
    (request,) = desk.requests(submission(gpu_ids=("2", "FAKE-0"), prefer=("3",)))
    assert (request.gpus, request.gpu_ids, request.prefer) == (2, build.ids(0, 2), build.ids(3))


def test_the_order_of_named_gpus_does_not_matter(desk):
    first, second = desk.requests(submission(gpu_ids=("0", "2")), submission(gpu_ids=("2", "0")))
    assert first == second


def test_a_job_without_gpus_has_no_preferred_gpu(desk):
    (request,) = desk.requests(submission(gpus=0, prefer=("1",)))
    assert request.prefer == ()


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"command": "python train.py --lr 1"}, "train.py"),
        ({"command": "/usr/bin/python3 src/train.py"}, "train.py"),
        ({"command": "./run.sh"}, "run.sh"),
        ({"command": "x y", "argv": ("bash", "/a/b c.sh")}, "b c.sh"),
        ({"command": "y" * 100}, "y" * 40),
        ({"command": "true", "name": "vit"}, "vit"),
    ],
)
def test_a_job_without_a_name_is_named_after_its_command(desk, asked, name):
    assert desk.store.job(desk.job(**asked)).spec.name == name


def test_the_environment_of_many_jobs_is_stored_once(desk):
    desk.submit(*[submission(environ=b"A=1")] * 50, submission(environ=b"A=2"), submission())
    assert desk.rows()["environs"] == 2
    assert [desk.store.environ(desk.store.job(n).spec.environ_id) for n in (1, 51, 52)] == [b"A=1", b"A=2", b""]


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (submission(gpus=5), Impossible, "asks for 5 GPUs; this machine has 4"),
        (submission(gpu_type="h100"), Impossible, 'no GPU matches --gpu-type "h100"'),
        (submission(gpu_ids=("9",)), UserError, '--gpu-ids .* there is no GPU "9"'),
        (submission(prefer=("x",)), UserError, '--prefer .* there is no GPU "x"'),
        (submission(gpus=3, gpu_ids=("0", "1")), UserError, "--gpus 3 contradicts --gpu-ids, which names 2"),
        (submission(gpus=0, gpu_ids=("0",)), UserError, "--gpus 0 contradicts --gpu-ids"),
    ],
)
def test_one_impossible_job_refuses_the_whole_submission(desk, bad, error, message):
    """Not even inside the transaction, which continues for other requests."""
    before = desk.rows()
    with desk.store.batch(), pytest.raises(error, match=message):
        control.submit(desk.turn, [submission(environ=b"A=1"), bad, submission()])
    assert desk.rows() == before
    assert desk.store.last_id() == 0


def test_an_empty_submission_is_refused(desk):
    with pytest.raises(UserError, match="expected at least one job"):
        desk.submit()


def test_more_jobs_than_one_transaction_takes_are_refused(desk):
    with pytest.raises(UserError, match="at most 100,000 jobs at once, got 100,001"):
        desk.submit(*[submission()] * 100_001)
    assert desk.rows()["jobs"] == 0


def test_a_million_command_lines_are_taken_and_no_more(desk, monkeypatch):
    monkeypatch.setattr(validation, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(validation, "MOST_LINES", 5)
    assert desk.submit(submission(members=CommandLines("\n".join("abcde"), None))).ids == [1, 2, 3, 4, 5]
    with pytest.raises(UserError, match="at most 5 jobs at once, got 6"):
        desk.submit(submission(members=CommandLines("\n".join("abcdef"), None)))
    assert desk.rows()["jobs"] == 5


def test_command_lines_are_stored_piece_by_piece_in_their_order(desk, monkeypatch):
    monkeypatch.setattr(writer, "ARRIVING", 3)
    lines = [f"python train-{number}.py" for number in range(8)]
    desk.submit(submission(members=CommandLines("\n".join(lines), None)))
    found = [desk.store.job(JobId(number)) for number in range(1, 9)]
    assert [job.spec.command for job in found] == lines
    assert [job.spec.name for job in found] == [line.split()[1] for line in lines]
    assert [job.rank for job in found] == sorted(job.rank for job in found)
    assert [len(desk.store.events(job.id)) for job in found] == [1] * 8


def test_command_lines_end_at_newlines_alone():
    lines = CommandLines("a\rb\nc\x0cd\u2028e\n", "all")
    assert list(lines) == [Member("a\rb", "all"), Member("c\x0cd\u2028e", "all"), Member("", "all")]
    assert (len(lines), lines[1].command, lines[-1].command) == (3, "c\x0cd\u2028e", "")


# -- cancel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [(), (lifecycle.HoldAsked(1),)], ids=["queued", "held"])
def test_a_waiting_job_is_cancelled_at_once(desk, events):
    job_id = desk.job(*events)
    acted = desk.do(control.cancel, str(job_id))
    assert desk.store.job(job_id).outcome is Outcome.CANCELLED
    assert [job.id for job in acted.changed] == [job_id]
    assert desk.turn.effects == []


@pytest.mark.parametrize("events", [RUNNING, (*RUNNING, lifecycle.Paused(3))], ids=["running", "paused"])
def test_a_running_job_gets_the_stop_order_after_the_commit(desk, events):
    job_id = desk.job(*events)
    desk.do(control.cancel, str(job_id))
    stopping = desk.store.job(job_id)
    assert stopping.state is State.STOPPING
    assert desk.turn.effects == [turns.Order(stopping, "stop 30.0")]


def test_the_grace_can_be_given(desk):
    desk.job(*RUNNING)
    desk.do(control.cancel, "1", grace_s=0.5)
    assert [effect.line for effect in desk.turn.effects] == ["stop 0.5"]


def test_a_second_cancel_changes_nothing_but_may_shorten_the_grace(desk):
    desk.job(*RUNNING, lifecycle.CancelAsked(3))
    acted = desk.do(control.cancel, "1", grace_s=0.0)
    assert [left.why for left in acted.unchanged] == ["it is already being stopped"]
    assert [effect.line for effect in desk.turn.effects] == ["stop 0.0"]


def test_a_starting_job_without_a_claim_is_abandoned_and_never_runs(desk):
    desk.job(PLACED)
    desk.do(control.cancel, "1")
    cancelled = desk.store.job(1)
    assert cancelled.outcome is Outcome.CANCELLED
    assert desk.turn.effects == []
    assert attempts.claim(desk.engine.folder(cancelled), cancelled.start, "shim 1 1 x") is None


def test_a_starting_job_already_claimed_by_its_runner_gets_the_stop_order(desk):
    desk.job(PLACED)
    starting = desk.store.job(1)
    folder = desk.engine.folder(starting)
    os.makedirs(folder)
    assert attempts.claim(folder, starting.start, "shim 1 1 x") is not None
    desk.do(control.cancel, "1")
    assert desk.turn.effects == [turns.Order(desk.store.job(1), "stop 30.0")]


@pytest.mark.parametrize(("events", "word"), [(DONE, "done"), (FAILED, "failed")])
def test_a_finished_job_is_unchanged(desk, events, word):
    desk.job(*events)
    before, rows = desk.store.job(1), desk.rows()
    acted = desk.do(control.cancel, "1")
    assert [(left.id, left.why) for left in acted.unchanged] == [(1, f"it is already {word}")]
    assert (desk.store.job(1), desk.rows(), acted.changed) == (before, rows, [])


def test_cancelling_many_jobs_reports_each_result(desk):
    for events in ((), DONE, RUNNING):
        desk.job(*events)
    acted = desk.do(control.cancel, "all")
    assert [(job.id, job.word) for job in acted.changed] == [(1, "cancelled"), (3, "stopping")]
    assert [left.id for left in acted.unchanged] == [2]
    assert set(desk.turn.changed) == {1, 3}


# -- retry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [FAILED, (lifecycle.CancelAsked(1),), (*RUNNING, lifecycle.LostTrack(3, "gone"))],
    ids=["failed", "cancelled", "lost"],
)
def test_a_job_that_did_not_succeed_gets_a_new_attempt(desk, events):
    desk.job(*events)
    desk.do(control.retry, "1")
    again = desk.store.job(1)
    assert (again.state, again.attempt, again.outcome) == (State.QUEUED, 2, None)


def test_a_successful_job_is_not_rerun_by_accident(desk):
    desk.job(*DONE)
    acted = desk.do(control.retry, "1")
    assert [left.why for left in acted.unchanged] == ["it succeeded; --done runs it again"]
    assert desk.store.job(1).outcome is Outcome.DONE


def test_a_successful_job_is_rerun_on_request(desk):
    desk.job(*DONE)
    desk.do(control.retry, "1", also_done=True)
    assert (desk.store.job(1).state, desk.store.job(1).attempt) == (State.QUEUED, 2)


@pytest.mark.parametrize(("events", "word"), [((), "queued"), (RUNNING, "running")])
def test_an_unfinished_job_cannot_be_retried(desk, events, word):
    desk.job(*events)
    before = desk.store.job(1)
    acted = desk.do(control.retry, "1", also_done=True)
    assert [left.why for left in acted.unchanged] == [f"it is {word}, not finished"]
    assert desk.store.job(1) == before


def test_jobs_cancelled_because_of_it_are_retried_too(desk):
    """All of them in one request, also those that are named themselves, in any order."""
    desk.job(*FAILED)
    for need in (1, 2, 3):
        desk.submit(Submission(build.spec(), after=((str(need), When.DONE),)))
        with desk.store.batch():
            desk.store.record(desk.store.job(need + 1), lifecycle.NeedFailed(4, need))
    acted = desk.do(control.retry, "1", "3")
    assert [job.id for job in acted.changed] == [1, 3]
    assert set(desk.turn.changed) == {1, 2, 3, 4}
    assert desk.turn.needs_check == [2, 3, 4]
    assert [desk.store.job(n).state for n in (1, 2, 3, 4)] == [State.QUEUED] * 4
    assert [desk.store.job(n).attempt for n in (1, 2, 3, 4)] == [2, 1, 2, 1]
    last = [desk.store.events(n)[-1].kind for n in (1, 2, 3, 4)]
    assert last == ["RetryAsked", "NeedRetried", "RetryAsked", "NeedRetried"]


# -- selectors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [control.cancel, control.retry])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["9"], r"there is no job 9 \(the newest is 1\)\."),
        (["5-9"], r"no job matches \(the newest is 1\)\."),
        (["5", "9"], r"no job matches \(the newest is 1\)\."),
        (["name:x+lost"], r"no job matches \(the newest is 1\)\."),
        (["@~1"], r"no job matches \(the newest is 1\)\."),
        ([], r"no job matches \(the newest is 1\)\."),
    ],
)
def test_selectors_that_match_no_job_are_an_error(desk, verb, words, message):
    desk.job()
    with pytest.raises(NotFound, match=message):
        desk.do(verb, *words)


@pytest.mark.parametrize("verb", [control.cancel, control.retry, control.hold, control.unhold, control.pause])
@pytest.mark.parametrize("word", ["lost", "since:1s+lost", "1+lost", "name:train*+lost"])
def test_no_job_in_a_state_is_nothing_to_do(desk, verb, word):
    desk.job(name="train")
    assert desk.do(verb, word) == turns.Acted([], [])


def test_on_an_empty_queue_the_error_says_that_there_are_no_jobs(desk):
    with pytest.raises(NotFound, match="there is no job 1: no job yet"):
        desk.do(control.cancel, "1")


def test_one_matching_selector_is_enough(desk):
    desk.job()
    assert [job.id for job in desk.do(control.cancel, "1", "99", "lost").changed] == [JobId(1)]
