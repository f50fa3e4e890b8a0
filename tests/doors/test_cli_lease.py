"""`dibs lease`: GPUs held by hand, without a daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from terminal import CTRL_C, Terminal

from bench import PATIENCE_S, Bench, wait_for
from dibs import holders, leases


def held(bench: Bench) -> dict[str, str | None]:
    """Return the devices that somebody holds, and as what."""
    found = holders.survey(leases.Folder(str(bench.leases)), [f"FAKE-{n}" for n in range(4)])
    return {device: who[0].job for device, who in found.items() if who}


def test_the_command_gets_gpus_stdin_and_its_own_code(bench: Bench) -> None:
    command = "read line; echo $line $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $DIBS_GPU_INDICES; exit 9"
    done = bench.cli("lease", "-g", "2", "--prefer", "3", "sh", "-c", command, input="typed\n")
    assert (done.returncode, done.stdout) == (9, "typed FAKE-3,FAKE-0 PCI_BUS_ID 3,0\n")
    assert bench.pid() is None, "no daemon is needed"
    assert held(bench) == {}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "kill -9 $$"), 137),
        (("exit 4",), 4),
        (("A=1", "sh", "-c", "exit $A"), 1),
        (("no-such-program",), 127),
        (("./plain",), 127),
        (("./script",), 6),
    ],
)
def test_lease_exits_with_the_code_of_its_command(bench: Bench, words: tuple[str, ...], code: int) -> None:
    (bench.folder / "plain").write_text("")
    (bench.folder / "script").write_text("exit 6\n")
    (bench.folder / "script").chmod(0o755)
    assert bench.cli("lease", *words).returncode == code


def test_devices_may_be_named_by_index(bench: Bench) -> None:
    done = bench.cli("lease", "--gpu-ids", "1", "--visible", "index", "printenv", "CUDA_VISIBLE_DEVICES")
    assert done.stdout == "1\n"


def test_without_a_command_it_holds_until_ctrl_c(bench: Bench) -> None:
    with Terminal(bench, "lease", "--gpu-ids", "1,2") as person:
        person.until("FAKE-1\r\nFAKE-2\r\nexport CUDA_VISIBLE_DEVICES=FAKE-1,FAKE-2\r\n")
        assert held(bench) == {"FAKE-1": "lease", "FAKE-2": "lease"}
        person.type(CTRL_C)
        assert person.end()[0] == 0
    assert held(bench) == {}


def test_ctrl_c_is_the_commands_business(bench: Bench) -> None:
    with Terminal(bench, "lease", "sh", "-c", "trap 'exit 3' INT; echo ready; while :; do sleep 0.01; done") as person:
        person.until("ready")
        person.type(CTRL_C)
        assert person.end()[0] == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(bench: Bench, number: signal.Signals) -> None:
    with Terminal(bench, "lease", "sh", "-c", "echo ready; exec sleep 1000") as person:
        person.until("ready")
        person.signal(number)
        assert person.end()[0] == 128 + number


def test_the_command_keeps_the_gpu_when_we_are_killed(bench: Bench) -> None:
    script = "echo ready; while [ ! -e go ]; do sleep 0.01; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "lease", "sh", "-c", script],
        env=bench.environ, cwd=bench.folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait(PATIENCE_S)
    assert list(held(bench)) == ["FAKE-0"]
    (bench.folder / "go").touch()
    wait_for(lambda: held(bench), lambda seen: not seen)
    process.stdout.close()


def test_no_wait_says_who_has_them(bench: Bench) -> None:
    job_id = bench.add(["sleep", "1000"], gpus=4)
    bench.until(job_id, "started")
    done = bench.cli("lease", "--no-wait", "true")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("dibs: 1 GPU cannot be had now: GPU 0: ")
    assert "job 1 (pid" in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_waits_in_the_line_and_says_for_whom(bench: Bench) -> None:
    job_id = bench.add(["sleep", "1000"], gpus=4)
    bench.until(job_id, "started")
    with Terminal(bench, "lease", "echo", "mine") as person:
        person.until("waiting for 1 GPU: GPU 0: ")
        bench.cancel(job_id)
        code, shown = person.end()
    assert code == 0
    assert shown.endswith("mine\r\n")


def test_waiting_can_be_interrupted(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    with Terminal(bench, "lease", "true") as person:
        person.until("waiting for 1 GPU")
        person.type(CTRL_C)
        assert person.end()[0] == 130
    assert not [name for name in os.listdir(bench.leases) if name.startswith(".dibs-ticket-")]


def test_a_job_waits_for_a_lease(bench: Bench) -> None:
    with Terminal(bench, "lease", "-g", "4") as person:
        person.until("export")
        job_id = bench.add("true")
        assert "lease" in bench.cli("why", str(job_id)).stdout
        assert "lease (pid" in bench.cli("gpus").stdout
        person.type(CTRL_C)
        assert person.end()[0] == 0
    assert bench.until(job_id)["state"] == "done"
