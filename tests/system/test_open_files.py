"""The limit on open files: the daemon raises its own, jobs get the user's, connections leave room for jobs."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.system import open_files, paths


@pytest.mark.parametrize(("limit", "most"), [(64, 8), (128, 32), (1024, 480), (1 << 20, (1 << 19) - 32)])
def test_connections_leave_half_of_the_descriptors_to_jobs(limit: int, most: int) -> None:
    assert open_files.connections(limit) == most


def limited(soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def limits(pid: int) -> tuple[str, ...]:
    found = re.search(r"Max open files +(\d+) +(\d+)", Path(f"/proc/{pid}/limits").read_text())
    assert found is not None
    return found.groups()


def test_the_daemon_raises_its_limit_and_jobs_get_that_of_the_user(bench: Bench) -> None:
    done = bench.fresh("daemon", "start", preexec_fn=limited(200, 3000))
    assert done.returncode == 0, done.stderr
    pid = bench.pid()
    assert pid is not None
    assert limits(pid) == ("3000", "3000")
    told = bench.folder / "told"
    job = bench.add(
        "ulimit -Sn; ulimit -Hn; env | grep -c OPEN_FILES",
        gpus=0,
        notify=f"ulimit -Sn >{told}.new; mv {told}.new {told}",
    )
    bench.until(job)
    assert bench.log(job).split() == ["200", "3000", "0"]
    wait_for(told.exists)
    assert told.read_text() == "200\n"


def test_open_connections_do_not_prevent_a_job_from_starting(bench: Bench) -> None:
    done = bench.fresh("daemon", "start", preexec_fn=limited(160, 160))
    assert done.returncode == 0, done.stderr
    with contextlib.ExitStack() as stack:
        crowd = []
        for _ in range(160):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            # Without a time limit, it waits for a place in the backlog.
            sock.connect(str(paths.socket_path(bench.home)))
            sock.settimeout(PATIENCE_S)
            crowd.append(sock)
        # The last ones get an error about too many connections, and are closed.
        assert crowd[-1].recv(65536).startswith(b"HTTP/1.1 503 ")
        for sock in crowd[:20]:
            sock.close()
        jobs = wait_for(lambda: bench.cli("add", "-g0", "true"), lambda added: added.returncode == 0)
        assert bench.until(int(jobs.stdout))["state"] == "done"
    assert os.path.exists(paths.socket_path(bench.home))
