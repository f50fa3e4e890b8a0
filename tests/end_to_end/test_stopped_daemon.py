"""A daemon that was stopped by SIGSTOP: every command answers at once, nothing is done later, it can be replaced."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench, wait_for
from dibs.cli import main as cli
from dibs.client.daemon_process import Unresponsive
from dibs.system import processes

#: Seconds: far less than the minute that a request may take, far more than the second it takes on an idle machine.
LATE_S = 25.0

#: The arguments with which a verb would do something. A verb that is not here only has to answer in time.
WORDS: dict[str, tuple[str, ...]] = {
    "status": (), "add": ("-g0", "true"), "run": ("-g0", "true"), "map": ("-g0", "echo", "{}", ":::", "a", "b"),
    "sweep": ("echo {lr}", "-p", "lr", "1", "2"), "results": (), "show": ("1",), "why": ("1",), "log": ("1",),
    "follow": ("1",), "wait": (), "cancel": ("1",), "kill": ("-s", "USR1", "1"),
    "retry": ("--done", "1"), "hold": ("2",), "unhold": ("2",), "pause": (), "resume": (),
    "move": ("2", "first"), "edit": ("2", "--priority", "3"),
    "clean": ("1",), "gpus": (), "lease": ("echo", "leased"), "pipe": (), "report": ("loss=1",),
    "daemon": ("status",), "web": (), "doctor": (), "config": (), "completion": ("bash",), "version": (), "help": (),
    "import": ("jobs.esy",), "machine": ("sttus",),
}  # fmt: skip
#: Verbs that read from the database, and a word of the answer.
READS = {"status": "sleep", "results": "", "show": "job 1", "why": "it is done", "log": "first", "gpus": "root|job 2"}
#: Verbs that need no daemon, and their exit code.
ALONE = {
    "lease": 0, "pipe": 0, "report": 2, "daemon": 5, "doctor": 1, "config": 0, "completion": 0, "version": 0, "help": 0,
    "machine": 2,
}  # fmt: skip


def stop(bench: Bench) -> int:
    """Stop the daemon and wait until the kernel has; return its pid."""
    pid = bench.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: (found := processes.look(pid)) is not None and found.is_stopped)
    return pid


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, int]]:
    """A queue with a finished and a running job, whose daemon is stopped."""
    bench = Bench(tmp_path_factory.mktemp("stopped"))
    bench.until(bench.add("echo first", gpus=0))
    bench.until(bench.add("sleep 1000", gpus=1), "started")
    (bench.folder / "jobs.esy").write_text("one;;one.out;;echo one;;;\n")
    pid = stop(bench)
    yield bench, pid
    os.kill(pid, signal.SIGCONT)
    bench.close()


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_command_answers_at_once(stopped: tuple[Bench, int], verb: str) -> None:
    bench, pid = stopped
    began = time.monotonic()
    done = bench.cli(verb, *WORDS.get(verb, ()))
    took_s = time.monotonic() - began
    print(f"dibs {verb} answered after {took_s:.2f} s")
    assert took_s < LATE_S
    assert "Traceback" not in done.stderr
    if verb in ALONE or verb not in WORDS:
        assert done.returncode == ALONE.get(verb, done.returncode)
        return
    named = f"the daemon (pid {pid}) is stopped by a signal (state T)"
    assert named in done.stderr
    if verb in READS:
        assert done.returncode == 0
        assert re.search(READS[verb], done.stdout)
        assert "showing the database as of 2" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (5, "")
        assert f"`kill -CONT {pid}`" in done.stderr
        assert "`dibs daemon restart --force`" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_the_daemon_verbs_and_the_doctor_report_it(stopped: tuple[Bench, int]) -> None:
    bench, pid = stopped
    for words in (["daemon", "status"], ["daemon", "restart"], ["daemon", "stop"], ["doctor"]):
        done = bench.cli(*words)
        assert f"pid {pid}) is stopped by a signal" in re.sub(r"\s+", " ", done.stdout + done.stderr), words
        assert done.returncode != 0


def test_a_time_limit_is_respected(stopped: tuple[Bench, int]) -> None:
    bench, pid = stopped
    began = time.monotonic()
    done = bench.cli("wait", "--timeout", "3s")
    assert 3 <= time.monotonic() - began < LATE_S
    assert done.returncode == 124
    assert f"pid {pid}" in done.stderr


def test_a_time_limit_is_respected_when_the_backlog_is_full(bench: Bench) -> None:
    bench.start()
    pid = stop(bench)
    with contextlib.ExitStack() as waiting:
        with contextlib.suppress(Unresponsive):
            while sock := bench.client.connect():
                waiting.enter_context(sock)
        done = bench.cli("wait", "--timeout", "3s")
    os.kill(pid, signal.SIGCONT)
    assert (done.returncode, done.stdout) == (124, "")
    assert f"pid {pid}" in done.stderr


def test_a_refused_request_is_not_executed_later(bench: Bench) -> None:
    bench.start()
    pid = stop(bench)
    assert bench.cli("add", "-g0", "true").returncode == 5
    assert bench.cli("pause").returncode == 5
    os.kill(pid, signal.SIGCONT)
    seen = bench.client.get("/v1/jobs")
    assert (seen["jobs"], seen["queue"]["paused"]) == ([], False)


def test_a_stopped_daemon_is_replaced_and_its_jobs_continue(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = bench.add(f"until [ -e {gate} ]; do sleep 0.05; done; exit 7", gpus=1)
    bench.until(job, "started")
    pid = stop(bench)
    done = bench.cli("daemon", "restart", "--force")
    assert done.returncode == 0, done.stderr
    assert f"killed (pid {pid}); running jobs continue" in done.stdout
    assert bench.pid() != pid
    assert bench.job(job)["state"] == "running"
    gate.touch()
    assert bench.until(job)["exit_code"] == 7


def test_force_stops_a_healthy_daemon_gracefully(bench: Bench) -> None:
    bench.start()
    done = bench.cli("daemon", "restart", "--force")
    assert done.returncode == 0
    assert "stopped; running jobs continue" in done.stdout
