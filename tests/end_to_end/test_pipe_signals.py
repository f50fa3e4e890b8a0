"""Ending `dibs pipe` and `simple_gpu_scheduler` by every signal and by -9: no process left, no GPU lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.leases import device_lease, holders
from dibs.system import processes

DOORS = {
    "pipe": [sys.executable, "-m", "dibs", "pipe", "--gpu-ids", "0"],
    "simple_gpu_scheduler": [str(Path(sys.executable).parent / "simple_gpu_scheduler"), "--gpus", "0"],
}

#: A command that records its start, waits for a file, and records its end.
PATIENT = "echo $$ > began; while [ ! -e go ]; do sleep 0.01; done; touch finished"
#: One whose child records TERM and continues, so that only KILL ends it; it prints when it is ready.
STUBBORN = "(trap 'touch termed' TERM; touch ready; while :; do sleep 0.01; done) & echo $$ > began; trap '' TERM; wait"


class CalledCommand:
    """A foreground command with one line that runs and one that waits behind it."""

    def __init__(self, bench: Bench, door: str, command: str) -> None:
        self.bench = bench
        self.door = door
        self.process = subprocess.Popen(
            DOORS[door], env=bench.environ, cwd=bench.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\ntouch never\n")
        self.process.stdin.flush()
        self.wait_for("began")
        # The shell creates the file before it writes into it.
        self.pid = int(wait_for((bench.folder / "began").read_text))

    def wait_for(self, name: str) -> None:
        """Wait until a line has created a file."""
        wait_for((self.bench.folder / name).exists)

    def has(self, name: str) -> bool:
        """Return whether a line has created a file."""
        return (self.bench.folder / name).exists()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the foreground command alone."""
        self.process.send_signal(number)

    def heard(self, text: str) -> None:
        """Read its output up to a text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return
        raise AssertionError(f"never said {text!r}")

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit code as a shell sees it, and the rest of its output."""
        _, told = self.process.communicate(timeout=PATIENCE_S)
        code = self.process.returncode
        return (128 - code if code < 0 else code), told

    def holders(self) -> list[holders.Holder]:
        """Return who has the GPU."""
        return list(holders.survey(device_lease.Folder(str(self.bench.leases)), ["FAKE-0"])["FAKE-0"])

    def left(self) -> list[int]:
        """Return the processes of the line's group that are still alive."""
        return [proc.pid for proc in processes.everybody() if not proc.is_dead and self._is_of_command(proc.pid)]

    def _is_of_command(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) == self.pid
        except ProcessLookupError:
            return False


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    """Both commands, one after the other."""
    return str(request.param)


@pytest.fixture
def patient(bench: Bench, door: str) -> Iterator[CalledCommand]:
    """A command with a line that runs until the test releases it."""
    called = CalledCommand(bench, door, PATIENT)
    yield called
    called.process.kill()
    called.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_lets_running_commands_finish_and_starts_no_more(
    patient: CalledCommand, number: signal.Signals
) -> None:
    patient.signal(number)
    patient.heard("no more commands start; 1 command finishes")
    assert [one.pid for one in patient.holders()] == [patient.process.pid]
    (patient.bench.folder / "go").touch()
    code, told = patient.end()
    assert code == 128 + number
    assert "stopped before starting 1 command and the rest of the input" in told
    assert patient.has("finished")
    assert not patient.has("never")
    assert patient.holders() == []


def test_a_second_sighup_counts_as_the_same(patient: CalledCommand) -> None:
    """When a terminal is closed, the kernel and the shell both send one."""
    patient.signal(signal.SIGHUP)
    patient.heard("no more commands start")
    patient.signal(signal.SIGHUP)
    (patient.bench.folder / "go").touch()
    assert patient.end()[0] == 129
    assert patient.has("finished")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_the_process_trees(patient: CalledCommand, number: signal.Signals) -> None:
    patient.signal(number)
    patient.heard("no more commands start")
    patient.signal(number)
    assert patient.end()[0] == 128 + number
    assert not patient.has("finished")
    assert patient.left() == []
    assert patient.holders() == []


def test_the_third_signal_kills_what_ignores_the_second(bench: Bench, door: str) -> None:
    called = CalledCommand(bench, door, STUBBORN)
    called.wait_for("ready")
    called.signal(signal.SIGINT)
    called.heard("no more commands start")
    called.signal(signal.SIGINT)
    called.wait_for("termed")
    assert called.process.poll() is None
    assert called.holders()
    called.signal(signal.SIGINT)
    assert called.end()[0] == 130
    assert called.left() == []
    assert called.holders() == []


def test_a_signal_while_it_waits_for_a_gpu_ends_it_at_once(bench: Bench, door: str) -> None:
    (lease,) = device_lease.take(device_lease.Folder(str(bench.leases)), ["FAKE-0"], device_lease.Note("test"))
    process = subprocess.Popen(
        DOORS[door], env=bench.environ, cwd=bench.folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write("touch never\n")
    process.stdin.flush()
    assert "waiting for" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    lease.close()
    assert not [name for name in os.listdir(bench.leases) if name.startswith(".dibs-ticket-")]
    assert not (bench.folder / "never").exists()


def test_after_kill_9_the_command_keeps_its_gpu_until_it_ends(patient: CalledCommand) -> None:
    patient.process.kill()
    patient.process.wait(PATIENCE_S)
    (held,) = patient.holders()
    assert (held.pid, held.job) == (patient.pid, patient.door)
    shown = patient.bench.cli("gpus").stdout
    assert f"{patient.door} (pid {patient.pid})" in shown
    (patient.bench.folder / "go").touch()
    wait_for(patient.holders, lambda seen: not seen)
    assert patient.has("finished")
    assert not patient.has("never")
