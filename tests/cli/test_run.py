"""`dibs run`: a job attached to a terminal, its output, its exit code, and what signals do."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from bench import Bench
from dibs.leases import device_lease, holders
from dibs.system import locks
from terminal import CTRL_C, Terminal

pytestmark = pytest.mark.usefixtures("started")

#: Prints when it runs, and continues until a file appears.
UNTIL_GO = "echo running; while [ ! -e go ]; do sleep 0.01; done"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("true",), 0),
        (("exit 3",), 3),
        (("no-such-program --at all",), 127),
        (("/etc/passwd ''",), 126),
        (("kill -9 $$",), 137),
        (("kill -15 $$",), 143),
        (("-t", "0.3s", "sleep", "1000"), 124),
        (("-o", "/dev/null/x", "true"), 126),
    ],
)
def test_run_exits_with_the_exit_code_of_the_job(bench: Bench, words: tuple[str, ...], code: int) -> None:
    assert bench.cli("run", "-g", "0", *words).returncode == code


def test_output_is_passed_byte_for_byte(bench: Bench) -> None:
    command = [sys.executable, "-m", "dibs", "run", "-g0", r"printf 'a\377\033[2J'; seq 20000; printf end"]
    done = subprocess.run(command, env=bench.environ, cwd=bench.folder, capture_output=True, check=True)
    expected = b"a\xff\x1b[2J" + "".join(f"{n}\n" for n in range(1, 20001)).encode() + b"end"
    assert done.stdout == expected
    assert done.stderr == b""


def test_output_to_a_file_is_followed_from_its_current_end(bench: Bench) -> None:
    (bench.folder / "out.txt").write_text("old\n")
    done = bench.cli("run", "-g0", "-o", "out.txt", "echo new")
    assert (done.returncode, done.stdout) == (0, "new\n")
    assert (bench.folder / "out.txt").read_text() == "old\nnew\n"


def test_output_is_shown_with_another_working_folder(bench: Bench) -> None:
    (bench.folder / "sub").mkdir()
    assert bench.cli("run", "-g0", "-C", "sub", "pwd").stdout == f"{bench.folder}/sub\n"


def test_a_command_that_cannot_be_started_is_reported(bench: Bench) -> None:
    (bench.folder / "gone").mkdir()
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    with Terminal(bench, "run", "-C", "gone", "true") as person:
        person.until("job 2 waiting: needs 1 GPU")
        (bench.folder / "gone").rmdir()
        bench.cancel(1)
        code, shown = person.end()
    assert code == 126
    assert "dibs: job 2 failed" in shown


def test_on_a_terminal_waiting_is_shown_until_the_job_starts(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    with Terminal(bench, "run", "echo", "begun") as person:
        person.until("dibs: job 2 waiting: needs 1 GPU; 0 of 4 free, GPU 0-3: job 1")
        bench.cancel(1)
        code, shown = person.end()
    assert code == 0
    assert shown.endswith("begun\r\n")


def test_ctrl_c_cancels_and_the_exit_code_is_the_signal(bench: Bench) -> None:
    with Terminal(bench, "run", "echo running; exec sleep 1000") as person:
        person.until("running")
        person.type(CTRL_C)
        code, shown = person.end()
    assert code == 143
    assert "stopping job 1" in shown
    job = bench.job(1)
    assert (job["state"], job["signal"]) == ("cancelled", signal.SIGTERM)


def test_after_ctrl_c_the_command_can_save_its_work(bench: Bench) -> None:
    saving = "trap 'echo saved; exit 5' TERM; " + UNTIL_GO
    with Terminal(bench, "run", saving) as person:
        person.until("running")
        person.type(CTRL_C)
        code, shown = person.end()
    assert code == 5
    assert "saved" in shown


def test_a_stopped_command_that_exits_with_zero_was_still_stopped(bench: Bench) -> None:
    with Terminal(bench, "run", "trap 'exit 0' TERM; " + UNTIL_GO) as person:
        person.until("running")
        person.type(CTRL_C)
        code, _ = person.end()
    assert code == 130


def test_a_second_ctrl_c_kills(bench: Bench) -> None:
    with Terminal(bench, "run", "trap 'echo no' TERM; " + UNTIL_GO) as person:
        person.until("running")
        person.type(CTRL_C)
        person.until("no")
        person.type(CTRL_C)
        code, _ = person.end()
    assert code == 137
    assert bench.job(1)["state"] == "cancelled"


def test_ctrl_c_before_the_start_is_exit_code_130(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    with Terminal(bench, "run", "true") as person:
        person.until("job 2 waiting")
        person.type(CTRL_C)
        code, _ = person.end()
    assert code == 130
    assert bench.job(2)["state"] == "cancelled"


def test_a_cancel_from_elsewhere_is_reported(bench: Bench) -> None:
    with Terminal(bench, "run", UNTIL_GO) as person:
        person.until("running")
        bench.cancel(1)
        code, shown = person.end()
    assert code == 143
    assert "dibs: job 1 cancelled" in shown


def test_losing_the_terminal_does_not_affect_the_job(bench: Bench) -> None:
    with Terminal(bench, "run", UNTIL_GO) as person:
        person.until("running")
        assert person.hang_up() == 128 + signal.SIGHUP
    assert bench.until(1, "started")["state"] == "running"
    (bench.folder / "go").touch()
    assert bench.until(1)["state"] == "done"


def test_terminating_the_client_does_not_affect_the_job(bench: Bench) -> None:
    with Terminal(bench, "run", UNTIL_GO) as person:
        person.until("running")
        person.signal(signal.SIGTERM)
        code, shown = person.end()
    assert code == 128 + signal.SIGTERM
    assert "job 1 keeps running: dibs follow 1" in shown
    assert bench.until(1, "started")["state"] == "running"


def test_the_daemon_may_be_killed_meanwhile(bench: Bench) -> None:
    with Terminal(bench, "run", UNTIL_GO + "; echo last; exit 4") as person:
        person.until("running")
        bench.kill()
        (bench.folder / "go").touch()
        code, shown = person.end()
    assert code == 4
    assert shown == "running\r\nlast\r\n"


def test_output_continues_while_there_is_no_daemon(bench: Bench) -> None:
    with Terminal(bench, "run", UNTIL_GO + "; echo more; while [ ! -e end ]; do sleep 0.01; done") as person:
        person.until("running")
        assert bench.cli("daemon", "stop").returncode == 0
        (bench.folder / "go").touch()
        person.until("more")
        assert bench.cli("daemon", "start").returncode == 0
        (bench.folder / "end").touch()
        assert person.end()[0] == 0


def test_a_reader_that_closes_the_pipe_ends_run_quietly_and_not_the_job(bench: Bench) -> None:
    command = [sys.executable, "-m", "dibs", "run", "-g0", "while [ ! -e go ]; do echo line; sleep 0.01; done"]
    read, write = os.pipe()
    process = subprocess.Popen(
        command, env=bench.environ, cwd=bench.folder, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert os.read(read, 4) == b"line"
    os.close(read)
    _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (141, "")
    assert bench.until(1, "started")["state"] == "running"
    (bench.folder / "go").touch()


def test_ctrl_c_skips_output_that_was_not_shown_yet(bench: Bench) -> None:
    """A job prints faster than a terminal displays; after an interrupt users want its end, not all of it."""
    with Terminal(bench, "run", "-g0", "yes | head -c 40000000; echo last; exec sleep 1000") as person:
        person.until("y\r\ny")
        person.type(CTRL_C)
        code, shown = person.end()
    assert code == 143
    assert "left out: they are in " in shown
    assert shown.count("y\r\n") < 20_000_000


# -- no-wait ---------------------------------------------------------------------------------------------------------


def test_no_wait_runs_a_job_that_can_start_now(bench: Bench) -> None:
    done = bench.cli("run", "--no-wait", "exit 3")
    assert (done.returncode, done.stderr) == (3, "")


def test_no_wait_is_75_when_it_cannot_start_and_leaves_nothing(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    done = bench.cli("run", "--no-wait", "true")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("dibs: it cannot start now: needs 1 GPU; 0 of 4 free, GPU 0-3: job 1")
    assert done.stderr.count("\n") == 1
    assert [job["id"] for job in bench.jobs()] == [1]
    assert bench.add("true", gpus=0) == 2, "not even an id was used"


@pytest.mark.parametrize("words", [("--after", "1"), ("--begin", "now+1h")])
def test_no_wait_refuses_dependencies_and_begin_times(bench: Bench, words: tuple[str, ...]) -> None:
    bench.until(bench.add(["sleep", "1000"]), "started")
    assert bench.cli("run", "--no-wait", *words, "true").returncode == 75
    assert len(bench.jobs()) == 1


def test_no_wait_in_a_paused_queue_is_75(bench: Bench) -> None:
    bench.client.post("/v1/queue", {"paused": True})
    assert bench.cli("run", "--no-wait", "true").returncode == 75
    assert bench.client.get("/v1/jobs")["jobs"] == []


def test_no_wait_is_cancelled_if_another_user_takes_the_gpu_first(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A lease that only its lock shows: the plan does not see it, and the runner is refused."""
    bench = Bench(tmp_path_factory.mktemp("own"), "fake:1")
    place = device_lease.Folder(str(bench.leases))
    lock = locks.lock(place, holders.file(place, "FAKE-0"), fcntl.LOCK_EX)
    assert lock is not None
    try:
        done = bench.cli("run", "--no-wait", "true")
        assert (done.returncode, done.stderr) == (75, "dibs: job 1 could not start now and was cancelled.\n")
        assert bench.job(1)["state"] == "cancelled"
    finally:
        os.close(lock)
        bench.close()
