"""What a new daemon makes of jobs that were just starting when the last one ended."""

from __future__ import annotations

import contextlib
import os

import build
from desk import PLACED, Desk
from dibs.engines.local import Local
from dibs.jobqueue import dispatch
from dibs.jobqueue.turns import Order
from dibs.model import lifecycle
from dibs.model.jobs import Outcome, State
from dibs.runner import attempts, records


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
    """Its claim may have been forgotten by the disk: it could run twice."""
    recover(desk, "one boot")
    job_id = desk.job(PLACED)
    recover(desk, "another boot")
    job = desk.store.job(job_id)
    assert (job.outcome, job.remark) == (
        Outcome.LOST, "the machine went down while it was starting, and nobody knows whether it had begun"
    )  # fmt: skip


def test_a_start_that_was_given_up_is_queued_again_also_after_the_machine_was_down(desk):
    recover(desk, "one boot")
    job_id = desk.job(PLACED)
    job = desk.store.job(job_id)
    os.makedirs(desk.engine.folder(job))
    assert attempts.bury(desk.engine.folder(job), job.start)
    recover(desk, "another boot")
    assert desk.store.job(job_id).state is State.QUEUED


def test_jobs_of_a_queue_that_never_noted_its_boot_are_taken_as_of_this_one(desk):
    job_id = desk.job(PLACED)
    recover(desk, "this boot")
    assert desk.store.job(job_id).state is State.QUEUED


class LateRunner(Local):
    """An engine whose runner claims the start, runs its command and ends between two looks of the daemon."""

    def give_up(self, job):
        os.makedirs(self.folder(job))
        started = attempts.claim(self.folder(job), job.start, "shim 1 1 boot")
        records.write_final(started, records.Final("exited", code=7, ended_at_ns=1))
        os.close(started)
        return super().give_up(job)


def test_a_runner_that_comes_while_its_start_is_given_up_has_its_result_heard(tmp_path):
    desk = Desk(tmp_path, build.inventory(4))
    desk.engine = LateRunner(*(getattr(desk.engine, name) for name in Local.__slots__))
    with contextlib.closing(desk.store):
        recover(desk, "this boot")
        job_id = desk.job(PLACED)
        recover(desk, "this boot")
        job = desk.store.job(job_id)
        assert (job.outcome, job.exit_code) == (Outcome.FAILED, 7)


def test_what_a_runner_tells_of_an_earlier_start_is_not_believed(desk):
    job_id = desk.job(PLACED)
    desk.turn = desk.new_turn()
    with desk.store.batch():
        for attempt, start in ((1, 0), (0, 1), (2, 1)):
            dispatch.hear(desk.turn, "running", job_id, attempt, start, "77 5000000")
        assert desk.store.job(job_id).state is State.STARTING
        dispatch.hear(desk.turn, "running", job_id, 1, 1, "77 5000000")
    assert desk.store.job(job_id).state is State.RUNNING


def test_a_job_that_was_being_stopped_is_told_to_stop_once_more(desk):
    """The order may have been recorded and never given."""
    job_id = desk.job(PLACED, lifecycle.CancelAsked(2))
    job = desk.store.job(job_id)
    os.makedirs(desk.engine.folder(job))
    claim = attempts.claim(desk.engine.folder(job), job.start, "shim 1 1 boot")
    recover(desk, "this boot")
    os.close(claim)
    assert [effect.line for effect in desk.turn.effects if isinstance(effect, Order)] == ["stop 30.0"]
