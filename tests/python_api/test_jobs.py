"""`dibs.submit` and job handles with a real daemon: verbs, waiting, threads, forks, event loops, jobs in jobs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dibs
import user_program
from bench import Bench, wait_for
from dibs import errors
from dibs.python_api import jobs


def test_a_job_runs_and_returns_its_outcome(user_queue: Bench) -> None:
    job = dibs.submit("echo hello; exit 3", gpus=1, name="vit")
    assert job.wait() == "failed"
    assert (job.state, job.exit_code, job.cause, job.is_finished) == ("failed", 3, "exit", True)
    assert (job.log(), job.name, job.command, job.attempt) == ("hello\n", "vit", "echo hello; exit 3", 1)
    assert user_queue.job(job.id)["name"] == "vit"


def test_an_argument_list_is_passed_unchanged(user_queue: Bench) -> None:
    job = dibs.submit(["printf", "%s,", "a b", "$HOME", "*"], gpus=0)
    assert (job.wait(check=True), job.log()) == ("done", "a b,$HOME,*,")


def test_check_raises_for_a_failed_job_with_its_last_lines(user_queue: Bench) -> None:
    job = dibs.submit("echo CUDA is sad; exit 1", gpus=0)
    with pytest.raises(errors.JobFailed, match=rf"job {job.id} is failed \(exit\)\. Its last lines: CUDA is sad"):
        job.wait(check=True)


def test_a_timeout_of_wait_raises_and_the_job_continues(user_queue: Bench) -> None:
    job = dibs.submit("true", hold=True, gpus=0)
    with pytest.raises(errors.TimedOut, match=r"1 of 1 jobs are not finished after 0.01 s"):
        job.wait(timeout=0.01, held="wait")
    with pytest.raises(TimeoutError):
        job.wait(timeout=0, held="wait")
    assert job.state == "held"
    job.unhold()
    assert job.wait() == "done"


def test_wait_raises_at_once_if_only_held_jobs_remain(user_queue: Bench) -> None:
    done, held = dibs.submit("true", gpus=0), dibs.submit("true", hold=True, gpus=0)
    told = rf"1 job is held by you\. `dibs unhold {held.id}` releases it"
    with pytest.raises(errors.OnlyHeld, match=told):
        held.wait()
    with pytest.raises(errors.OnlyHeld, match=told):
        dibs.jobs(done.id, held.id).wait()
    assert done.state == "done"
    with pytest.raises(errors.UserError, match='expected held="leave" or held="wait"'):
        held.wait(held="never")  # type: ignore[arg-type]
    held.unhold()
    assert held.wait(held="wait") == "done"


def test_the_verbs_equal_those_of_the_command_line(user_queue: Bench) -> None:
    job = dibs.submit("exec sleep 1000", hold=True, gpus=0)
    job.unhold()
    wait_for(lambda: job.state, lambda state: state == "running")
    job.pause()
    assert job.state == "paused"
    job.resume()
    assert job.state == "running"
    job.cancel(grace=0)
    assert job.wait() == "cancelled"
    # A second time is no error: the job is already in that state.
    job.cancel()
    job.retry()
    wait_for(lambda: job.state, lambda state: state == "running")
    assert job.attempt == 2
    job.kill("USR1")
    assert (job.wait(), job.exit_code, job.data["signal"]) == ("failed", None, 10)


def test_an_impossible_verb_is_a_conflict(user_queue: Bench) -> None:
    job = dibs.submit("true", gpus=0)
    job.wait()
    for verb in (job.hold, job.unhold, job.pause, job.resume, job.retry):
        with pytest.raises(errors.Conflict, match=f"job {job.id} cannot be changed: "):
            verb()
    assert job.state == "done"


def test_a_typed_program_returns_what_its_types_say(user_queue: Bench) -> None:
    told = user_program.main()
    assert told == ["done", "0", "None", "4", "{'new': 2, 'retried': 0, 'done': 0}", "{'lr': 0.1}", "1", "False", "2.0"]


def test_a_waiting_job_is_edited_by_the_keywords_of_submit(user_queue: Bench) -> None:
    job = dibs.submit("true", hold=True, gpus=1, time="1h", tags=["a"], name="old")
    job.edit(gpus=0, name="new", priority="high", time=None, tags=["b", "c"])
    assert (job.data["gpus"], job.name, job.data["priority"], job.data["time_limit_s"]) == (0, "new", 10, None)
    assert job.data["tags"] == ["b", "c"]
    job.edit("echo other")
    assert job.command == "echo other"
    for wrong, says in (({}, "edit expected at least one change"), ({"gpus": -1}, "gpus expected a whole number")):
        with pytest.raises(errors.UserError, match=says):
            job.edit(**wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.UserError, match="there is no option hold"):
        job.edit(hold=True)
    job.unhold()
    assert (job.wait(), job.log()) == ("done", "other\n")
    with pytest.raises(errors.Conflict, match=f"job {job.id} is done: only waiting jobs can be changed"):
        job.edit(name="late")


def test_a_script_is_stored_with_its_option_lines(user_queue: Bench) -> None:
    script = user_queue.folder / "train.sh"
    script.write_text("#!/bin/sh\n#DIBS -g 0 --name kept\necho first $1\n")
    job = dibs.submit(["a b"], script=script, hold=True)
    alone = dibs.submit("./train.sh", hold=True)
    script.write_text("echo second\n")
    for each, output in ((job, "first a b\n"), (alone, "first\n")):
        assert (each.name, each.data["gpus"]) == ("kept", 0)
        each.unhold()
        assert (each.wait(), each.log()) == ("done", output)
    script.write_text("#!/bin/sh\n#SBATCH --array=0-1\ntrue\n")
    assert len(dibs.submit(script=script, array=range(2), gpus=0)) == 2
    with pytest.raises(errors.UserError, match="script cannot read nosuch"):
        dibs.submit(script="nosuch.sh")


def test_jobs_are_found_by_id_and_by_selectors(user_queue: Bench) -> None:
    first, second = dibs.submit_many(["true", "# a comment", "false"], gpus=0, tags="found")
    jobs.wait([first, second])
    assert dibs.job(second.id) == second
    assert dibs.jobs("tag:found") == [first, second]
    assert dibs.jobs("tag:found+failed") == [second]
    assert dibs.jobs(first.id, second.id) == [first, second]
    assert first in dibs.jobs()
    assert {first, dibs.job(first.id)} == {first}
    assert dibs.jobs("name:nobody") == []
    with pytest.raises(errors.NotFound, match="there is no job 999999"):
        dibs.job(999999)
    with pytest.raises(errors.NotFound, match="there is no job 999999"):
        dibs.jobs(999999)
    with pytest.raises(errors.UserError, match="job expected the id of a job"):
        dibs.job("name:vit")  # type: ignore[arg-type]
    with pytest.raises(errors.UserError, match="expected"):
        dibs.jobs("nonsense")


def test_a_refusal_of_the_daemon_names_keywords_and_queues_nothing(user_queue: Bench) -> None:
    before = len(user_queue.jobs())
    with pytest.raises(errors.Impossible, match=r"9 GPUs; this machine has 4\. .*gpus 4"):
        dibs.submit("true", gpus=9)
    with pytest.raises(errors.UserError, match="signal"):
        dibs.submit("true", signal="USR1@2m")
    with pytest.raises(errors.NotFound):
        dibs.submit("true", after=999999)
    assert len(user_queue.jobs()) == before


def test_arrays_are_lists_and_a_dry_run_queues_nothing(user_queue: Bench) -> None:
    found = dibs.submit("echo $DIBS_INDEX", array=range(2), gpus=0)
    jobs.wait(found)
    assert [job.log() for job in found] == ["0\n", "1\n"]
    assert len(dibs.submit("true", repeat=2, gpus=0)) == 2
    before = len(user_queue.jobs())
    told = dibs.submit("true", dry_run=True, name="seen")
    assert told["jobs"][0]["name"] == "seen"
    assert len(user_queue.jobs()) == before


def test_gpus_returns_the_gpus_of_the_machine(user_queue: Bench) -> None:
    assert [gpu["id"] for gpu in dibs.gpus()] == ["FAKE-0", "FAKE-1", "FAKE-2", "FAKE-3"]


def test_after_accepts_handles(user_queue: Bench) -> None:
    first = dibs.submit("true", hold=True, gpus=0)
    second = dibs.submit("true", after=first, gpus=0)
    assert second.reason is not None
    assert str(first.id) in second.reason
    first.unhold()
    assert (second.wait(), first.state) == ("done", "done")


def test_output_returns_earlier_attempts_and_last_lines(user_queue: Bench) -> None:
    job = dibs.submit("echo $DIBS_ATTEMPT; echo b; echo c; exit 1", gpus=0)
    job.wait()
    job.retry()
    job.wait()
    assert (job.log(2), job.log(0), job.log(attempt=1)) == ("b\nc\n", "", "1\nb\nc\n")
    with pytest.raises(errors.NotFound, match="has no attempt 7"):
        job.log(attempt=7)


def test_many_threads_submit_and_wait_at_once(user_queue: Bench) -> None:
    ended: list[tuple[int, str]] = []

    def one(number: int) -> None:
        job = dibs.submit(f"echo {number}", gpus=0)
        job.wait()
        ended.append((number, job.log()))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [(number, f"{number}\n") for number in range(12)]


def test_plain_calls_and_await_both_work_in_an_event_loop(user_queue: Bench) -> None:
    """As in a notebook: plain calls block the loop, `await job` does not."""

    async def main() -> tuple[str, str]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        job = dibs.submit("true", gpus=0)
        awaited = await job
        ticking.cancel()
        assert ticks
        return awaited, dibs.submit("true", gpus=0).wait()

    assert asyncio.run(main()) == ("done", "done")


PROGRAM = """
import os, sys, dibs
job = dibs.submit("echo parent", gpus=0)
child = os.fork()
if child == 0:
    # The handle of the parent, and a job of its own.
    own = dibs.submit("echo child", gpus=0)
    assert (own.wait(), own.log(), job.wait(), job.log()) == ("done", "child\\n", "done", "parent\\n")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert job.wait() == "done"
"""


def test_handles_work_on_both_sides_of_a_fork(user_queue: Bench) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], env=user_queue.environ, cwd=user_queue.folder, check=True)


def test_a_job_may_submit_and_await_another(user_queue: Bench) -> None:
    inner = "import dibs; job = dibs.submit('echo inner', gpus=0); job.wait(check=True); print(job.log(), end='')"
    outer = dibs.submit([sys.executable, "-c", inner], gpus=0)
    assert (outer.wait(), outer.log()) == ("done", "inner\n")


def test_waiting_continues_after_the_daemon_was_killed(bench: Bench, tmp_path: Path) -> None:
    """And the job does not notice."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    program = (
        "import sys, dibs; job = dibs.submit(f'read x < {sys.argv[1]}; echo $x', gpus=1); print(job.id, flush=True)\n"
        "print(job.wait(), job.log(), end='')"
    )
    waiter = subprocess.Popen(
        [sys.executable, "-c", program, str(fifo)], env=bench.environ, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert waiter.stdout is not None
    job_id = int(waiter.stdout.readline())
    wait_for(lambda: bench.job(job_id)["state"], lambda state: state == "running")
    bench.kill()
    # The next daemon starts with the next request.
    assert bench.job(job_id)["state"] == "running"
    bench.kill()
    fifo.write_text("went on\n")
    out, _ = waiter.communicate(timeout=60)
    assert (waiter.returncode, out) == (0, "done went on\n")
