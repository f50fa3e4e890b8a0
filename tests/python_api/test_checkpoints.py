"""A stopped job saves a checkpoint, and its next attempt continues there: by manual and by automatic retry."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

import dibs
from bench import Bench, wait_for

#: Counts to nine, one step for each line of a fifo, and prints the steps it did.
TRAINING = """
import os, sys, dibs
state = dibs.checkpoint_dir() / "state"
step = int(state.read_text()) if state.exists() else 0
def save(left):
    new = state.with_suffix(".new")
    new.write_text(str(step))
    new.rename(state)
    print("saved", step, "with", left, flush=True)
dibs.on_stop(save)
print("from", step, flush=True)
while step < 9:
    with open(sys.argv[1]) as turn:
        turn.read()
    step += 1
    dibs.report(step=step)
    print("step", step, flush=True)
    if sys.argv[2:] == [str(step)] and os.environ["DIBS_ATTEMPT"] == "1":
        save(0)
        sys.exit("the network disk went away")
"""


@pytest.fixture
def turns(user_queue: Bench, tmp_path: Path) -> Path:
    """A fifo: each write makes a training do a step."""
    (tmp_path / "train.py").write_text(TRAINING)
    os.mkfifo(tmp_path / "turns")
    return tmp_path / "turns"


def step(turns: Path, job: dibs.Job, number: int) -> None:
    """Let a training do one step, and check that it did."""
    turns_taken(turns)
    wait_for(lambda: job.log(), lambda text: f"step {number}\n" in text)


def turns_taken(turns: Path) -> None:
    """Write to the fifo as soon as somebody reads it."""

    def is_written() -> bool:
        try:
            fd = os.open(turns, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        os.write(fd, b"go")
        os.close(fd)
        return True

    wait_for(is_written)


def test_a_manual_retry_continues_where_the_cancelled_attempt_stopped(turns: Path) -> None:
    job = dibs.submit([sys.executable, turns.parent / "train.py", turns], gpus=1)
    for number in (1, 2, 3, 4):
        step(turns, job, number)
    job.cancel()
    assert job.wait() == "cancelled"
    assert job.log() == "from 0\nstep 1\nstep 2\nstep 3\nstep 4\nsaved 4 with 30.0\n"
    assert job.numbers == {"step": 4}
    job.retry()
    for number in (5, 6, 7, 8, 9):
        step(turns, job, number)
    assert job.wait() == "done"
    assert job.log() == "from 4\nstep 5\nstep 6\nstep 7\nstep 8\nstep 9\n"
    assert (job.attempt, job.numbers) == (2, {"step": 9})


def test_an_automatic_retry_continues_where_the_failed_attempt_stopped(turns: Path) -> None:
    job = dibs.submit([sys.executable, turns.parent / "train.py", turns, "2"], gpus=1, retries=1)
    step(turns, job, 1)
    turns_taken(turns)
    wait_for(lambda: job.attempt, lambda attempt: attempt == 2)
    for number in range(3, 10):
        step(turns, job, number)
    assert job.wait() == "done"
    assert job.log(attempt=1) == "from 0\nstep 1\nstep 2\nsaved 2 with 0\nthe network disk went away\n"
    assert job.log().startswith("from 2\nstep 3\n")
