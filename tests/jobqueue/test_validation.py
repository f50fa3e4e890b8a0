"""Submissions that no machine could run are refused before anything is stored."""

import pytest

import build
from dibs.errors import UserError
from dibs.jobqueue import validation
from dibs.jobqueue.validation import Submission


def submission(**wanted):
    return Submission(build.spec(), **wanted)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"command": ""}, "expected a command, got an empty one"),
        ({"command": " \n"}, "expected a command, got an empty one"),
        ({"argv": ()}, "expected a command, got none"),
        ({"cwd": "data"}, 'cwd expected an absolute folder, got "data"'),
        ({"env": (("CUDA_VISIBLE_DEVICES", "0"),)}, "dibs sets it to the assigned GPUs"),
        ({"env": (("DIBS_JOB_ID", "0"),)}, "names that begin with DIBS_ are set by dibs itself"),
        ({"env": (("", "0"),)}, "-e expected NAME=VALUE"),
        ({"command": "a\0b"}, "cannot contain a NUL byte"),
        ({"argv": ("a", "b\0")}, "cannot contain a NUL byte"),
        ({"env": (("A", "\0"),)}, "cannot contain a NUL byte"),
        ({"output": "\0"}, "cannot contain a NUL byte"),
        ({"tags": ("\0",)}, "cannot contain a NUL byte"),
        ({"command": "a\udcffb"}, "expected UTF-8 text"),
        ({"name": "\ud800"}, "expected UTF-8 text"),
        ({"cwd": "/\udc80"}, "expected UTF-8 text"),
        ({"command": "x" * 128 * 1024}, "expected at most 131,071 bytes, got 131,072"),
        ({"argv": ("echo", "ä" * 65536)}, "expected at most 131,071 bytes, got 131,072"),
    ],
)
def test_a_submission_that_no_machine_could_run_is_refused(asked, message):
    with pytest.raises(UserError, match=message):
        validation.check_submission(Submission(build.spec(**asked)))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_time_limit_is_refused(seconds):
    with pytest.raises(UserError, match="--time expected a time above 0"):
        validation.check_submission(submission(time_limit_s=seconds))


def test_a_negative_gpu_count_is_refused():
    with pytest.raises(UserError, match="--gpus expected a whole number from 0 up, got -1"):
        validation.check_submission(submission(gpus=-1))


def test_a_gpu_count_of_zero_is_accepted():
    validation.check_submission(submission(gpus=0))


def test_the_longest_argument_that_the_kernel_accepts_is_accepted():
    validation.check_submission(Submission(build.spec("x" * (128 * 1024 - 1), env=(("LR", "ä"),))))
