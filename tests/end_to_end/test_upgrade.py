"""An upgrade in place: the current release takes over the state folder, jobs, calls and leases of release 0.1.0.

The old code is kept in `tests/data/dibs-0.1.0.tar.xz`, made before the modules moved into packages, without the page:
`git archive 14e5052:src -- dibs ':(exclude)dibs/web' | xz -9e`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import chores
import dibs
from bench import PATIENCE_S, Bench, wait_for

OLD = Path(__file__).parent.parent / "data" / "dibs-0.1.0.tar.xz"
SUPPORT = str(Path(chores.__file__).parent)

#: Calls: one runs, the others wait for a job: by name, several in one job, and by value with a function of dibs in it.
CALLS = """
import sys; sys.path.append(sys.argv[1])
from pathlib import Path
import chores, dibs
from dibs import Executor, report
def train(loss):
    report(loss=loss)
    return loss
pool = Executor(gpus=0)
waiting = pool.with_options(after_end=int(sys.argv[3]))
running = pool.submit(Path(sys.argv[2]).read_text)
one = waiting.submit(chores.square, 12)
waiting.with_options(name="several").map(chores.even, [2, 4, 5, 6], chunksize=2)
value = waiting.submit(train, 0.25)
pool.shutdown(wait=False)
print(running.job.id, one.job.id, value.job.id, *(job.id for job in dibs.jobs("name:several")))
"""
ATTACH = """
import json, sys, dibs
def outcome(future):
    error = future.exception(60)
    return future.result() if error is None else f"{type(error).__name__}: {error}"
sys.path.append(sys.argv[1])
print(json.dumps([outcome(future) for future in dibs.Executor.attach(map(int, sys.argv[2:]))]))
"""
#: A shell that holds a GPU until it reads a line.
SHELL = """
eval "$("$@" lease -g 1 --env)"; echo "$CUDA_VISIBLE_DEVICES"
read line
eval "$("$@" lease --release)"; echo "$? ${CUDA_VISIBLE_DEVICES-none}"
"""


class Install:
    """The folder of dibs that one user's programs import: first release 0.1.0, after `upgrade` the current one."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.folder = bench.folder / "site"
        self.environ = bench.environ | {"PYTHONPATH": str(self.folder)}
        shutil.unpack_archive(OLD, self.folder, filter="data")

    def upgrade(self) -> None:
        """Replace the old code by the current one, as pip does."""
        shutil.rmtree(self.folder / "dibs")
        source = Path(dibs.__file__).parent
        shutil.copytree(source, self.folder / "dibs", ignore=shutil.ignore_patterns("__pycache__"))

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the daemon of the current code; it ends with the block at the latest."""
        with open(self.bench.folder / "daemon.log", "ab") as log:
            words = [sys.executable, "-P", "-m", "dibs.daemon"]
            process = subprocess.Popen(words, env=self.environ, cwd="/", stdout=log, stderr=log)
        try:
            wait_for(lambda: process.poll() is not None or self.bench.pid() == process.pid)
            assert process.poll() is None, (self.bench.folder / "daemon.log").read_text()
            yield process
        finally:
            process.kill()
            process.wait()

    def python(self, program: str, *words: object) -> str:
        """Run a program of the user to its end; return what it prints."""
        return self._run("-c", program, *words)

    def cli(self, *words: object) -> str:
        """Run a command line; return what it prints."""
        return self._run("-P", "-m", "dibs", *words)

    def add(self, *words: object) -> int:
        """Submit one job; return its id."""
        return int(self.cli("add", *words))

    def show_all(self) -> dict[int, dict[str, Any]]:
        """Return all jobs by their ids."""
        return {job["id"]: job for job in json.loads(self.cli("show", "all", "--json"))}

    def holders(self) -> list[list[str]]:
        """Return who holds each GPU, as users read it."""
        gpus = json.loads(self.cli("gpus", "--json"))["gpus"]
        return [[holder["job"] for holder in gpu["holders"]] for gpu in gpus]

    def _run(self, *words: object) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            env=self.environ,
            cwd=self.bench.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done
        return done.stdout


@contextmanager
def shell_with_lease(install: Install) -> Iterator[subprocess.Popen[str]]:
    """Run a shell that holds a GPU."""
    words = ["sh", "-c", SHELL, "sh", sys.executable, "-P", "-m", "dibs"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=install.environ, stdin=pipe, stdout=pipe, text=True) as shell:
        try:
            yield shell
        finally:
            shell.kill()


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Write a line to a process."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@dataclass(frozen=True)
class Left:
    """The jobs of the old release: their ids, and how it showed them last."""

    over: int
    running: int
    behind: int
    sweep: list[int]
    running_call: int
    calls: list[int]
    shown: dict[int, dict[str, Any]]


def fill_queue(install: Install, pipe: Path, call_pipe: Path) -> Left:
    """Queue jobs of every kind; one job and one call run and read from these pipes."""
    bench = install.bench
    over = install.add("-g", 0, "--", "sh", "-c", "echo before; exit 7")
    bench.until(over)
    running = install.add("-g", 1, "--", "sh", "-c", f"read line < {pipe}; echo $line; exit 3")
    bench.until(running, "started")
    behind = install.add("-g", 4, "--", "printenv", "CUDA_VISIBLE_DEVICES")
    install.cli("sweep", "-g", 0, "-n", "old", "--after-end", running, "echo {lr}", "-p", "lr", 1, 2, 3)
    running_call, *calls = map(int, install.python(CALLS, SUPPORT, call_pipe, running).split())
    bench.until(running_call, "started")
    shown = install.show_all()
    sweep = [job_id for job_id, job in shown.items() if job["sweep"] == "old"]
    assert len(sweep) == 3
    waiting = dict.fromkeys([behind, *sweep, *calls], "queued")
    states = {over: "failed", running: "running", running_call: "running"} | waiting
    assert {job_id: job["state"] for job_id, job in shown.items()} == states
    assert all(shown[job_id]["argv"][-3] == f"{install.folder}/dibs/call.py" for job_id in (running_call, *calls))
    return Left(over, running, behind, sweep, running_call, calls, shown)


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_an_upgrade_takes_over_the_state_of_release_0_1_0(bench: Bench, end: str) -> None:
    install, pipe, call_pipe = Install(bench), bench.folder / "pipe", bench.folder / "call_pipe"
    os.mkfifo(pipe)
    os.mkfifo(call_pipe)
    with shell_with_lease(install) as shell:
        assert said(shell) == "FAKE-0"
        with install.daemon() as daemon:
            left = fill_queue(install, pipe, call_pipe)
            if end == "stopped":
                install.cli("daemon", "stop")
            else:
                bench.kill()
            daemon.wait(PATIENCE_S)
        install.upgrade()
        with install.daemon():
            check_nothing_changed(install, left, shell.pid)
            pipe.write_text("after\n")
            call_pipe.write_text("read")
            check_jobs(install, left)
            check_calls(install, left)
            check_lease(install, left, shell)


def check_nothing_changed(install: Install, left: Left, shell: int) -> None:
    """Check that jobs and lease are unchanged, and that ids continue."""
    shown = install.show_all()
    over = shown[left.over]
    # A newer release may show more of a job and of its attempts, but nothing else.
    then = left.shown[left.over]
    assert over == over | then | {"attempts": over["attempts"]}
    assert [now | was for now, was in zip(over["attempts"], then["attempts"], strict=True)] == over["attempts"]
    assert (over["exit_code"], install.bench.log(left.over)) == (7, "before\n")
    for job_id in (left.running, left.running_call):
        now, then = shown[job_id], left.shown[job_id]
        assert (now["state"], now["pid"], now["attempt"]) == ("running", then["pid"], 1)
    assert install.holders()[:2] == [[f"lease of shell {shell}"], [str(left.running)]]
    new = install.add("-g", 0, "--", "true")
    assert new == max(left.shown) + 1
    assert install.bench.until(new)["state"] == "done"


def check_jobs(install: Install, left: Left) -> None:
    """Check that the running job ends as itself, and that its dependants run."""
    bench = install.bench
    job = bench.until(left.running)
    then = left.shown[left.running]
    assert (job["state"], job["exit_code"], job["attempt"]) == ("failed", 3, 1)
    assert (job["pid"], job["started_at"]) == (then["pid"], then["started_at"])
    assert bench.log(left.running) == "after\n"
    assert [bench.until(job_id)["state"] for job_id in left.sweep] == ["done"] * 3
    assert [bench.log(job_id) for job_id in left.sweep] == ["1\n", "2\n", "3\n"]


def check_calls(install: Install, left: Left) -> None:
    """Check that calls of the old release return their results to a program of the new one."""
    found = json.loads(install.python(ATTACH, SUPPORT, left.running_call, *left.calls))
    assert found == ["read", 144, 0.25, [2, 4], "Odd: 5 is odd"]
    shown = install.show_all()
    assert shown[left.calls[1]]["report"] == {"loss": 0.25}
    assert {shown[job_id]["attempt"] for job_id in (left.running_call, *left.calls)} == {1}
    assert shown[left.running_call]["pid"] == left.shown[left.running_call]["pid"]


def check_lease(install: Install, left: Left, shell: subprocess.Popen[str]) -> None:
    """Check that the shell can release its GPU, after which the job that needs all of them runs."""
    assert install.bench.job(left.behind)["state"] == "queued"
    tell(shell, "release it")
    assert said(shell) == "0 none"
    assert install.bench.until(left.behind)["state"] == "done"
    assert install.bench.log(left.behind) == "FAKE-0,FAKE-1,FAKE-2,FAKE-3\n"
    wait_for(install.holders, lambda holders: holders == [[], [], [], []])


def test_wait_works_with_a_daemon_that_runs_since_before_the_upgrade(bench: Bench) -> None:
    """It cannot report held jobs, which is said; a wait for them ends at its time limit."""
    install = Install(bench)
    note = "dibs: the daemon is older than this program and does not report held jobs; `dibs daemon restart`"
    with install.daemon():
        good, held = install.add("-g0", "true"), install.add("-g0", "--hold", "true")
        assert bench.cli("wait", str(good)).returncode == 0
        waited = bench.cli("wait", "--timeout", "0.1s")
        assert waited.returncode == 124
        assert waited.stderr.startswith(note)
        assert json.loads(bench.cli("wait", str(good), "--json").stdout)["held"] == []
        assert bench.job(held)["state"] == "held"
