"""What a new daemon does with jobs that were starting when the last one ended."""

from __future__ import annotations

import contextlib
import os

import pytest

import build
from desk import PLACED, Desk
from dibs.engines.local import Local
from dibs.jobqueue import dispatch
from dibs.jobqueue.turns import Order
from dibs.model import lifecycle
from dibs.model.jobs import Outcome, State
from dibs.runner import attempts, records
from dibs.system.refusals import DEVICE, QUEUE, Refusal

FULL = Refusal(QUEUE, "No space left on device (/data)")


def recover(desk, boot):
    desk.turn = desk.new_turn()
    with desk.store.batch():
        dispatch.recover(desk.turn, boot)


def test_a_job_without_a_claim_is_queued_again_when_only_the_daemon_died(desk):
    recover(desk, "this boot")
    job_id = desk.job(PLACED)
    recover(desk, "this boot")
    assert desk.store.job(job_id).state is State.QUEUED


def test_a_job_without_a_claim_is_lost_when_the_machine_was_down(desk):
    """The disk may have lost its claim: it could run twice."""
    recover(desk, "one boot")
    job_id = desk.job(PLACED)
    recover(desk, "another boot")
    job = desk.store.job(job_id)
    assert (job.outcome, job.remark) == (
        Outcome.LOST, "the machine went down while the job was starting; unknown whether it ran"
    )  # fmt: skip


def test_a_job_that_was_being_stopped_without_a_claim_is_lost_when_the_machine_was_down(desk):
    """It was claimed, or the order to stop would not have been needed; the disk has lost that, and how it ended."""
    recover(desk, "one boot")
    job_id = desk.job(PLACED, lifecycle.CancelAsked(3))
    os.makedirs(desk.engine.folder(desk.store.job(job_id)))
    recover(desk, "another boot")
    job = desk.store.job(job_id)
    assert (job.outcome, job.remark) == (
        Outcome.LOST, "the machine went down while the job was stopping; unknown whether it ran"
    )  # fmt: skip


def test_an_abandoned_start_is_queued_again_even_after_a_reboot(desk):
    recover(desk, "one boot")
    job_id = desk.job(PLACED)
    job = desk.store.job(job_id)
    os.makedirs(desk.engine.folder(job))
    assert attempts.bury(desk.engine.folder(job), job.start)
    recover(desk, "another boot")
    assert desk.store.job(job_id).state is State.QUEUED


def test_jobs_of_a_queue_without_a_recorded_boot_count_as_of_this_boot(desk):
    job_id = desk.job(PLACED)
    recover(desk, "this boot")
    assert desk.store.job(job_id).state is State.QUEUED


class LateRunner(Local):
    """An engine whose runner claims the start, runs its command and ends between two checks of the daemon."""

    def give_up(self, job):
        os.makedirs(self.folder(job))
        started = attempts.claim(self.folder(job), job.start, "shim 1 1 boot")
        records.write_final(started, records.Final("exited", code=7, ended_at_ns=1))
        os.close(started)
        return super().give_up(job)


def test_the_result_of_a_runner_that_claims_during_give_up_is_used(tmp_path):
    desk = Desk(tmp_path, build.inventory(4))
    desk.engine = LateRunner(*(getattr(desk.engine, name) for name in Local.__slots__))
    with contextlib.closing(desk.store):
        recover(desk, "this boot")
        job_id = desk.job(PLACED)
        recover(desk, "this boot")
        job = desk.store.job(job_id)
        assert (job.outcome, job.exit_code) == (Outcome.FAILED, 7)


def test_a_message_about_an_earlier_start_is_ignored(desk):
    job_id = desk.job(PLACED)
    desk.turn = desk.new_turn()
    with desk.store.batch():
        for attempt, start in ((1, 0), (0, 1), (2, 1)):
            dispatch.hear(desk.turn, "running", job_id, attempt, start, "77 5000000")
        assert desk.store.job(job_id).state is State.STARTING
        dispatch.hear(desk.turn, "running", job_id, 1, 1, "77 5000000")
    assert desk.store.job(job_id).state is State.RUNNING


def test_a_job_that_was_being_stopped_gets_the_stop_order_again(desk):
    """The order may have been recorded and never sent."""
    job_id = desk.job(PLACED, lifecycle.CancelAsked(2))
    job = desk.store.job(job_id)
    os.makedirs(desk.engine.folder(job))
    claim = attempts.claim(desk.engine.folder(job), job.start, "shim 1 1 boot")
    recover(desk, "this boot")
    os.close(claim)
    assert [effect.line for effect in desk.turn.effects if isinstance(effect, Order)] == ["stop 30.0"]


def record(desk, job_id, final):
    """Leave the record of a runner that is gone."""
    job = desk.store.job(job_id)
    os.makedirs(desk.engine.folder(job))
    started = attempts.claim(desk.engine.folder(job), job.start, "shim 1 1 boot")
    records.write_final(started, final)
    os.close(started)


@pytest.mark.parametrize("boot", ["this boot", "another boot"])
def test_a_start_refused_by_the_machine_is_queued_again_without_counting(desk, boot):
    recover(desk, "this boot")
    job_id = desk.job(PLACED)
    record(desk, job_id, records.Final("refused", why=FULL.why, scope=QUEUE))
    recover(desk, boot)
    job = desk.store.job(job_id)
    assert (job.state, job.attempt, job.dead_starts, job.remark) == (State.QUEUED, 1, 0, FULL.why)


def look(desk, job_id, **how):
    """Look at the first start of a job, as after a message; return why it was refused."""
    desk.turn = desk.new_turn()
    with desk.store.batch():
        return dispatch.look(desk.turn, job_id, 1, 1, dispatch.News(**how))


def test_a_record_says_which_device_was_refused(desk):
    job_id = desk.job(PLACED)
    record(desk, job_id, records.Final("refused", why="cannot use it", scope=DEVICE, device="FAKE-0"))
    assert look(desk, job_id, runner_died=True) == Refusal(DEVICE, "cannot use it", "FAKE-0")


def test_a_reported_result_needs_no_file(desk):
    job_id = desk.job(PLACED)
    assert look(desk, job_id, final=records.Final("exited", code=3, started_at_ns=10**6, ended_at_ns=2 * 10**6)) is None
    job = desk.store.job(job_id)
    assert (job.outcome, job.exit_code, job.started_at, job.finished_at) == (Outcome.FAILED, 3, 1, 2)
    assert not os.path.exists(desk.engine.folder(job))


def test_a_reported_refusal_needs_no_file(desk):
    """No file can be made on a full disk."""
    job_id = desk.job(PLACED)
    assert look(desk, job_id, refusal=FULL) == FULL
    job = desk.store.job(job_id)
    assert (job.state, job.dead_starts, job.remark) == (State.QUEUED, 0, FULL.why)
    assert not os.path.exists(desk.engine.folder(job))


def test_a_refusal_of_an_earlier_start_is_ignored(desk):
    job_id = desk.job(PLACED, lifecycle.GivenUp(2, "refused"), lifecycle.Placed(3, build.ids(0)))
    assert look(desk, job_id, refusal=FULL) is None
    assert desk.store.job(job_id).state is State.STARTING


def test_a_cancelled_job_whose_start_was_refused_is_cancelled(desk):
    job_id = desk.job(PLACED, lifecycle.CancelAsked(2))
    look(desk, job_id, refusal=FULL)
    assert desk.store.job(job_id).outcome is Outcome.CANCELLED


def test_only_runners_that_die_silently_with_a_start_fail_their_job(desk):
    job_id = desk.job(PLACED)
    for start in range(1, 9):
        desk.turn = desk.new_turn()
        with desk.store.batch():
            dispatch.look(desk.turn, job_id, 1, start, dispatch.News(refusal=FULL))
            desk.store.record(desk.store.job(job_id), lifecycle.Placed(3, build.ids(0)))
    for start in range(9, 9 + lifecycle.MOST_DEAD_STARTS):
        assert desk.store.job(job_id).state is State.STARTING
        desk.turn = desk.new_turn()
        with desk.store.batch():
            dispatch.look(desk.turn, job_id, 1, start, dispatch.News(runner_died=True))
            if desk.store.job(job_id).is_waiting:
                desk.store.record(desk.store.job(job_id), lifecycle.Placed(3, build.ids(0)))
    assert desk.store.job(job_id).outcome is Outcome.FAILED
