"""Ctrl-C, a lost terminal and TERM at each stage of `run`, `wait` and `follow`: who ends, who continues, which code."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from bench import Bench, wait_for
from dibs.cli.verbs import add
from dibs.client import connection
from dibs.submission.options import Args
from terminal import CTRL_C, Terminal

pytestmark = pytest.mark.usefixtures("started")

UNTIL_GO = "echo running; while [ ! -e go ]; do sleep 0.01; done; echo over"
ENDS = [signal.SIGHUP, signal.SIGTERM]


def lose(person: Terminal, number: signal.Signals) -> int:
    """Close the terminal or send TERM; return the exit code."""
    if number is signal.SIGHUP:
        return person.hang_up()
    person.signal(number)
    code, _ = person.end()
    return 128 - code if code < 0 else code


def occupied(bench: Bench) -> int:
    """Occupy all GPUs; return the job that has them."""
    job_id = bench.add(["sleep", "1000"], gpus=4)
    bench.until(job_id, "started")
    return job_id


# -- run -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ENDS)
def test_a_queued_job_continues_without_its_terminal(bench: Bench, number: signal.Signals) -> None:
    first = occupied(bench)
    with Terminal(bench, "run", "true") as person:
        person.until("job 2 waiting")
        assert lose(person, number) == 128 + number
    assert bench.job(2)["state"] == "queued"
    bench.cancel(first)
    assert bench.until(2)["state"] == "done"


def test_ctrl_c_before_the_daemon_has_answered_cancels_the_job(bench: Bench) -> None:
    bench.start()
    daemon = bench.pid()
    assert daemon is not None
    os.kill(daemon, signal.SIGSTOP)
    try:
        with Terminal(bench, "run", "exec sleep 1000") as person:
            wait_for(lambda: _is_caught(person.process.pid, signal.SIGINT))
            person.type(CTRL_C)
            os.kill(daemon, signal.SIGCONT)
            code, shown = person.end()
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert "stopping job 1" in shown
    assert bench.until(1)["state"] == "cancelled"
    # Before its start, or by TERM if it was faster.
    assert code in (130, 143)


def _is_caught(pid: int, number: signal.Signals) -> bool:
    """Return whether a process handles a signal, other than as Python does by default."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
    # TERM is only handled by `run` once it answers signals; INT is handled by every Python.
    return bool(caught & 1 << signal.SIGTERM - 1) and bool(caught & 1 << number - 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_a_starting_job_continues_without_its_terminal(bench: Bench, number: signal.Signals, code: int) -> None:
    bench.start(DIBS_DELAY="core:prepared:500")
    with Terminal(bench, "run", UNTIL_GO) as person:
        wait_for(lambda: bench.client.get("/v1/jobs")["jobs"])
        assert lose(person, number) == code
    (bench.folder / "go").touch()
    assert bench.until(1)["state"] == "done"


def test_ctrl_c_during_the_start_cancels(bench: Bench) -> None:
    bench.start(DIBS_DELAY="core:prepared:500")
    with Terminal(bench, "run", "exec sleep 1000") as person:
        wait_for(lambda: bench.client.get("/v1/jobs")["jobs"])
        person.type(CTRL_C)
        code, shown = person.end()
    assert code in (130, 143)
    assert "stopping job 1" in shown
    assert bench.job(1)["state"] == "cancelled"


def test_losing_the_terminal_during_much_output_does_not_affect_the_job(bench: Bench) -> None:
    with Terminal(bench, "run", "-g0", "while [ ! -e go ]; do seq 1000; done") as person:
        person.until("999\r\n")
        assert person.hang_up() == 128 + signal.SIGHUP
    assert bench.until(1, "started")["state"] == "running"
    (bench.folder / "go").touch()
    assert bench.until(1)["state"] == "done"


def test_a_terminal_that_is_gone_without_a_signal_is_noticed(bench: Bench) -> None:
    """As under nohup, which ignores the hang-up and leaves the terminal as stdout."""
    ignoring = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh", sys.executable, "-m", "dibs")
    with Terminal(bench, "run", "-g0", "while [ ! -e go ]; do seq 1000; done", program=ignoring) as person:
        person.until("999\r\n")
        assert person.hang_up() == 128 + signal.SIGHUP
    assert bench.until(1, "started")["state"] == "running"
    (bench.folder / "go").touch()


def test_ctrl_c_after_the_end_skips_the_remaining_output(bench: Bench) -> None:
    """The job has ended and the terminal is behind: the exit code of the job counts, and nothing is cancelled."""
    with Terminal(bench, "run", "-g0", "yes | head -c 40000000; exit 4") as person:
        person.until("y\r\ny")
        assert bench.until(1)["exit_code"] == 4
        # One more answer to read, then it knows.
        person.until("y\r\n" * 100_000)
        person.type(CTRL_C)
        code, shown = person.end()
    assert code == 4
    assert "left out: they are in " in shown
    assert bench.job(1)["state"] == "failed"


# -- follow and log -f -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("follow", "1"), ("log", "-f", "1")])
def test_ctrl_c_ends_follow_and_not_the_job(bench: Bench, words: tuple[str, ...]) -> None:
    bench.add(r"printf '\033[31mrunning'; while [ ! -e go ]; do sleep 0.01; done", gpus=0)
    with Terminal(bench, *words) as person:
        person.until("running")
        person.type(CTRL_C)
        code, shown = person.end()
    assert code == 130
    assert "Traceback" not in shown
    assert shown.rstrip("\r\n").endswith("\x1b[0m"), "the prompt must not be red"
    assert bench.until(1, "started")["state"] == "running"
    (bench.folder / "go").touch()


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("is_queued", [False, True])
def test_follow_ends_with_its_terminal(bench: Bench, number: signal.Signals, is_queued: bool) -> None:
    if is_queued:
        occupied(bench)
    job_id = bench.add(UNTIL_GO, gpus=1)
    with Terminal(bench, "follow", str(job_id)) as person:
        if is_queued:
            wait_for(lambda: _is_caught(person.process.pid, number))
        else:
            person.until("running")
        assert lose(person, number) == 128 + number
    if is_queued:
        assert bench.job(job_id)["state"] == "queued"
    else:
        assert bench.until(job_id, "started")["state"] == "running"
    (bench.folder / "go").touch()


def test_ctrl_c_ends_follow_of_a_queued_job(bench: Bench) -> None:
    occupied(bench)
    job_id = bench.add("true")
    with Terminal(bench, "follow", str(job_id)) as person:
        wait_for(lambda: _is_caught(person.process.pid, signal.SIGINT))
        person.type(CTRL_C)
        assert person.end()[0] == 130
    assert bench.job(job_id)["state"] == "queued"


# -- wait ------------------------------------------------------------------------------------------------------------


def test_wait_shows_progress_and_clears_it_at_the_end(bench: Bench) -> None:
    bench.add("true", gpus=0)
    bench.until(1)
    bench.add(UNTIL_GO, gpus=0)
    with Terminal(bench, "wait", "all") as person:
        person.until("1 of 2 finished")
        (bench.folder / "go").touch()
        code, shown = person.end()
    assert code == 0
    assert shown.count("\x1b[?25h") == shown.count("\x1b[?25l") == 1, "the cursor is back"


def test_on_a_terminal_wait_reports_failed_jobs(bench: Bench) -> None:
    bench.add("false", gpus=0)
    bench.until(1)
    with Terminal(bench, "wait", "all") as person:
        code, shown = person.end()
    assert code == 1
    assert shown == "dibs: 1 of 1 did not succeed: `dibs status bad cancelled`\r\n", "and draws no bar when all is over"


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_wait_without_jobs_draws_nothing(bench: Bench, term: str) -> None:
    with Terminal(bench, "wait", TERM=term) as person:
        assert person.end() == (0, "")


def test_ctrl_c_ends_wait_with_130_and_restores_the_cursor(bench: Bench) -> None:
    bench.add(UNTIL_GO, gpus=0)
    with Terminal(bench, "wait") as person:
        person.until("0 of 1 finished")
        person.type(CTRL_C)
        code, shown = person.end()
    assert code == 130
    assert "\x1b[?25h" in shown
    assert "Traceback" not in shown
    assert bench.until(1, "started")["state"] == "running"
    (bench.folder / "go").touch()


@pytest.mark.parametrize("number", ENDS)
def test_wait_ends_with_its_terminal(bench: Bench, number: signal.Signals) -> None:
    bench.add(UNTIL_GO, gpus=0)
    with Terminal(bench, "wait") as person:
        person.until("0 of 1 finished")
        assert lose(person, number) == 128 + number
        assert number is signal.SIGHUP or "\x1b[?25h" in person.screen
    assert bench.until(1, "started")["state"] == "running"
    (bench.folder / "go").touch()


def test_a_timeout_on_a_terminal_is_exit_code_124(bench: Bench) -> None:
    bench.add(UNTIL_GO, gpus=0)
    with Terminal(bench, "wait", "--timeout", "0.1s") as person:
        code, shown = person.end()
    assert code == 124
    assert "dibs: 1 of 1 jobs are not finished yet." in shown
    (bench.folder / "go").touch()


def test_wait_for_a_state_covers_the_jobs_that_are_in_it_now(bench: Bench) -> None:
    """A job that ends is no longer running, but it is still waited for."""
    bench.add(UNTIL_GO + "; exit 1", gpus=0)
    bench.until(1, "started")
    with Terminal(bench, "wait", "running") as person:
        person.until("0 of 1 finished")
        (bench.folder / "go").touch()
        assert person.end()[0] == 1


def test_wait_for_the_last_job_covers_the_one_that_is_last_now(bench: Bench) -> None:
    bench.add(UNTIL_GO, gpus=0)
    with Terminal(bench, "wait", "@") as person:
        person.until("0 of 1 finished")
        bench.until(bench.add("exit 1", gpus=0))
        (bench.folder / "go").touch()
        assert person.end()[0] == 0


@pytest.mark.parametrize("selector", ["running+name:nobody", "name:nobody", "7"])
def test_wait_for_a_name_that_does_not_exist_is_exit_code_3(bench: Bench, selector: str) -> None:
    bench.until(bench.add("true", gpus=0))
    done = bench.cli("wait", selector)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1


def test_wait_says_when_the_end_is_expected(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4, time_limit_s=3600), "started")
    bench.add("true", gpus=1, time_limit_s=600)
    with Terminal(bench, "wait") as person:
        person.until("of 2 finished, all at ")
        person.until("(in 1h0")
        person.type(CTRL_C)
        person.end()


def test_the_end_of_a_job_without_a_limit_is_unknown(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=0), "started")
    query = [("select", "1"), ("seen", "-1"), ("wait_s", "0"), ("forecast", "true")]
    assert bench.client.get("/v1/jobs/wait", query)["expected_end"] is None


def test_wait_on_an_empty_queue_succeeds(bench: Bench) -> None:
    assert bench.cli("wait").returncode == 0


# -- add -------------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_the_daemon_stores_jobs_says_that_they_may_be_queued(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon does what it has read, so jobs can appear after a submission that was interrupted."""

    class Queue:
        def post(self, *_: object, **__: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(connection, "connect", lambda _: Queue())
    with pytest.raises(KeyboardInterrupt):
        add.deliver(Args((), {}), {"lines": "true\ntrue"})
    said = "dibs: interrupted before the answer: everything was queued, or nothing. See `dibs status`\n"
    assert capsys.readouterr().err == said
