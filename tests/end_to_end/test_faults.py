"""Faults of the machine: a full disk, a broken driver, files of other users. Nothing is lost or hidden."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench, wait_for
from dibs.client import connection
from dibs.errors import DibsError, MachineError
from dibs.store import database
from dibs.store.writer import Store
from dibs.system import paths
from fakes.nvml import world

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Path]:
    """Put the state folder on a file system of eight megabytes."""
    bench.home.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "dibs-test", bench.home], check=True)
    yield bench.home
    bench.close()
    subprocess.run(["umount", "--lazy", bench.home], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 65536)


@needs_root
def test_a_full_disk_refuses_jobs_and_loses_no_result(bench: Bench, small_disk: Path) -> None:
    gate = bench.folder / "gate"
    bench.start()
    running = bench.add(f"while [ ! -e {gate} ]; do sleep 0.01; done; exit 9", gpus=1)
    bench.until(running, "started")
    ballast = small_disk / "ballast"
    fill(ballast)
    with pytest.raises(MachineError) as refused:
        # Larger than the free pages of the database and the allocated blocks of its log.
        bench.add_many([{"command": "true " + "x" * 50_000}] * 100)
    assert "nothing was changed" in refused.value.line()
    assert len(bench.jobs()) == 1
    gate.touch()
    wait_for(lambda: bench.client.get("/v1/daemon")["running"])
    ballast.unlink()
    ended = bench.until(running)
    assert (ended["state"], ended["exit_code"]) == ("failed", 9)
    assert bench.until(bench.add("true"))["state"] == "done"


@needs_root
def test_a_nearly_full_disk_is_reported_on_submit_and_in_status(bench: Bench, small_disk: Path) -> None:
    bench.start()
    done = bench.cli("add", "true")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert f"dibs: the disk of {small_disk} is nearly full (" in done.stderr
    assert f"the disk of {small_disk} is nearly full (" in bench.cli("status").stderr
    assert "nearly full" in bench.client.get("/v1/jobs")["machine"]["disk"]
    assert "\nwarning  disk      the disk of" in bench.cli("doctor").stdout


@pytest.fixture
def cards(tmp_path: Path) -> world.World:
    """Two fake cards behind the real binding, in an order that is not that of their ids."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    made = world.World(world.build(folder), folder / "state.txt")
    made.is_now(
        "system driver=570.1 nvml=12.570 cuda=12080",
        "gpu 0 uuid=GPU-bbbbbbbb-0000-0000-0000-000000000001 name=NVIDIA_A100 total=85899345920 used=0 util=0 temp=31",
        "gpu 1 uuid=GPU-aaaaaaaa-0000-0000-0000-000000000000 name=NVIDIA_RTX_4090 total=25757220864 used=0 util=0",
    )
    return made


def test_jobs_get_the_uuids_of_real_cards(tmp_path: Path, cards: world.World) -> None:
    bench = Bench(tmp_path, devices="", DIBS_NVML_LIBRARY=str(cards.library), FAKE_NVML_STATE=str(cards.state))
    # In the foreground: a daemon that starts by itself does not get the variables of the fake driver.
    bench.home.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-P", "-m", "dibs.daemon"], env=bench.environ):
        try:
            wait_for(lambda: bench.pid() is not None)
            job = bench.add("echo $CUDA_VISIBLE_DEVICES $DIBS_GPU_INDICES", gpus=1, gpu_type="rtx*4090")
            assert bench.until(job)["gpu_ids"] == ["GPU-aaaaaaaa-0000-0000-0000-000000000000"]
            assert bench.log(job) == "GPU-aaaaaaaa-0000-0000-0000-000000000000 1\n"
            first = bench.client.get("/v1/gpus")["gpus"][0]
            assert (first["name"], first["memory_total"], first["temperature"]) == ("NVIDIA A100", 85899345920, 31)
        finally:
            bench.close()


def test_a_client_with_another_devices_setting_gets_an_error(bench: Bench) -> None:
    bench.start()
    bench.client.environ = bench.environ | {"DIBS_DEVICES": "fake:2"}
    with pytest.raises(DibsError) as told:
        bench.add("true")
    assert "dibs daemon restart" in told.value.line()


def test_a_machine_without_gpus_runs_jobs_without_gpus(tmp_path: Path) -> None:
    bench = Bench(tmp_path, devices="none")
    try:
        answer = bench.client.post("/v1/jobs", {"command": "true", "cwd": "/"})
        assert "no GPU" in answer["notes"][0]
        job = bench.until(answer["ids"][0])
        assert (job["state"], job["gpus"]) == ("done", 0)
        with pytest.raises(DibsError) as refused:
            bench.add("true", gpus=1)
        assert refused.value.exit_code == 69
        assert "DIBS_DEVICES=fake:4" in refused.value.line()
    finally:
        bench.close()


def test_the_daemon_inherits_few_variables_of_the_shell_that_started_it(bench: Bench) -> None:
    environ = bench.environ | {"CUDA_VISIBLE_DEVICES": "0", "SECRET_TOKEN": "x", "PYTHONPATH": "/nowhere"}
    connection.Client(bench.home, environ).start()
    seen = Path(f"/proc/{bench.pid()}/environ").read_bytes()
    for name in (b"CUDA_VISIBLE_DEVICES", b"SECRET_TOKEN", b"PYTHONPATH"):
        assert name not in seen
    assert b"DIBS_HOME" in seen


def test_cancel_ends_a_process_tree_that_resists(bench: Bench) -> None:
    """It forks twice, makes new sessions, ignores TERM and restarts itself."""
    script = bench.folder / "hydra.sh"
    script.write_text(
        "trap '' TERM HUP INT\n"
        "(setsid sh -c \"trap '' TERM; while :; do (sleep 30 &) ; sleep 0.05; done\" &)\n"
        "nohup sh -c 'while :; do sleep 0.05; done' >/dev/null 2>&1 &\n"
        "while :; do sleep 0.05; done\n"
    )
    job = bench.add(f"sh {script}", gpus=1)
    bench.until(job, "started")
    bench.cancel(job, grace_s=0.3)
    assert bench.until(job)["state"] == "cancelled"
    from dibs.system import processes

    assert list(processes.marked([f"DIBS_JOB_ID={job}".encode(), f"DIBS_HOME={bench.home}".encode()])) == []
    assert bench.free_devices() == [0, 1, 2, 3]


def test_leftover_processes_of_a_job_are_ended_and_named(bench: Bench) -> None:
    job = bench.add("setsid sleep 4242 >/dev/null 2>&1 & exit 5", gpus=1)
    ended = bench.until(job)
    assert (ended["state"], ended["exit_code"]) == ("failed", 5)
    (named,) = [event["detail"] for event in bench.events(job) if event["kind"] == "Leftovers"]
    assert "sleep" in named
    wait_for(bench.free_devices, lambda free: free == [0, 1, 2, 3])


def test_a_deleted_socket_is_detected_and_restored(bench: Bench) -> None:
    bench.start()
    job = bench.add("sleep 300", gpus=1)
    bench.until(job, "started")
    (bench.home / "dibs.sock").unlink()
    told = bench.cli("daemon", "status")
    assert told.returncode == 5
    assert "its socket is gone: dibs daemon restart" in told.stdout
    assert bench.cli("daemon", "restart").returncode == 0
    assert bench.job(job)["state"] == "running"


def test_a_writable_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "theirs").touch()
    shared.chmod(0o777)
    bench = Bench(tmp_path, DIBS_HOME=str(shared))
    told = bench.cli("status")
    assert told.returncode == 2
    assert "it was not changed" in told.stderr
    assert shared.stat().st_mode & 0o777 == 0o777


def test_an_explicit_start_is_restricted_by_the_visible_devices(bench: Bench) -> None:
    assert bench.cli("daemon", "start", environ={"CUDA_VISIBLE_DEVICES": "1,3"}).returncode == 0
    answer = bench.client.get("/v1/jobs")["machine"]
    assert answer["gpus"] == 2
    assert "CUDA_VISIBLE_DEVICES" in answer["restriction"]
    assert bench.until(bench.add("true", gpus=2))["gpu_ids"] == ["FAKE-1", "FAKE-3"]


def test_damage_found_in_a_large_database_ends_the_daemon_and_is_reported_first(bench: Bench) -> None:
    """A large file that was last used in this boot is checked in the background and not before use."""
    bench.start()
    job = bench.add("true", gpus=0)
    bench.until(job)
    bench.stop()
    path = paths.database(bench.home)
    with contextlib.closing(Store.open(path)) as store, store.batch():
        store.keep_script(b"x" * (database.SMALL_BYTES + 2**20))
    sound = path.read_bytes()
    # In the middle of the long text, which daily work never reads.
    page = len(sound) // 2 // 4096 * 4096
    path.write_bytes(sound[:page] + b"\xff" * 4096 + sound[page + 4096 :])
    with contextlib.suppress(DibsError):
        # Its check may be finished before the first request.
        bench.start()
    wait_for(lambda: (bench.home / "dibs.db-suspect").exists())
    wait_for(lambda: is_unlocked(paths.daemon_lock(bench.home)))
    with pytest.raises(DibsError, match="is damaged"):
        bench.start()
    path.write_bytes(sound)
    assert bench.job(job)["state"] == "done"
    assert not (bench.home / "dibs.db-suspect").exists()


def is_unlocked(path: Path) -> bool:
    """Return whether no daemon holds its lock."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
