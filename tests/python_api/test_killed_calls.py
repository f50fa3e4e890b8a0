"""kill -9 of the program, of workers and of the daemon during 200 futures: every value is found again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import chores
import dibs
from bench import PATIENCE_S, Bench, wait_for

PROGRAM = """
import sys; sys.path.append(sys.argv[1])
import chores, dibs
with dibs.Executor(gpus=0, retries=1) as pool:
    many = [pool.submit(chores.step, n, sys.argv[2], sys.argv[3]) for n in range(200)]
    print(*(future.job.id for future in many), flush=True)
"""


def test_every_value_is_found_and_only_killed_calls_run_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    log, gate = f"{bench.folder}/log", f"{bench.folder}/gate"
    words = [sys.executable, "-c", PROGRAM, str(Path(chores.__file__).parent), log, gate]
    for name, value in bench.environ.items():
        monkeypatch.setenv(name, value)
    with chores.closed(gate):
        bench.start()
        with subprocess.Popen(words, env=bench.environ, cwd=bench.folder, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            ids = [int(word) for word in program.stdout.readline().split()]
            wait_for(lambda: {"0", "1", "2"} <= {line[0] for line in chores.noted(log)} and len(chores.noted(log)) > 30)
            bench.kill()
            program.kill()
        pids = {line[0]: int(line[2]) for line in chores.noted(log)}
        os.kill(pids["0"], signal.SIGKILL)
        os.kill(parent(pids["1"]), signal.SIGKILL)
        bench.start()
        futures = dibs.Executor.attach(ids)
    assert [future.result(PATIENCE_S) for future in futures] == [n * n for n in range(200)]
    # They were killed, and may be retried once.
    twice = {0, 1}
    expected = sorted([[str(n), "1"] for n in range(200)] + [[str(n), "2"] for n in twice])
    assert sorted(line[:2] for line in chores.noted(log)) == expected
    assert {n for n, future in enumerate(futures) if future.job.attempt == 2} == twice


def parent(pid: int) -> int:
    """Return the runner of a call."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
