"""`simple_gpu_scheduler`: the recorded behaviour of the old tool, to the byte, without its bugs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.leases import device_lease, holders
from dibs.model import devices
from dibs_compat import ids
from simple_gpu_scheduler import scheduler

CASES = json.loads((Path(__file__).parent.parent / "data" / "simple_gpu_scheduler.json").read_text())["cases"]


def run(bench: Bench, shell: str, stdin: str | bytes = "", **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell command with the old names on its PATH."""
    path = f"{Path(sys.executable).parent}:{bench.environ['PATH']}"
    given = stdin if isinstance(stdin, bytes) else stdin.encode()
    return subprocess.run(
        ["/bin/sh", "-c", shell], input=given, capture_output=True, timeout=PATIENCE_S,
        env=bench.environ | {"PATH": path, "DIBS_DEVICES": "", "LANG": "C.UTF-8"} | environ, cwd=bench.folder,
    )  # fmt: skip


def start(bench: Bench, gpus: str) -> subprocess.Popen[bytes]:
    """Start it on the pretend GPUs of the bench, with a pipe as input."""
    words = [Path(sys.executable).parent / "simple_gpu_scheduler", "--gpus", gpus]
    return subprocess.Popen(
        words, env=bench.environ, cwd=bench.folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def held(bench: Bench, *devices: str) -> list[str]:
    """Return which of the devices are held."""
    return [name for name, who in holders.survey(device_lease.Folder(str(bench.leases)), devices).items() if who]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_behaves_as_recorded_from_the_old_tool(bench: Bench, case: dict[str, Any]) -> None:
    done = run(bench, case["shell"], case["stdin"], **case["environ"])
    assert (done.stdout.decode(), done.stderr.decode(), done.returncode) == (
        case["stdout"],
        case["stderr"],
        case["code"],
    )
    assert {name: (bench.folder / name).read_text() for name in case["files"]} == case["files"]


def test_the_package_cannot_be_run_as_a_module(bench: Bench) -> None:
    assert run(bench, "python -m simple_gpu_scheduler").returncode == 1


@pytest.mark.parametrize("bad", ["echo " + "x" * 140_000, "echo a\0b"], ids=["too long", "NUL"])
def test_a_command_that_cannot_be_started_frees_its_gpu_and_is_reported(bench: Bench, bad: str) -> None:
    done = run(bench, "simple_gpu_scheduler --gpus 0 --exit-status", f"{bad}\necho second\n")
    assert done.stdout.decode().endswith("Processing command `echo second` on gpu 0\nsecond\n")
    assert done.stderr.startswith(b"simple_gpu_scheduler: cannot start command 1: ")
    assert done.returncode == 1


def test_ids_that_name_no_gpu_are_leased_without_a_driver_query(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query takes a new process, which would delay the next command."""
    for name, value in {**bench.environ, "DIBS_DEVICES": ""}.items():
        monkeypatch.setenv(name, value)
    assert ids.vet(devices.Inventory(), print) is None
    assert ids.vet(devices.Inventory(devices.pretend(1, 2**30)), print) is not None


def test_a_usual_start_loads_neither_a_parser_of_options_nor_what_asks_a_driver(bench: Bench) -> None:
    code = (
        "import sys; from simple_gpu_scheduler import scheduler; sys.argv = ['x', '--gpus', '7,8']\n"
        "try:\n    scheduler.main()\nfinally:\n    print(*sys.modules)"
    )
    words = [sys.executable, "-c", code]
    environ = {name: value for name, value in bench.environ.items() if name != "DIBS_DEVICES"}
    done = subprocess.run(words, input=b"true\n", env=environ, capture_output=True, timeout=PATIENCE_S)
    loaded = set(done.stdout.decode().splitlines()[-1].split())
    assert "dibs.foreground.pipe_loop" in loaded
    has_driver = any(os.path.exists(path) for path in ids.DRIVER_FILES)
    unwanted = {"argparse", "shutil"} | (set() if has_driver else {"subprocess", "dibs.devices.probe"})
    assert unwanted & loaded == set()


def test_a_closed_stdin_has_no_commands(bench: Bench) -> None:
    done = run(bench, "simple_gpu_scheduler --gpus 0 <&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_bytes_that_are_not_utf8_reach_the_command(bench: Bench) -> None:
    done = run(bench, "simple_gpu_scheduler --gpus 0", b"printf '\xff' > a\n")
    assert done.stdout == b"Processing command `printf '\xff' > a` on gpu 0\n"
    assert (bench.folder / "a").read_bytes() == b"\xff"


@pytest.mark.parametrize(
    ("words", "environ", "code"), [("--exit-status", {}, 1), ("", {"SGS_EXIT_STATUS": "1"}, 1), ("", {}, 0)]
)
def test_failures_set_the_exit_code_on_request(bench: Bench, words: str, environ: dict[str, str], code: int) -> None:
    assert run(bench, f"simple_gpu_scheduler --gpus 0 {words}", "true\nfalse\n", **environ).returncode == code
    assert run(bench, f"simple_gpu_scheduler --gpus 0 {words}", "true\n", **environ).returncode == 0


def test_an_id_uses_the_lease_of_the_device_it_names(bench: Bench) -> None:
    """Any other text is leased by itself, so that two calls never run on the same slot."""
    gate = "while [ ! -e go ]; do sleep 0.01; done"
    with start(bench, "1,7,1") as process:
        assert process.stdin is not None
        process.stdin.write(f"touch a; {gate}\ntouch b; {gate}\ntouch c; {gate}\n".encode())
        process.stdin.close()
        wait_for(lambda: all((bench.folder / name).exists() for name in "abc"))
        assert held(bench, "FAKE-0", "FAKE-1", "1", "7") == ["FAKE-1", "7"]
        (bench.folder / "go").touch()
        assert process.wait(PATIENCE_S) == 0
    assert held(bench, "FAKE-1", "7") == []


def test_inside_a_job_it_uses_the_gpu_of_the_job(bench: Bench) -> None:
    """Otherwise it would deadlock."""
    tool = Path(sys.executable).parent / "simple_gpu_scheduler"
    done = bench.cli("run", "--gpu-ids", "1", f'echo "echo in $CUDA_VISIBLE_DEVICES" | {tool} --gpus 1')
    assert (done.returncode, done.stdout) == (
        0, "Processing command `echo in FAKE-1` on gpu 1\nin FAKE-1\n"
    )  # fmt: skip


def test_two_calls_alternate_on_one_gpu(bench: Bench) -> None:
    """The second waits in the line and names the holder; the first offers the GPU back after each command."""
    first, second = start(bench, "0"), start(bench, "0")
    assert first.stdin is not None
    first.stdin.write(b"touch began; while [ ! -e go ]; do sleep 0.01; done; echo 1 >> order\necho 3 >> order\n")
    first.stdin.flush()
    wait_for((bench.folder / "began").exists)
    assert second.stdin is not None
    assert second.stderr is not None
    second.stdin.write(b"echo 2 >> order\n")
    second.stdin.close()
    told = second.stderr.readline()
    assert told.startswith(b"simple_gpu_scheduler: waiting for FAKE-0: ")
    assert b"simple_gpu_scheduler, pid" in told
    (bench.folder / "go").touch()
    first.stdin.close()
    assert (first.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)
    for stream in (first.stderr, second.stderr):
        assert stream is not None
        stream.close()
    assert (bench.folder / "order").read_text() == "1\n2\n3\n"


def test_its_names_can_be_imported(bench: Bench, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    for name, value in bench.environ.items():
        monkeypatch.setenv(name, value)
    manager = scheduler.GPUManager(["0", "x"])
    gpu = manager.get_gpu()
    assert (gpu.nr, str(gpu)) == ("x", "x")
    assert held(bench, "FAKE-0", "x") == ["x"]
    other = manager.get_gpu()
    waited: list[str] = []
    waiter = threading.Thread(target=lambda: waited.append(manager.get_gpu().nr))
    waiter.start()
    thread = scheduler.run_command_with_gpu(f"echo $CUDA_VISIBLE_DEVICES > {bench.folder}/seen", other)
    thread.join(PATIENCE_S)
    waiter.join(PATIENCE_S)
    assert (bench.folder / "seen").read_text() == "0\n"
    assert waited == ["0"]
    gpu.release()
    assert held(bench, "x") == []


def test_a_manager_leases_no_inherited_gpu(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**bench.environ, "DIBS_GPU_INDICES": "1"}.items():
        monkeypatch.setenv(name, value)
    (lease,) = device_lease.take(device_lease.folder(), ["FAKE-1"], device_lease.Note("test"))
    manager = scheduler.GPUManager(["0", "1"])
    taken: list[scheduler.GPU] = []
    taker = threading.Thread(target=lambda: taken.extend(manager.get_gpu() for _ in range(2)), daemon=True)
    taker.start()
    taker.join(PATIENCE_S)
    given, other = taken
    assert held(bench, "FAKE-0", "FAKE-1") == ["FAKE-0", "FAKE-1"]
    given.release()
    other.release()
    assert held(bench, "FAKE-0", "FAKE-1") == ["FAKE-1"]
    lease.close()


def test_a_command_that_ends_in_an_ampersand_frees_its_slot_at_once(bench: Bench) -> None:
    """Its background process continues, as before, and holds the GPU until it exits."""
    left = "(while [ ! -e go ]; do sleep 0.01; done; echo end > a) > /dev/null 2>&1 &"
    done = run(bench, "simple_gpu_scheduler --gpus 0", f"{left}\necho next > b\n")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (bench.folder / "b").read_text() == "next\n"
    assert held(bench, "0") == ["0"]
    (bench.folder / "go").touch()
    wait_for(lambda: held(bench, "0"), lambda seen: not seen)
    assert (bench.folder / "a").read_text() == "end\n"
    assert os.listdir(bench.leases)
