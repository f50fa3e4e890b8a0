"""The command of a job: `python -m submitit_dibs.worker FOLDER PICKLE TASKS`. Runs one submitted function.

The pickle has its final name only when the id of the job is known, to the submitting program and to this one. The first
of them renames it, so a job needs nothing from a program that was killed after the submission.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

from submitit.core import submission, utils
from submitit.core.job_environment import JobEnvironment

from submitit_dibs.environment import REQUEUE_CODE

#: The variables that `DibsJobEnvironment` reads.
RANK, TASKS = "SUBMITIT_DIBS_RANK", "SUBMITIT_DIBS_TASKS"


def claim(folder: str, pickle: str, job_id: str) -> None:
    """Give a submitted pickle the name of its job, unless that has been done."""
    paths = utils.JobPaths(folder, job_id)
    paths.folder.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(pickle, paths.submitted_pickle)
    except FileNotFoundError:
        if not paths.submitted_pickle.exists():
            raise


def main() -> int:
    """Run the function as one task, or start one process for each of its tasks."""
    folder, pickle, count = sys.argv[1:]
    if RANK not in os.environ:
        claim(folder, pickle, os.environ["DIBS_JOB_ID"])
        if int(count) > 1:
            return run_tasks(folder, int(count))
    submission.process_job(folder)
    return 0


def run_tasks(folder: str, count: int) -> int:
    """Run all tasks and return an exit code; each has its own output files, and the first one those of the job."""
    # A stop and a warning go to all processes of the job; the tasks answer.
    for number in (signal.SIGTERM, JobEnvironment._usr_sig()):
        signal.signal(number, lambda *_: None)
    with ExitStack() as files:
        tasks = [_start(folder, rank, count, files) for rank in range(count)]
        codes = [task.wait() for task in tasks[:1]]
        if codes[0] == REQUEUE_CODE:
            # The first task has stored the state of all of them.
            for task in tasks[1:]:
                task.kill()
        codes += [task.wait() for task in tasks[1:]]
    return codes[0] or next((code for code in codes if code), 0)


def _start(folder: str, rank: int, count: int, files: ExitStack) -> subprocess.Popen[bytes]:
    paths = utils.JobPaths(folder, os.environ["DIBS_JOB_ID"], rank)
    out = err = None
    if rank:
        out = files.enter_context(paths.stdout.open("ab"))
        is_joined = bool(os.environ.get("SUBMITIT_DIBS_JOINED"))
        err = subprocess.STDOUT if is_joined else files.enter_context(paths.stderr.open("ab"))
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "submitit_dibs.worker", *sys.argv[1:]],
        env={**os.environ, RANK: str(rank), TASKS: str(count)},
        stdout=out,
        stderr=err,
    )


if __name__ == "__main__":
    code = main()
    # Of a task that was killed: what a shell would return.
    sys.exit(code if code >= 0 else 128 - code)
