"""What a new daemon makes of jobs that were just starting when the last one ended."""

from __future__ import annotations

import os

from desk import PLACED
from dibs import attempts, dispatch
from dibs.jobs import Outcome, State


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
