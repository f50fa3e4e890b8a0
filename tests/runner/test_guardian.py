"""The program on an engine's node: the same start as a local one, and nothing left whatever the engine kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attempt_bench import Bench, until
from dibs.engines import node_code
from dibs.runner import attempts, guardian, records
from dibs.system import paths, processes

#: Ends only by KILL, and has a child that left its session and its parent.
STUBBORN = 'trap "" TERM; (setsid setsid sleep 600 &) ; echo up; while :; do sleep 1; done'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    own = Bench(tmp_path)
    yield own
    own.close()


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node_code.install(tmp_path_factory.mktemp("shared"))


def start(
    bench: Bench, code: Path, command: str, above: list[str] | None = None, **more: object
) -> subprocess.Popen[bytes]:
    """Run a spec file as an engine does, `above` the engine's own process, with these variables of the engine."""
    environ = {"PATH": os.environ["PATH"], "ENGINE_SECRET": "x", **more.pop("environ", {})}  # type: ignore[dict-item]
    bench.spec(command, engine="lab", **more)
    path = Path(bench.folder) / "spec.1"
    path.write_bytes(bench.specs[1])
    words = node_code.argv(sys.executable, code, str(path))
    with open(bench.tmp / "engine.1", "ab") as output:
        process = subprocess.Popen([*(above or []), *words], env=environ, cwd="/", stderr=output)
    bench.started.append(process)
    return process


def final(bench: Bench) -> records.Final:
    found = until(lambda: records.read_final(bench.folder, 1), "a final record")
    assert found is not None
    return found


def log(bench: Bench) -> str:
    path = bench.tmp / "log"
    return path.read_text() if path.exists() else ""


def guardian_pid(bench: Bench) -> int:
    found = until(lambda: attempts.read_records(bench.folder, 1), "a claim")
    assert found is not None
    assert isinstance(found.decision, attempts.Shim)
    return found.decision.pid


def leftovers(bench: Bench) -> list[processes.Proc]:
    return list(processes.marked([bench.marker]))


@pytest.mark.parametrize(
    ("command", "kind", "code_", "signum"),
    [("exit 7", "exited", 7, 0), ("kill -9 $$", "signalled", 0, 9), ("exit 0", "exited", 0, 0)],
)
def test_the_record_says_how_the_command_ended(
    bench: Bench, code: Path, command: str, kind: str, code_: int, signum: int
) -> None:
    assert start(bench, code, command).wait() == 0
    found = final(bench)
    assert (found.kind, found.code, found.signal) == (kind, code_, signum)


def test_a_missing_folder_a_missing_program_and_a_limit_are_as_on_the_local_engine(bench: Bench, code: Path) -> None:
    start(bench, code, "true", cwd=b"/nonexistent").wait()
    assert (final(bench).kind, final(bench).code) == ("failed", 126)
    os.unlink(f"{bench.folder}/started.1")
    start(bench, code, "sleep 600", time_limit_s=0.2, grace_s=1.0).wait()
    assert final(bench).timed_out


def test_the_command_sees_its_own_environment_and_nothing_of_the_engine(bench: Bench, code: Path) -> None:
    env = (b"A=q\"'$ \nz\xff", b"PATH=" + os.environ["PATH"].encode(), bench.marker, b"MASTER_PORT=5")
    start(bench, code, "env -0", env=env, gpus=1, environ={"CUDA_VISIBLE_DEVICES": "2"}).wait()
    seen = dict(line.split(b"=", 1) for line in (bench.tmp / "log").read_bytes().split(b"\0") if line)
    assert seen[b"A"] == b"q\"'$ \nz\xff"
    assert b"ENGINE_SECRET" not in seen
    assert (seen[b"CUDA_VISIBLE_DEVICES"], seen[b"DIBS_GPU_INDICES"]) == (b"2", b"2")
    assert (seen[b"MASTER_PORT"], seen[b"PET_MASTER_PORT"]) == (b"5", seen[b"DIBS_PORT"])
    assert 20_000 <= int(seen[b"DIBS_PORT"]) < 65_536


@pytest.mark.parametrize(
    ("gpus", "given", "visible", "indices"),
    [
        (0, {}, b"", b""),
        # An engine that names devices to a job without any must not give it all of them.
        (0, {b"CUDA_VISIBLE_DEVICES": b"0,1"}, b"", b""),
        (2, {b"CUDA_VISIBLE_DEVICES": b"1,3"}, b"1,3", b"1,3"),
        (2, {b"CUDA_VISIBLE_DEVICES": b"GPU-a,GPU-b"}, b"GPU-a,GPU-b", b"0,1"),
        (1, {}, b"", b""),
    ],
)
def test_devices_are_those_that_the_engine_gave(
    bench: Bench, gpus: int, given: dict[bytes, bytes], visible: bytes, indices: bytes
) -> None:
    spec = bench.spec("true", engine="lab", gpus=gpus, env=(b"CUDA_VISIBLE_DEVICES=",))
    env = dict(entry.split(b"=", 1) for entry in guardian.at_node(spec, given, 20_000, "m").env)
    assert (env[b"CUDA_VISIBLE_DEVICES"], env[b"DIBS_GPU_INDICES"]) == (visible, indices)


@pytest.mark.parametrize(("machine", "devices"), [("here", ("GPU-b",)), ("elsewhere", ())])
def test_on_the_daemons_own_machine_the_devices_are_leased_too(
    bench: Bench, machine: str, devices: tuple[str, ...]
) -> None:
    known = ("0 GPU-a", "1 GPU-b")
    spec = bench.spec("true", engine="lab", gpus=1, machine="here", machine_devices=known)
    assert guardian.at_node(spec, {b"CUDA_VISIBLE_DEVICES": b"1"}, 1, machine).devices == devices


def test_a_lease_of_somebody_else_refuses_the_start(bench: Bench, code: Path) -> None:
    from dibs.leases import device_lease

    place = bench.tmp / "leases"
    place.mkdir()
    held = device_lease.take(device_lease.Folder(str(place)), ["GPU-a"], device_lease.Note("1"))
    start(
        bench, code, "true", gpus=1, machine=paths.machine_id(), machine_devices=("0 GPU-a",), lease_dir=str(place),
        environ={"CUDA_VISIBLE_DEVICES": "0"},
    ).wait()  # fmt: skip
    assert final(bench).kind == "nolease", (bench.tmp / "engine.1").read_text()
    for lease in held:
        lease.close()


def test_the_same_start_given_twice_runs_once(bench: Bench, code: Path) -> None:
    both = [start(bench, code, "echo ran >> twice") for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert (bench.tmp / "twice").read_text() == "ran\n"


def test_a_buried_start_never_runs(bench: Bench, code: Path) -> None:
    assert attempts.bury(bench.folder, 1, is_shared=True)
    assert start(bench, code, "touch ran").wait() == 0
    assert not (bench.tmp / "ran").exists()


def test_an_order_stops_the_whole_tree_and_the_record_says_that_it_was_stopped(bench: Bench, code: Path) -> None:
    process = start(bench, code, STUBBORN)
    until(lambda: "up" in log(bench))
    attempts.append_order(bench.folder, 1, "stop 0.2")
    process.send_signal(signal.SIGUSR1)
    process.wait()
    assert final(bench).stopped
    assert leftovers(bench) == []


def test_orders_are_read_without_a_signal(bench: Bench, code: Path) -> None:
    process = start(bench, code, "echo up; sleep 600")
    until(lambda: "up" in log(bench))
    attempts.append_order(bench.folder, 1, "stop 5")
    process.wait()
    assert final(bench).stopped


def test_a_killed_parent_leaves_nothing(bench: Bench, code: Path) -> None:
    """As when a step of Slurm, or a supervisor of Ray, is killed: only the parent is its child."""
    process = start(bench, code, STUBBORN)
    until(lambda: "up" in log(bench))
    process.kill()
    assert final(bench).stopped
    until(lambda: not leftovers(bench), "the end of all processes")


def test_a_killed_guardian_leaves_nothing_and_the_result_is_lost(bench: Bench, code: Path) -> None:
    process = start(bench, code, STUBBORN)
    until(lambda: "up" in log(bench))
    os.kill(guardian_pid(bench), signal.SIGKILL)
    process.wait()
    assert leftovers(bench) == []
    found = attempts.read_records(bench.folder, 1)
    assert found is not None
    assert isinstance(attempts.settle(found), attempts.Lost)
    assert "killed by SIGKILL" in final(bench).why


def test_when_the_engines_own_process_dies_nothing_is_left(bench: Bench, code: Path) -> None:
    process = start(bench, code, STUBBORN, above=["sh", "-c", '"$@" & wait', "sh"])
    until(lambda: "up" in log(bench))
    process.kill()
    assert final(bench).stopped
    until(lambda: not leftovers(bench), "the end of all processes")


def test_what_the_command_leaves_running_is_ended(bench: Bench, code: Path) -> None:
    start(bench, code, "(setsid sleep 600 &)", leftover_grace_s=0.1).wait()
    assert final(bench).leftovers
    assert leftovers(bench) == []


def test_the_copy_of_the_code_is_complete_and_made_once(code: Path) -> None:
    """The tests above run from it, without the rest of the package on the path."""
    assert node_code.install(code.parents[1]) == code
    assert [path.name for path in (code.parent).iterdir()] == [code.name]
    assert not (code / "dibs" / "engines").exists()
