"""A daemon that does not answer: the evidence from the kernel that it is stopped or hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.client import daemon_process
from dibs.client.daemon_process import HUNG_AFTER_S, Look
from dibs.system import locks, paths, processes

#: A program in the place of a daemon: it holds the lock, listens, and then does what the test says.
PROGRAM = """
import fcntl, os, signal, socket, sys, time
lock = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[2])
listening.listen()
print("ready", flush=True)
"""
SLEEPS = "while True: signal.pause()\n"
#: Busy for longer than a sleeping process is given, in CPU time: on a loaded machine that takes longer still.
ANSWERS_LATE = f"""
while time.process_time() < {HUNG_AFTER_S + 1}: pass
while True:
    asked, _ = listening.accept()
    asked.recv(65536)
    asked.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 12\\r\\n\\r\\n{{\\"jobs\\": []}}")
"""


def looks(*states: str, switches: tuple[int, ...] | None = None) -> list[tuple[float, Look]]:
    """Return checks that together take as long as it needs."""
    step = HUNG_AFTER_S / (len(states) - 1)
    counts = switches or (7,) * len(states)
    return [(place * step, Look(state, count)) for place, (state, count) in enumerate(zip(states, counts, strict=True))]


def test_a_sleeping_main_thread_with_an_unread_request_hangs() -> None:
    assert daemon_process.is_hung(looks("S", "S", "S"), unread=1)


@pytest.mark.parametrize(
    "seen",
    [
        looks("S", "R", "S"),
        looks("R", "R", "R"),
        looks("D", "D", "D"),
        looks("S", "S", "D"),
        looks("S", "S", "S", switches=(7, 7, 8)),
        looks("S", "S", "S")[:2],
        [],
    ],
)
def test_slowness_of_the_machine_is_no_evidence(seen: list[tuple[float, Look]]) -> None:
    assert not daemon_process.is_hung(seen, unread=1)


def test_a_request_that_was_read_may_take_long() -> None:
    assert not daemon_process.is_hung(looks("S", "S", "S"), unread=0)


@pytest.fixture(params=[SLEEPS], ids=["sleeps"])
def pretend(bench: Bench, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A program in the place of the daemon, which sleeps, or does what a test requests."""
    bench.home.mkdir(mode=0o700)
    words = [str(paths.daemon_lock(bench.home)), str(paths.socket_path(bench.home))]
    program = [sys.executable, "-c", PROGRAM + request.param, *words]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_hanging_daemon_is_reported_with_the_fix(bench: Bench, pretend: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    done = bench.cli("add", "-g0", "true")
    assert time.monotonic() - began < daemon_process.HUNG_AFTER_S + PATIENCE_S / 2
    assert (done.returncode, done.stdout) == (5, "")
    assert f"the daemon (pid {pretend.pid}) hangs" in done.stderr
    assert "dibs daemon restart --force" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_hanging_daemon_is_replaced(bench: Bench, pretend: subprocess.Popen[str]) -> None:
    done = bench.cli("daemon", "restart", "--force")
    assert done.returncode == 0
    assert f"killed (pid {pretend.pid})" in done.stdout
    assert pretend.wait(PATIENCE_S) == -signal.SIGKILL
    assert bench.cli("add", "-g0", "true").returncode == 0


@pytest.mark.parametrize("pretend", [ANSWERS_LATE], ids=["answers late"], indirect=True)
def test_a_busy_daemon_is_waited_for_with_a_note(bench: Bench, pretend: subprocess.Popen[str]) -> None:
    done = bench.cli("status", "-q")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"the daemon (pid {pretend.pid}) has not answered yet" in done.stderr


def test_only_a_process_with_the_lock_open_is_killed(bench: Bench) -> None:
    """The kernel's table keeps the pid of a dead holder while a child has the lock, and a pid can be reused."""
    program = (
        "import fcntl, os, signal, sys\n"
        "lock = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600)\n"
        "os.set_inheritable(lock, True)\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "keeper = os.fork()\n"
        "if keeper:\n"
        "    print(keeper, flush=True)\n"
        "    os.close(lock)\n"
        "while True: signal.pause()\n"
    )
    bench.home.mkdir(mode=0o700)
    words = [sys.executable, "-c", program, str(paths.daemon_lock(bench.home))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        keeper = int(process.stdout.readline())
        try:
            # As after a reuse: the table names a process that no longer has anything to do with the lock.
            wait_for(lambda: not _holds(process.pid, bench))
            assert daemon_process.lock_holder(bench.home) == process.pid
            with pytest.raises(daemon_process.NoDaemon, match="still held"):
                daemon_process.replace(bench.home, 0.5)
            assert process.poll() is None
            assert processes.identity(keeper) is not None
        finally:
            os.kill(keeper, signal.SIGKILL)
            process.kill()


def _holds(pid: int, bench: Bench) -> bool:
    lock = str(paths.daemon_lock(bench.home))
    names = os.listdir(f"/proc/{pid}/fd")
    return any(os.readlink(f"/proc/{pid}/fd/{name}") == lock for name in names)


def test_the_holder_is_found_where_the_table_of_locks_has_another_device(
    bench: Bench, pretend: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on btrfs; processes that lock files of the same number elsewhere are no holders."""
    lock = paths.daemon_lock(bench.home).stat()
    table = {"00:1f:1": [1], f"00:1f:{lock.st_ino}": [os.getpid(), pretend.pid], f"00:1f:1{lock.st_ino}": [2]}
    assert locks.with_inode(table, lock.st_ino) == [os.getpid(), pretend.pid]
    monkeypatch.setattr(locks, "flocked", lambda: table)
    assert daemon_process.lockers(bench.home) == [pretend.pid]
    assert daemon_process.lock_holder(bench.home) == pretend.pid


def test_a_connection_is_retried_while_the_backlog_is_full(bench: Bench, tmp_path: Path) -> None:
    """A daemon with many connections to accept is busy; it was reported as unreachable."""
    bench.start()
    pid = bench.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    crowd = []
    try:
        import socket

        while True:
            sock = socket.socket(socket.AF_UNIX)
            sock.setblocking(False)
            crowd.append(sock)
            try:
                sock.connect(str(paths.socket_path(bench.home)))
            except BlockingIOError:
                break
        with pytest.raises(daemon_process.Unresponsive, match="is stopped by a signal"):
            bench.client.get("/v1/daemon")
    finally:
        os.kill(pid, signal.SIGCONT)
        answer = bench.client.get("/v1/daemon")
        for sock in crowd:
            sock.close()
    assert answer["pid"] == pid
