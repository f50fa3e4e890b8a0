"""What `dibs.Executor` has beyond other executors: jobs with options and logs, and futures that outlive programs."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, wait
from pathlib import Path
from typing import Any

import pytest

import chores
import dibs
from bench import PATIENCE_S, Bench, wait_for
from dibs.client import connection
from dibs.errors import Impossible, MachineError, NoDaemon, UserError
from dibs.python_api import pickling
from dibs.python_api.calls.requests import CallOptions, PendingCall
from dibs.python_api.calls.submission_queue import SubmissionQueue
from dibs.python_api.futures import BrokenJob, CallFailed, Future
from dibs.python_api.pickling import Unpicklable
from dibs.store import call_files


@pytest.fixture(scope="module")
def pool(queue: Bench) -> Iterator[dibs.Executor]:
    """An executor for all tests that need no other."""
    with dibs.Executor(gpus=0) as made:
        yield made


def program(queue: Bench, text: str, *words: str) -> str:
    """Run a program as users write it, with the functions of `chores`; return what it prints."""
    path = Path(chores.__file__).parent
    file = queue.folder / "program.py"
    file.write_text(f"import sys; sys.path.append({str(path)!r})\nimport chores, dibs\n{text}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", file, *words],
        env=queue.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=queue.folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- the surroundings of a call --


def test_a_call_has_the_python_the_folder_and_the_environment_of_its_caller(
    pool: dibs.Executor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("relative")
    monkeypatch.setenv("COLOUR", "blue")
    seen = pool.submit(chores.surroundings).result(PATIENCE_S)
    assert seen["cwd"] == str(tmp_path)
    assert seen["path"] == [
        f"{tmp_path}/relative",
        *((entry and os.path.abspath(entry)) or str(tmp_path) for entry in sys.path[1:]),
    ]
    assert seen["python"] == sys.executable
    assert seen["argv"] == []
    assert seen["environ"]["COLOUR"] == "blue"
    monkeypatch.setenv("COLOUR", "green")
    assert pool.submit(os.getenv, "COLOUR").result(PATIENCE_S) == "green"


def test_a_worker_imports_nothing_that_the_call_does_not_need(pool: dibs.Executor) -> None:
    """Each of these costs every call some milliseconds."""
    bare = "import os, _pickle, __future__, sys; print(*sys.modules)"
    there = subprocess.run([sys.executable, "-c", bare], capture_output=True, text=True, check=True).stdout.split()
    loaded = set(pool.submit(eval, "list(__import__('sys').modules)").result(PATIENCE_S))
    packages = {"dibs", "dibs.python_api", "dibs.store", "dibs.system"}
    assert loaded - set(there) == packages | {
        "dibs.python_api.call_worker", "dibs.store.call_files", "dibs.python_api.pickling", "dibs.system.lean",
    }  # fmt: skip


def test_a_call_is_a_readable_job(pool: dibs.Executor, queue: Bench) -> None:
    future = pool.with_options(project="vision", tags=["a", "b"], time="1h").submit(chores.square, 12)
    assert future.result(PATIENCE_S) == 144
    job = queue.job(future.job.id)
    assert (job["name"], job["project"], job["tags"], job["time_limit_s"]) == ("square(12)", "vision", ["a", "b"], 3600)
    assert future.job.state == "done"


def test_an_explicit_name_is_used(pool: dibs.Executor) -> None:
    assert pool.with_options(name="mine").submit(chores.square, 1).job.name == "mine"


def test_each_call_may_have_other_options(pool: dibs.Executor) -> None:
    two = pool.with_options(gpus=2)
    environ = two.submit(chores.surroundings).result(PATIENCE_S)["environ"]
    assert len(environ["CUDA_VISIBLE_DEVICES"].split(",")) == 2
    assert two.with_options(name="x").submit(os.getenv, "DIBS_GPU_INDICES").result(PATIENCE_S).count(",") == 1
    assert pool.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result(PATIENCE_S) == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gpu": 1}, "gpus"),
        ({"time": 60}, "time expected"),
        ({"max_jobs": 0}, "max_jobs expected"),
        ({"max_jobs": True}, "max_jobs expected"),
        ({"max_workers": 4}, "there is no option max_workers. Did you mean max_jobs?"),
        ({"initializer": print}, "there is no option initializer. Each call has a process of its own"),
    ],
)
def test_a_wrong_option_is_refused_at_once(queue: Bench, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        dibs.Executor(**options)
    assert says in caught.value.line()


def test_an_impossible_request_fails_only_its_own_futures(pool: dibs.Executor) -> None:
    many = [pool.submit(chores.square, 1), pool.with_options(gpus=99).submit(chores.square, 2), pool.submit(abs, -3)]
    assert isinstance(many[1].exception(PATIENCE_S), Impossible)
    assert [many[0].result(PATIENCE_S), many[2].result(PATIENCE_S)] == [1, 3]
    with pytest.raises(Impossible, match="99"):
        _ = many[1].job


def test_calls_are_submitted_in_groups(queue: Bench, pool: dibs.Executor) -> None:
    """Calls made during a submission are sent together with the next one."""
    pid = queue.pid()
    assert pid is not None
    folder = queue.home / call_files.FOLDER
    before = len(os.listdir(folder))
    os.kill(pid, signal.SIGSTOP)
    try:
        many = [pool.submit(chores.square, n) for n in range(50)]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [future.result(PATIENCE_S) for future in many] == [n * n for n in range(50)]
    assert len(os.listdir(folder)) - before <= 2


def test_max_jobs_limits_running_calls_whatever_their_options(queue: Bench, tmp_path: Path) -> None:
    gate, log = f"{tmp_path}/gate", f"{tmp_path}/log"
    with dibs.Executor(gpus=0, max_jobs=2) as own:
        with chores.closed(gate):
            others = [own, own.with_options(priority=5), own.with_options(gpus=1)]
            many = [other.submit(chores.pass_gate, gate, n, log) for n, other in enumerate(others * 2)]
            ids = [future.job.id for future in many]
            wait_for(lambda: len(chores.noted(log)) == 2)
            found = [queue.job(job_id) for job_id in ids]
            assert len({job["batch"] for job in found}) == 1
            assert sum(job["state"] == "queued" for job in found) == 4
        assert sorted(future.result(PATIENCE_S) for future in many) == [0, 1, 2, 3, 4, 5]


# -- what can be sent --


def test_large_arguments_and_results_pass(pool: dibs.Executor) -> None:
    assert pool.submit(chores.size, b"x" * 30_000_000).result(PATIENCE_S) == 30_000_000
    assert len(pool.submit(chores.grow, 30_000_000).result(PATIENCE_S)) == 30_000_000


def test_an_unpicklable_argument_fails_only_its_own_future(pool: dibs.Executor) -> None:
    wrong, right = pool.submit(chores.told, threading.Lock()), pool.submit(chores.square, 3)
    with pytest.raises(Unpicklable, match=r"the call told\(lock\) cannot be pickled"):
        wrong.result(PATIENCE_S)
    with pytest.raises(Unpicklable):
        _ = wrong.job
    assert right.result(PATIENCE_S) == 9


def test_an_unpicklable_result_fails_only_its_own_future(pool: dibs.Executor) -> None:
    wrong, right = pool.submit(chores.give_lock), pool.submit(chores.square, 3)
    with pytest.raises(Unpicklable, match="the result of the call cannot be pickled"):
        wrong.result(PATIENCE_S)
    assert wrong.job.state == "failed"
    assert right.result(PATIENCE_S) == 9


def test_an_unpicklable_exception_is_reported_as_text(pool: dibs.Executor) -> None:
    error = pool.submit(chores.complain).exception(PATIENCE_S)
    assert isinstance(error, CallFailed)
    assert str(error).endswith("TwoWords: no way")
    assert 'raise TwoWords("no", "way")' in "".join(traceback.format_exception(error))


def test_lambdas_and_functions_of_main_run_with_cloudpickle(queue: Bench) -> None:
    text = """
class Thing:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return type(self) is type(other) and self.x == other.x

def halve(thing): return Thing(thing.x // 2)

with dibs.Executor(gpus=0) as pool:
    print(pool.submit(halve, Thing(8)).result() == Thing(4), pool.submit(lambda x: x + 1, 1).result())
"""
    assert program(queue, text) == "True 2\n"


def test_without_cloudpickle_functions_of_main_are_refused_with_the_fix(queue: Bench) -> None:
    text = """
sys.modules["cloudpickle"] = None
with dibs.Executor(gpus=0) as pool:
    print(pool.submit(lambda: 1).exception())
    print(pool.submit(chores.square, 2).result())
"""
    refusal, value = program(queue, text).splitlines()
    assert "Install cloudpickle to send it by value: pip install 'dibs[python]'" in refusal
    assert value == "4"


# -- outcomes of calls --


@pytest.mark.parametrize(
    ("how", "why"), [("signal", "is failed and left no result (signal 9)"), ("gone", "is done and")]
)
def test_a_call_without_a_result_is_broken_and_the_pool_continues(pool: dibs.Executor, how: str, why: str) -> None:
    future = pool.submit(chores.leave, how)
    with pytest.raises(BrokenExecutor) as caught:
        future.result(PATIENCE_S)
    assert isinstance(caught.value, BrokenJob)
    assert str(caught.value).startswith(f"job {future.job.id}, leave('{how}'), {why}")
    assert f"/jobs/{future.job.id}/1/log" in str(caught.value)
    assert pool.submit(chores.square, 2).result(PATIENCE_S) == 4


def test_a_call_that_exits_is_an_exception_and_the_job_has_its_exit_code(pool: dibs.Executor) -> None:
    future = pool.submit(chores.leave, "exit")
    assert isinstance(future.exception(PATIENCE_S), SystemExit)
    assert future.job.exit_code == 3


def test_a_call_that_exceeds_its_time_limit_is_broken(pool: dibs.Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        future = pool.with_options(time="0.2s").submit(chores.pass_gate, f"{tmp_path}/gate")
        with pytest.raises(BrokenJob, match="is timeout and left no result"):
            future.result(PATIENCE_S)


def test_a_missing_interpreter_is_a_call_that_could_not_be_started(pool: dibs.Executor, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    held = pool.with_options(cwd=folder, hold=True).submit(chores.square, 1)
    job_id = held.job.id
    folder.rmdir()
    held.job.unhold()
    with pytest.raises(BrokenJob, match=f"job {job_id}, .* is failed .*gone"):
        held.result(PATIENCE_S)


def test_a_failed_call_is_retried_if_allowed(pool: dibs.Executor) -> None:
    future = pool.with_options(retries=1).submit(chores.only_at_second, "value")
    assert future.result(PATIENCE_S) == "value"
    assert future.job.attempt == 2


def test_cancelling_the_waiting_job_of_a_call_cancels_its_future(pool: dibs.Executor) -> None:
    future = pool.with_options(hold=True).submit(chores.square, 1)
    future.job.cancel()
    with pytest.raises(CancelledError):
        future.result(PATIENCE_S)
    assert future.cancelled()


def test_cancelling_the_running_job_of_a_call_cancels_its_future(pool: dibs.Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        future = pool.submit(chores.pass_gate, f"{tmp_path}/gate")
        wait_for(future.running)
        assert not future.cancel()
        future.job.cancel(grace=0)
        for ask in (future.result, future.exception):
            with pytest.raises(CancelledError):
                ask(PATIENCE_S)
    assert future.cancelled()
    assert wait([future], PATIENCE_S).done == {future}


def test_a_chunk_returns_the_results_before_an_exception(pool: dibs.Executor) -> None:
    results = pool.map(chores.even, [0, 2, 3, 4], chunksize=4)
    assert [next(results), next(results)] == [0, 2]
    with pytest.raises(chores.Odd, match="3 is odd"):
        next(results)


def test_closing_the_iterator_of_map_cancels_the_rest(queue: Bench, tmp_path: Path) -> None:
    with dibs.Executor(gpus=0, max_jobs=1) as own, chores.closed(f"{tmp_path}/gate"):
        (tmp_path / "open").touch()
        gates = [f"{tmp_path}/open", f"{tmp_path}/gate", f"{tmp_path}/open"]
        results = own.map(chores.pass_gate, gates, range(3))
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]
        last = max(queue.jobs("name:pass_gate*"), key=lambda job: job["id"])
        assert last["state"] == "cancelled"


def test_a_callback_may_use_the_job_of_a_call_it_made(pool: dibs.Executor) -> None:
    found: list[int] = []
    over = threading.Event()

    def go_on(done: object) -> None:
        found.append(pool.submit(chores.square, 2).job.id)
        over.set()

    pool.submit(chores.square, 1).add_done_callback(go_on)
    assert over.wait(PATIENCE_S)
    assert found


# -- futures that outlive programs --


def test_a_program_may_exit_with_unfinished_calls_and_another_finds_them(queue: Bench, tmp_path: Path) -> None:
    """It exits at once, although a call waits at a gate; a call made at the last moment is in the queue too."""
    gate = f"{tmp_path}/gate"
    text = """
pool = dibs.Executor(gpus=0)
first = pool.submit(chores.pass_gate, sys.argv[1], "first")
print(first.job.id)
pool.with_options(tags=["last"]).submit(lambda: "last")
"""
    with chores.closed(gate):
        first = int(program(queue, text, gate))
        (last,) = dibs.Executor.attach("tag:last")
        (future,) = dibs.Executor.attach([first])
        assert last.result(PATIENCE_S) == "last"
        assert not future.done()
    assert future.result(PATIENCE_S) == "first"


def test_attached_futures_are_in_the_order_of_the_ids_with_values_and_exceptions(pool: dibs.Executor) -> None:
    many = [pool.submit(chores.even, n) for n in (2, 3, 4)]
    wait(many)
    ids = [future.job.id for future in many]
    last, wrong, first = dibs.Executor.attach(reversed(ids))
    assert (last.result(PATIENCE_S), first.result(PATIENCE_S)) == (4, 2)
    assert isinstance(wrong.exception(PATIENCE_S), chores.Odd)
    assert [future.job.id for future in (last, wrong, first)] == ids[::-1]
    assert dibs.Executor.attach([many[0].job])[0].result(PATIENCE_S) == 2


def test_an_attached_call_can_be_cancelled(pool: dibs.Executor) -> None:
    made = pool.with_options(hold=True).submit(chores.square, 1)
    (found,) = dibs.Executor.attach([made.job.id])
    assert found.cancel()
    with pytest.raises(CancelledError):
        made.result(PATIENCE_S)


def test_only_calls_have_futures(queue: Bench, pool: dibs.Executor) -> None:
    other, call = queue.add("true", gpus=0), pool.submit(chores.square, 1).job.id
    with pytest.raises(UserError, match=f"job {other} is not a call"):
        dibs.Executor.attach([other, call])
    assert [future.job.id for future in dibs.Executor.attach(f"{other},{call}")] == [call]
    with pytest.raises(UserError, match="there is no job 123456"):
        dibs.Executor.attach([call, 123456])
    assert dibs.Executor.attach([]) == []


def test_a_result_that_others_could_write_is_not_read(queue: Bench, pool: dibs.Executor) -> None:
    future = pool.submit(chores.square, 1)
    assert future.result(PATIENCE_S) == 1
    path = queue.home / "jobs" / str(future.job.id) / "1" / "result"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o606)
    (found,) = dibs.Executor.attach([future.job.id])
    with pytest.raises(BrokenJob, match="was not read"):
        found.result(PATIENCE_S)


def test_a_future_of_a_deleted_job_raises_an_error(queue: Bench) -> None:
    submissions = SubmissionQueue(connection.connect(os.environ))
    future: Future[Any] = Future(submissions)
    submissions.follow([(123456, future)])
    with pytest.raises(BrokenJob, match="job 123456 was deleted"):
        future.result(PATIENCE_S)


def test_cleaning_the_last_job_of_a_submission_removes_its_call_file(queue: Bench) -> None:
    folder = queue.home / call_files.FOLDER
    with dibs.Executor(gpus=0) as own:
        future = own.submit(chores.square, 1)
        key = queue.job(future.job.id)["argv"][-2]
    assert (folder / key).exists()
    queue.client.post("/v1/jobs/actions", {"verb": "clean", "select": [str(future.job.id)]})
    assert not (folder / key).exists()


# -- processes and daemons --


def test_an_executor_made_before_a_fork_raises_an_error(queue: Bench) -> None:
    text = """
import os
pool = dibs.Executor(gpus=0)
held = pool.with_options(hold=True).submit(chores.square, 1)
job_id = held.job.id
if os.fork() == 0:
    for ask in (lambda: pool.submit(chores.square, 2), held.result):
        try:
            ask()
        except RuntimeError as error:
            print(error, flush=True)
    pool.shutdown()
    with dibs.Executor(gpus=0) as own:
        print(own.submit(chores.square, 3).result(), flush=True)
    os._exit(0)
os.wait()
print(pool.submit(chores.square, 4).result(), held.cancel())
"""
    first, second, inside, outside = program(queue, text).splitlines()
    assert first == "this dibs.Executor was made before a fork; make another one in this process."
    assert second.startswith("this future was made before a fork")
    assert (inside, outside) == ("9", "16 True")


def test_a_call_may_make_calls_itself(pool: dibs.Executor) -> None:
    assert pool.submit(chores.nested, 5).result(PATIENCE_S) == 25


class ForgetfulClient(connection.Client):
    """A client that loses the first answer to a submission, as when the daemon dies before it is sent."""

    def __init__(self, queue: Bench, error: MachineError) -> None:
        super().__init__(queue.home, queue.environ)
        self.error = error
        self.submissions = 0

    def post(self, path: str, body: Any, *, patience_s: float = connection.ANSWER_FOR_S) -> Any:
        """Send a request, and discard the first answer."""
        answer = super().post(path, body, patience_s=patience_s)
        if path == "/v1/jobs":
            self.submissions += 1
            if self.submissions == 1:
                raise self.error
        return answer


@pytest.mark.parametrize("error", [NoDaemon("it went away"), MachineError("no answer within 60 s")], ids=repr)
def test_a_submission_whose_answer_was_lost_is_stored_once(queue: Bench, tmp_path: Path, error: MachineError) -> None:
    forgetful = ForgetfulClient(queue, error)
    submissions, log, name = SubmissionQueue(forgetful), f"{tmp_path}/log", f"lost-{error.kind}"
    context = pickling.dump((sys.path, sys.version_info[:2]), "the context")
    options = CallOptions({"cwd": str(tmp_path), "gpus": 0}, (sys.executable, "-P"), context, None)
    future: Future[Any] = Future(submissions)
    submissions.add(
        PendingCall(future, pickling.dump((chores.noting, (log, "once"), {}), "the call"), name, name, options)
    )
    assert future.result(PATIENCE_S) == "once"
    assert forgetful.submissions == 2
    assert [job["id"] for job in queue.jobs(f"name:{name}")] == [future.job.id]
    assert [line[0] for line in chores.noted(log)] == ["once"]


def test_results_are_stored_beside_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Bench(tmp_path, DIBS_FILES=str(tmp_path / "files"))
    for name, value in own.environ.items():
        monkeypatch.setenv(name, value)
    try:
        own.start()
        with dibs.Executor(gpus=0) as pool:
            future = pool.submit(chores.square, 3)
        assert future.result() == 9
        assert (tmp_path / "files" / "jobs" / str(future.job.id) / "1" / "result").exists()
    finally:
        own.close()


def test_futures_finish_although_the_daemon_was_killed_meanwhile(queue: Bench, tmp_path: Path) -> None:
    gate, log = f"{tmp_path}/gate", f"{tmp_path}/log"
    with dibs.Executor(gpus=0) as own:
        with chores.closed(gate):
            many = [own.submit(chores.pass_gate, gate, n, log) for n in range(6)]
            wait_for(lambda: len(chores.noted(log)) == 4)
            queue.kill()
        # The next call needs a daemon now; the others would wait for one to come back first.
        many.append(own.submit(chores.pass_gate, gate, 6, log))
        assert [future.result(PATIENCE_S) for future in many] == [*range(7)]
    assert sorted(line[:2] for line in chores.noted(log)) == [[str(n), "1"] for n in range(7)]


def test_map_array_submits_all_calls_in_one_request(queue: Bench, pool: dibs.Executor) -> None:
    futures = pool.map_array(chores.add, [1, 2, 3], [10, 20, 30])
    ids = [future.job.id for future in futures]
    assert ids == list(range(ids[0], ids[0] + 3))
    assert len({queue.job(job_id)["submitted_at"] for job_id in ids}) == 1
    assert [future.result() for future in futures] == [11, 22, 33]


def test_a_future_can_be_awaited(pool: dibs.Executor) -> None:
    async def main() -> list[int]:
        return [await pool.submit(chores.square, 3), *await asyncio.gather(*pool.map_array(chores.square, [4, 5]))]

    assert asyncio.run(main()) == [9, 16, 25]
