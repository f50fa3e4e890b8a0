"""Starting a daemon: a client waits for one that is about to listen, and names what prevents a start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs import errors
from dibs.client import connection, daemon_process
from dibs.system import locks, paths

#: Holds the daemon's lock until its stdin ends, like a daemon that recovers a large queue before it listens.
HOLDER = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_daemon_that_is_not_ready_yet_is_waited_for(bench: Bench) -> None:
    bench.home.mkdir(mode=0o700)
    program = [sys.executable, "-c", HOLDER, str(paths.daemon_lock(bench.home))]
    done: list[subprocess.CompletedProcess[str]] = []
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        adding = threading.Thread(target=lambda: done.append(bench.cli("add", "-g0", "true")))
        adding.start()
        start_lock = str(paths.start_lock(bench.home))
        # It has found the lock taken once it waits with the other one.
        wait_for(lambda: done or (locks.key_of(start_lock) or "") in locks.flocked())
        assert daemon_process.lock_holder(bench.home) == holder.pid
        assert not done
        holder.communicate()
        adding.join(PATIENCE_S)
    assert [(each.returncode, each.stdout) for each in done] == [(0, "1\n")]


#: Takes the daemon's lock, says why it fails, and holds the lock until its stdin ends, as on a busy machine.
FAILING = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(int(sys.argv[2]), b"the reason\\n")
os.close(int(sys.argv[2]))
sys.stdin.read()
"""


def test_a_daemon_that_reported_its_failure_is_not_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.home.mkdir(mode=0o700)
    started: list[subprocess.Popen[bytes]] = []

    def spawn(environ: object, tell: int) -> int:
        program = [sys.executable, "-c", FAILING, str(paths.daemon_lock(bench.home)), str(tell)]
        started.append(subprocess.Popen(program, stdin=subprocess.PIPE, pass_fds=[tell]))
        return started[-1].pid

    queue = connection.connect(bench.environ)
    monkeypatch.setattr(type(queue), "spawn", lambda self, environ, tell: spawn(environ, tell))
    with pytest.raises(errors.NoDaemon, match="could not be started: the reason"):
        queue.start()
    (program,) = started
    assert daemon_process.lock_holder(bench.home) == program.pid
    program.communicate()


def test_an_interpreter_that_cannot_be_executed_is_named(bench: Bench) -> None:
    text = (
        "import sys; sys.executable = '/no/such/python'; sys.argv = ['dibs', 'status']\n"
        "from dibs.cli.main import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], env=bench.environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 5
    assert "cannot execute /no/such/python: No such file or directory" in done.stderr
    assert "DIBS_HOME" not in done.stderr


def test_an_unwritable_state_folder_is_still_named(bench: Bench) -> None:
    """The other error of a start: here the advice to use another folder is right."""
    bench.home.mkdir(mode=0o700)
    (bench.home / "daemon.log").mkdir()
    done = bench.fresh("status")
    assert done.returncode == 5
    assert "Is a directory" in done.stderr
    assert "DIBS_HOME" in done.stderr
    assert os.listdir(bench.home / "daemon.log") == []
