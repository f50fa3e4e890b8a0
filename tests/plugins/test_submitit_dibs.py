"""submitit's executor: submitit's own tests of an executor, arrays, cancelling, and checkpoints at a time-out."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import submitit
from submitit.core import plugins, utils

from bench import PATIENCE_S, Bench, wait_for
from submitit_dibs.executor import DibsExecutor
from submitit_dibs.job import DibsJob, JobWatcher

pytestmark = [pytest.mark.usefixtures("queue"), pytest.mark.filterwarnings("default")]

#: submitit's tests of its local executor, from the installed package. Left out are those of its processes: killing one,
#: restoring one from a pickle, and `setup`, which is a parameter of that executor.
LOCAL = (
    *("test_local_map_array", "test_local_submit_array", "test_local_error", "test_pickle_output_from_main"),
    *("test_get_first_task_error", "test_stdout", "test_requeuing", "test_custom_checkpoint", "test_load_submission"),
)
#: Its tests that take any executor.
ANY = (("submitit.test_helpers", "test_as_completed"), ("submitit.auto.test_auto", "test_redirect_stdout_stderr"))

#: Seconds between TERM and KILL where nobody says otherwise.
USUAL_GRACE_S = 30


@pytest.fixture
def as_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let submitit's tests use our executor where they name its local one."""
    from submitit.local import local

    monkeypatch.setattr(local, "LocalExecutor", DibsExecutor)
    monkeypatch.setattr(local, "LocalJob", DibsJob)


@pytest.mark.usefixtures("as_local")
@pytest.mark.parametrize("name", LOCAL)
def test_submitits_tests_of_an_executor_pass(name: str, tmp_path: Path) -> None:
    getattr(importlib.import_module("submitit.local.test_local"), name)(tmp_path)


@pytest.mark.usefixtures("as_local")
@pytest.mark.parametrize("name", ["a_0", "a 0", 'a"=0"', "a'; echo foo", r"a\=0", "a\n0", "{a}"])
def test_a_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    """With the names of submitit's own test, and one of ours."""
    importlib.import_module("submitit.local.test_local").test_weird_dir(tmp_path / name)


@pytest.mark.parametrize(("module", "name"), ANY)
def test_submitits_tests_of_any_executor_pass(module: str, name: str, tmp_path: Path) -> None:
    getattr(importlib.import_module(module), name)(DibsExecutor(tmp_path))


def test_submitit_finds_the_plugin() -> None:
    tests = importlib.import_module("submitit.core.test_plugins")
    assert plugins.get_executors()["dibs"] is DibsExecutor
    environment = plugins.get_job_environments()["dibs"]
    tests.test_env(environment)
    tests.test_executors(DibsExecutor)
    assert submitit.AutoExecutor.which() != "dibs", "it is used only when it is named"


def executor(folder: Path, **parameters: Any) -> submitit.AutoExecutor:
    """Return an executor with parameters."""
    made = submitit.AutoExecutor(folder=folder, cluster="dibs")
    made.update_parameters(**parameters)
    return made


def test_an_array_of_a_hundred_is_one_submission(tmp_path: Path, queue: Bench) -> None:
    jobs = executor(tmp_path, name="addition", gpus_per_node=1).map_array(int.__add__, range(100), range(100))
    assert [job.result() for job in jobs] == [2 * number for number in range(100)]
    found = queue.jobs("name:addition")
    assert len({job["submitted_at"] for job in found}) == 1
    assert {(job["state"], job["gpus"], len(job["gpu_indices"])) for job in found} == {("done", 1, 1)}
    assert {job.state for job in jobs} == {"COMPLETED"}


def test_a_batch_is_one_array(tmp_path: Path, queue: Bench) -> None:
    made = executor(tmp_path, name="batch", dibs_at_most=1)
    with made.batch():
        jobs = [made.submit(int.__mul__, number, 2) for number in range(4)]
    assert [job.result() for job in jobs] == [0, 2, 4, 6]
    assert len({job["submitted_at"] for job in queue.jobs("name:batch")}) == 1


def test_an_exception_comes_back_and_fails_the_job(tmp_path: Path) -> None:
    job = executor(tmp_path).submit(int, "x")
    with pytest.raises(utils.FailedJobError, match="invalid literal"):
        job.result()
    assert job.state == "FAILED"


def test_cancel_ends_a_function_that_ignores_term(tmp_path: Path, queue: Bench) -> None:
    """After two seconds, not after the usual grace."""

    def sleep() -> None:
        import time

        (tmp_path / "began").touch()
        while True:
            time.sleep(1)

    job = executor(tmp_path).submit(sleep)
    wait_for((tmp_path / "began").exists)
    job.cancel()
    ended = queue.until(int(job.job_id))
    assert (ended["state"], ended["signal"]) == ("cancelled", 9)
    asked, gone = (
        next(datetime.fromisoformat(each["at"]) for each in queue.events(ended["id"]) if each["kind"] == kind)
        for kind in ("CancelAsked", "Ended")
    )
    assert (gone - asked).total_seconds() < USUAL_GRACE_S
    assert job.done(force_check=True)
    assert job.state == "CANCELLED"


def test_cpus_and_memory_count_only_when_dibs_is_asked(tmp_path: Path, queue: Bench) -> None:
    made = executor(tmp_path, cpus_per_task=1000, mem_gb=100_000)
    (first, second) = (made.submit(abs, -1), executor(tmp_path, dibs_cpus=2, dibs_mem="1M").submit(abs, -1))
    assert (first.result(), second.result()) == (1, 1)
    assert [queue.job(int(job.job_id))["cpus"] for job in (first, second)] == [None, 2]


def test_other_parameters_reach_the_job(tmp_path: Path, queue: Bench) -> None:
    made = executor(tmp_path, timeout_min=60, dibs_project="vision", dibs_tags=["a"], dibs_priority=5, dibs_retries=2)
    job = queue.job(int(made.submit(abs, -1).job_id))
    wanted = {"time_limit_s": 3600, "project": "vision", "tags": ["a"], "priority": 5, "gpus": 0}
    assert {name: job[name] for name in wanted} == wanted


@pytest.mark.parametrize("wrong", [{"nodes": 2}, {"tasks_per_node": 0}, {"dibs_vrom": "1G"}])
def test_a_wrong_parameter_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, NameError)):
        executor(tmp_path, **wrong)


def test_what_dibs_refuses_is_a_failed_submission(tmp_path: Path) -> None:
    with pytest.raises(utils.FailedSubmissionError, match="9 GPUs"):
        executor(tmp_path, gpus_per_node=9).submit(abs, -1)


SUBMITTER = """
import os, signal, submitit, sys
from pathlib import Path

def work(folder, number):
    import time
    while not (folder / "gate").exists():
        time.sleep(0.01)
    return number * 2

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    executor = submitit.AutoExecutor(folder=folder, cluster="dibs")
    jobs = executor.map_array(work, [folder] * 4, range(4))
    print(*(job.job_id for job in jobs), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_jobs_survive_the_program_that_submitted_them(tmp_path: Path) -> None:
    (tmp_path / "submitter.py").write_text(SUBMITTER)
    words = [sys.executable, "submitter.py", str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == -9, done.stderr
    (tmp_path / "gate").touch()
    assert [DibsJob(tmp_path, job_id).result() for job_id in done.stdout.split()] == [0, 2, 4, 6]


def test_a_job_finds_its_function_even_if_the_submitter_died_before_it_knew_the_id(tmp_path: Path) -> None:
    """The pickle is still under its first name when the job starts."""
    program = "from submitit_dibs import worker\nworker.claim = lambda *_: __import__('os')._exit(9)\n" + SUBMITTER
    (tmp_path / "submitter.py").write_text(program)
    (tmp_path / "gate").touch()
    words = [sys.executable, "submitter.py", str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 9
    results = wait_for(lambda: list(tmp_path.glob("*_0_result.pkl")), lambda found: len(found) == 4)
    assert sorted(pickle.loads(path.read_bytes()) for path in results) == [("success", 2 * n) for n in range(4)]


def test_a_checkpoint_at_the_time_out_continues_in_a_new_attempt(tmp_path: Path, queue: Bench) -> None:
    class Training:
        """Ends when it was interrupted once."""

        def __init__(self) -> None:
            self.interruptions = 0

        def __call__(self) -> tuple[int, str]:
            import time

            while not self.interruptions:
                time.sleep(0.01)
            return self.interruptions, os.environ["DIBS_ATTEMPT"]

        def checkpoint(self) -> Any:
            self.interruptions += 1
            return submitit.helpers.DelayedSubmission(self)

    made = DibsExecutor(tmp_path)
    # The warning comes soon, and the time-out long after it.
    made.update_parameters(timeout_min=10, signal_delay_s=10 * 60 - 5)
    job = made.submit(Training())
    assert job.result() == (1, "2")
    assert queue.job(int(job.job_id))["attempt"] == 2
    assert job.state == "COMPLETED"


def test_a_result_of_an_earlier_queue_is_not_taken_for_that_of_a_new_job(tmp_path: Path) -> None:
    first = executor(tmp_path).submit(abs, -1)
    old = utils.JobPaths(tmp_path, str(int(first.job_id) + 1), 0).result_pickle
    old.write_bytes(pickle.dumps(("success", "old")))
    os.utime(old, (1, 1))
    assert executor(tmp_path).submit(abs, -5).result() == 5


def test_many_states_cost_few_requests(tmp_path: Path) -> None:
    jobs = executor(tmp_path).map_array(abs, range(20))
    for job in jobs:
        job.wait()
    watcher = JobWatcher()
    for job in jobs:
        watcher.register_job(job.job_id)
    assert {watcher.get_state(job.job_id) for job in jobs} == {"COMPLETED"}
    assert watcher.num_calls == 1


def test_a_handle_can_be_pickled(tmp_path: Path) -> None:
    job = executor(tmp_path).submit(abs, -1)
    assert pickle.loads(pickle.dumps(job)).result() == 1


def test_programs_that_use_submitit_load_nothing_of_dibs() -> None:
    program = (
        "import sys, submitit; submitit.core.plugins.get_executors()\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'dibs'])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert loaded.stdout == "[]\n"
