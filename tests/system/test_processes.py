"""Reading processes, and that a signal never reaches an unrelated process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from attempt_bench import DEADLINE_S, until
from dibs.system import processes


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={"MARK_A": "1", "MARK_B": "x=y"}) as process:
        yield process
        process.kill()


def test_a_process_is_identified_by_pid_and_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    proc = processes.look(sleeper.pid)
    assert proc is not None
    assert (proc.pid, proc.ppid) == (sleeper.pid, os.getpid())
    assert processes.identity(sleeper.pid) == proc.starttime


def test_a_missing_process_has_no_identity() -> None:
    assert processes.look(2**22 + 1) is None
    assert processes.identity(2**22 + 1) is None
    assert processes.open_verified(2**22 + 1, 0) is None


def test_a_process_name_may_contain_any_characters(tmp_path: Path) -> None:
    program = tmp_path / ") S 1 (\n"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        proc = until(lambda: (seen := processes.look(process.pid)) and "S 1" in seen.comm and seen)
        assert (proc.comm, proc.ppid) == (") S 1 (\n", os.getpid())
        process.kill()


def test_the_boot_has_an_id() -> None:
    assert processes.boot_id() == processes.boot_id()
    assert len(processes.boot_id()) == 36


def test_descendants_are_found_at_any_depth_parents_first() -> None:
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 60; :'; :"]) as process:
        found = until(lambda: (seen := processes.descendants(process.pid)) and len(seen) == 2 and seen)
        assert found[0].ppid == process.pid
        assert found[1].ppid == found[0].pid
        assert process.pid in [proc.pid for proc in processes.descendants(os.getpid())]
        processes.send_all([*found], signal.SIGKILL)
        process.kill()


def test_a_zombie_is_dead_and_a_stopped_process_is_not() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: (seen := processes.look(process.pid)) and seen.is_stopped)
        process.kill()
        zombie = until(lambda: (seen := processes.look(process.pid)) and seen.is_dead and seen)
        assert not zombie.is_stopped


def test_a_signal_goes_through_a_verified_pidfd(sleeper: subprocess.Popen[bytes]) -> None:
    starttime = processes.identity(sleeper.pid)
    assert starttime is not None
    pidfd = processes.open_verified(sleeper.pid, starttime)
    assert pidfd is not None
    assert processes.send(pidfd, signal.SIGTERM)
    assert sleeper.wait(DEADLINE_S) == -signal.SIGTERM
    assert not processes.send(pidfd, signal.SIGTERM)
    os.close(pidfd)


def test_another_process_with_a_reused_pid_gets_no_signal(sleeper: subprocess.Popen[bytes]) -> None:
    starttime = processes.identity(sleeper.pid)
    assert starttime is not None
    assert processes.open_verified(sleeper.pid, starttime - 1) is None
    processes.send_all([processes.Proc(sleeper.pid, 0, starttime - 1, "", "S")], signal.SIGKILL)
    assert sleeper.poll() is None


def test_marked_processes_match_all_environment_entries_exactly(sleeper: subprocess.Popen[bytes]) -> None:
    def pids(*entries: bytes) -> list[int]:
        return [proc.pid for proc in processes.marked(list(entries))]

    until(lambda: pids(b"MARK_A=1", b"MARK_B=x=y") == [sleeper.pid])
    assert sleeper.pid not in pids(b"MARK_A=1", b"MARK_B=x")
    assert sleeper.pid not in pids(b"MARK_A=")
    assert pids() == []


def test_no_descriptor_is_left_open(sleeper: subprocess.Popen[bytes]) -> None:
    before = os.listdir("/proc/self/fd")
    processes.send_all(processes.descendants(os.getpid()), signal.SIGCONT)
    processes.marked([b"MARK_A=1"])
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_process_names_are_readable() -> None:
    procs = [processes.Proc(4242, 1, 0, "python", "S"), processes.Proc(4250, 1, 0, "sleep", "S")]
    assert processes.names(procs) == "4242 python, 4250 sleep"
