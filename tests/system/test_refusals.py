"""Whether an error is the fault of the machine, of one job, or of the job itself."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.system import refusals
from dibs.system.refusals import JOB, QUEUE, Refusal

MACHINES = [
    errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EIO, errno.ENOLCK,
    errno.EROFS, errno.ESTALE,
]  # fmt: skip


def error(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize("number", MACHINES)
def test_an_error_of_the_machine_at_our_files_pauses_all_starts(number):
    assert refusals.of_own(error(number, "/state/x")) == Refusal(QUEUE, f"{os.strerror(number)} (/state/x)")


@pytest.mark.parametrize("number", MACHINES)
def test_an_error_of_the_machine_at_a_chosen_path_never_fails_the_job(number):
    assert refusals.of_users(error(number), b"/mine/out") is not None


def test_a_full_disk_of_one_jobs_output_does_not_stop_other_jobs():
    refusal = refusals.of_users(error(errno.ENOSPC), b"/mine/out")
    assert refusal == Refusal(JOB, "No space left on device (/mine/out)")


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENOEXEC, errno.E2BIG])
def test_an_error_of_the_job_itself_fails_it(number):
    assert refusals.of_users(error(number), b"/mine/program") is None


def test_an_unusable_job_folder_delays_only_its_job():
    assert refusals.of_own(error(errno.ENOTDIR, "/state/jobs/3")).scope == JOB


@given(st.sampled_from((QUEUE, JOB)), st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_a_refusal_survives_a_round_trip(scope, why):
    assert refusals.unpack(refusals.pack(Refusal(scope, why))) == Refusal(scope, why)


def test_a_long_reason_is_truncated():
    packed = refusals.pack(Refusal(QUEUE, "x" * 5000))
    assert len(packed) == refusals.LONGEST_BYTES
    assert refusals.unpack(packed).why.startswith("xxx")


@pytest.mark.parametrize("message", [b"", b"over", b"refused", b"refused\0queue"])
def test_other_messages_are_no_refusals(message):
    assert refusals.unpack(message) is None
