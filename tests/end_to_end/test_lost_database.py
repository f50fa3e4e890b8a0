"""A database that is deleted, emptied, truncated or replaced: that is detected and repaired, and no id is reused."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench, Starter, wait_for
from dibs.errors import DibsError, MachineError, NoDaemon
from dibs.store import copies
from dibs.system import paths


def remove(bench: Bench, *ends: str) -> None:
    """Delete the database, its log and its index, or those of them that are named."""
    for end in ends or ("", "-wal", "-shm"):
        (bench.home / f"dibs.db{end}").unlink()


def gated(bench: Bench, name: str, code: int = 0) -> tuple[str, Path]:
    """Return a command that runs until a file exists, and the file."""
    gate = bench.folder / name
    return f"while [ ! -e {gate} ]; do sleep 0.01; done; exit {code}", gate


def repair(bench: Bench) -> str:
    done = bench.cli("doctor", "--repair", "-y")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_id_is_given_after_the_database_was_deleted_and_a_restart_restores_all(bench: Bench) -> None:
    bench.start()
    jobs = [bench.add("true", gpus=0) for _ in range(3)]
    bench.wait_all()
    remove(bench)
    added = bench.cli("add", "-g0", "true")
    assert (added.returncode, added.stdout) == (125, "")
    assert f"{paths.database(bench.home)} or its log was deleted or replaced while the daemon used it" in added.stderr
    assert "dibs daemon restart" in added.stderr
    assert "was deleted or replaced" in bench.cli("status").stderr
    told = bench.cli("doctor")
    assert told.returncode == 1
    assert "problem  database" in told.stdout
    assert bench.cli("daemon", "restart").returncode == 0
    assert [(job["id"], job["state"]) for job in bench.jobs()] == [(job, "done") for job in jobs]
    assert bench.add("true", gpus=0) == jobs[-1] + 1
    assert not copies.saved(paths.database(bench.home)).exists()


def test_a_job_can_be_stopped_although_the_database_was_deleted(bench: Bench) -> None:
    job = bench.long_job(gpus=1)
    remove(bench)
    done = bench.cli("cancel", str(job))
    assert (done.returncode, done.stdout.split()[:2]) == (0, [str(job), "stopping:"])
    assert "not recorded yet (the database was deleted)" in done.stderr
    wait_for(bench.free_devices, lambda free: free == [0, 1, 2, 3])
    bench.cli("daemon", "restart")
    assert bench.until(job)["state"] == "cancelled"


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/jobs/1", [("until", "finished")]),
        ("/v1/jobs/wait", [("select", "1"), ("seen", "0")]),
        ("/v1/jobs/changes", [("since", "1000")]),
    ],
)
def test_waiting_for_a_job_ends_with_an_error_if_the_database_was_deleted(
    bench: Bench, path: str, query: list[tuple[str, str]]
) -> None:
    """Its end cannot be recorded."""
    command, gate = gated(bench, "gate")
    bench.until(bench.add(command, gpus=0), "started")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(bench.client.get, path, [*query, ("wait_s", "20")])
        remove(bench)
        gate.touch()
        with pytest.raises(MachineError, match="was deleted or replaced"):
            waiting.result(PATIENCE_S)
    assert bench.job(1)["state"] == "running"
    assert bench.cli("follow", "1").returncode == 125
    bench.cli("daemon", "restart")
    assert bench.until(1)["state"] == "done"


def test_a_deleted_database_is_logged_once(bench: Bench) -> None:
    job = bench.long_job(gpus=1)
    remove(bench)
    bench.cancel(job)
    wait_for(bench.free_devices, lambda free: free == [0, 1, 2, 3])
    for _ in range(3):
        with pytest.raises(MachineError):
            bench.add("true", gpus=0)
    lines = paths.daemon_log(bench.home).read_text().splitlines()
    assert len([line for line in lines if "was deleted or replaced" in line]) == 1


def test_jobs_running_when_the_database_is_deleted_survive_a_crash_too(bench: Bench) -> None:
    command, gate = gated(bench, "gate", code=7)
    job = bench.add(command, gpus=1)
    bench.until(job, "started")
    remove(bench)
    with pytest.raises(MachineError):
        bench.add("true", gpus=0)
    bench.kill()
    gate.touch()
    bench.start()
    assert bench.until(job)["exit_code"] == 7


def test_a_state_folder_that_was_moved_away_and_back_is_used_again(bench: Bench) -> None:
    """What happened meanwhile is recorded afterwards, without a restart: a job ended, and one was stopped."""
    command, gate = gated(bench, "gate", code=7)
    job, stopped = bench.add(command, gpus=1), bench.add("sleep 1000", gpus=1)
    for each in (job, stopped):
        bench.until(each, "started")
    pid = bench.pid()
    away = bench.folder / "away"
    bench.home.rename(away)
    gate.touch()
    moved = Starter(away, bench.environ | {"DIBS_HOME": str(away)})
    with pytest.raises(MachineError, match=r"dibs\.db or its log is out of reach"):
        moved.post("/v1/jobs/actions", {"verb": "hold", "select": [str(job)]})
    moved.post("/v1/jobs/actions", {"verb": "cancel", "select": [str(stopped)]})
    assert "out of reach" in bench.cli("status", environ={"DIBS_HOME": str(away)}).stderr
    away.rename(bench.home)
    assert bench.until(job)["exit_code"] == 7
    assert bench.until(stopped)["state"] == "cancelled"
    assert bench.until(bench.add("true", gpus=0))["state"] == "done"
    assert bench.cli("status").stderr == ""
    assert bench.pid() == pid


def test_a_deleted_state_folder_is_restored_by_the_next_command(bench: Bench) -> None:
    """The daemon cannot be reached any more: it saves what it knows, and ends."""
    command, gate = gated(bench, "gate")
    done, waiting = bench.add("true", gpus=0), bench.add("true", gpus=0, hold=True)
    bench.until(done)
    job = bench.add(command, gpus=1)
    bench.until(job, "started")
    shutil.rmtree(bench.home)
    gate.touch()
    assert bench.client.daemons[0].wait() == MachineError.exit_code
    assert bench.cli("status").returncode == 0
    states = {found["id"]: found["state"] for found in bench.jobs()}
    assert states == {done: "done", waiting: "held", job: "lost"}
    assert bench.add("true", gpus=0) == job + 1


def test_a_deleted_state_folder_is_repaired_although_a_new_queue_began(bench: Bench) -> None:
    """The new jobs have the same ids; their folders must not be taken for those of the old jobs."""
    command, gate = gated(bench, "gate")
    job, waiting = bench.add(command, gpus=1, name="old"), bench.add("true", gpus=0, hold=True)
    bench.until(job, "started")
    shutil.rmtree(bench.home)
    assert bench.until(bench.add("true", gpus=0, name="new"))["id"] == job
    gate.touch()
    assert bench.client.daemons[0].wait() == MachineError.exit_code
    assert bench.until(bench.add("true", gpus=0))["state"] == "done"
    told = bench.cli("doctor").stdout
    assert "`dibs doctor --repair` restores them" in told
    repair(bench)
    assert [(found["id"], found["name"], found["state"]) for found in bench.jobs()] == [
        (job, "old", "lost"),
        (waiting, "true", "held"),
    ]
    assert "problem  database" not in bench.cli("doctor").stdout


@pytest.mark.parametrize("is_emptied", [True, False])
def test_a_missing_or_empty_database_is_not_a_new_queue(bench: Bench, is_emptied: bool) -> None:
    """A job runs and holds a GPU, one ended since the copy, one waits; all are found again."""
    first, gate = gated(bench, "first", code=3)
    ended = bench.add("exit 4", gpus=0)
    bench.until(ended)
    running = bench.add(first, gpus=1, name="long")
    bench.until(running, "started")
    bench.stop()
    bench.start()
    after, late_gate = gated(bench, "second", code=5)
    late = bench.add(after, gpus=1, name="late", project="cats")
    bench.until(late, "started")
    waiting = bench.add("true", gpus=4)
    bench.kill()
    remove(bench)
    if is_emptied:
        (bench.home / "dibs.db").touch()
    with pytest.raises(NoDaemon) as refused:
        bench.start()
    assert "the queue is missing" in refused.value.line()
    assert "dibs doctor --repair" in refused.value.line()
    assert bench.cli("add", "-g0", "true").returncode == 5
    assert "problem  database" in bench.cli("doctor").stdout

    unsure = bench.cli("doctor", "--repair")
    assert unsure.returncode == 2
    assert "-y answers yes" in unsure.stderr
    assert "1 running and 0 finished jobs found in their folders" in repair(bench)
    assert bench.job(ended)["exit_code"] == 4
    assert bench.job(running)["state"] == "running"
    found = bench.job(late)
    assert (found["state"], found["name"], found["project"], found["gpu_ids"]) == (
        "running",
        "late",
        "cats",
        ["FAKE-1"],
    )
    assert waiting not in [job["id"] for job in bench.jobs()]
    assert bench.free_devices() == [2, 3]
    assert bench.add("true", gpus=0) > late
    gate.touch()
    late_gate.touch()
    assert bench.until(running)["exit_code"] == 3
    assert bench.until(late)["exit_code"] == 5


def test_without_a_copy_the_queue_is_rebuilt_from_the_job_folders(bench: Bench) -> None:
    command, gate = gated(bench, "gate", code=6)
    bench.start()
    ended = bench.add("echo kept; exit 9", gpus=0)
    bench.until(ended)
    lost = bench.long_job(gpus=0)
    running = bench.add(command, gpus=2)
    bench.until(running, "started")
    shim = int((bench.home / "jobs" / str(lost) / "1" / "started.1").read_bytes().split()[1])
    bench.kill()
    os.kill(shim, signal.SIGKILL)
    remove(bench)
    shutil.rmtree(bench.home / "backups", ignore_errors=True)
    repair(bench)
    seen = bench.job(ended)
    assert (seen["state"], seen["exit_code"], bench.log(ended)) == ("failed", 9, "kept\n")
    assert bench.job(running)["state"] == "running"
    assert len(bench.job(running)["gpu_ids"]) == 2
    gate.touch()
    assert bench.until(running)["exit_code"] == 6
    bench.cancel(lost, grace_s=0)
    assert bench.until(lost)["state"] in ("lost", "cancelled")


def test_a_log_deleted_after_a_crash_is_detected(bench: Bench) -> None:
    """SQLite opens the older file without an error."""
    command, gate = gated(bench, "gate", code=8)
    bench.start()
    job = bench.add(command, gpus=1)
    bench.until(job, "started")
    bench.kill()
    remove(bench, "-wal")
    with pytest.raises(NoDaemon) as refused:
        bench.start()
    assert f"{paths.database(bench.home)}-wal is gone" in refused.value.line()
    repair(bench)
    assert bench.job(job)["state"] == "running"
    assert bench.add("true", gpus=0) > job
    gate.touch()
    assert bench.until(job)["exit_code"] == 8


def test_a_database_that_was_opened_with_sqlite_after_a_crash_is_used(bench: Bench) -> None:
    """SQLite copies the log into the file and removes it when the last connection is closed."""
    job = bench.add("true", gpus=0)
    bench.until(job)
    bench.kill()
    with contextlib.closing(sqlite3.connect(paths.database(bench.home))) as other:
        assert other.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    assert not (bench.home / "dibs.db-wal").exists()
    assert "problem  database" not in bench.cli("doctor").stdout
    bench.start()
    assert bench.job(job)["state"] == "done"
    assert bench.add("true", gpus=0) == job + 1


def test_ids_given_after_a_copy_are_not_reused(bench: Bench) -> None:
    """The copy is restored by hand, and the later jobs had no folders."""
    bench.start()
    bench.cli("pause")
    bench.add("true", gpus=0)
    bench.stop()
    copy = copies.numbered(paths.database(bench.home))[-1]
    kept = copy.read_bytes()
    bench.start()
    given = bench.add_many([{"command": "true"}] * 50, gpus=0)
    bench.kill()
    remove(bench)
    paths.database(bench.home).write_bytes(kept)
    assert bench.add("true", gpus=0) > max(given)


def test_jobs_queued_in_an_older_copy_are_held(bench: Bench) -> None:
    """They may have been cancelled since."""
    bench.start()
    bench.cli("pause")
    job = bench.add("true", gpus=0)
    bench.stop()
    bench.start()
    bench.cancel(job)
    bench.kill()
    remove(bench)
    assert "1 queued jobs are held: dibs unhold all" in repair(bench)
    bench.cli("resume")
    assert bench.job(job)["state"] == "held"
    told = bench.cli("why", str(job)).stdout
    assert told.startswith(f"job {job}: held: the queue was restored from a copy.")
    assert f"`dibs unhold {job}`" in told
    assert "restored from a copy" in bench.cli("doctor").stdout
    bench.cli("unhold", "all")
    assert bench.until(job)["state"] == "done"
    assert "restored from a copy" not in bench.cli("doctor").stdout


def test_a_crash_at_the_start_of_a_session_loses_nothing(bench: Bench) -> None:
    """Before, between and after the writes of the marker and of the database."""
    bench.start()
    job = bench.add("true", gpus=0)
    bench.until(job)
    for point in ("core:commit:1", "core:commit:2", "core:committed:1", "core:committed:2"):
        bench.kill()
        with pytest.raises(DibsError):
            bench.start(DIBS_CRASH=point)
        bench.start()
        assert bench.until(job)["state"] == "done"
        assert bench.add("true", gpus=0) == job + 1
        job += 1


def test_two_crashes_at_the_start_of_a_session_hold_no_job(bench: Bench) -> None:
    """After the commit, then before the next one: the marker must not be two sessions behind the database."""
    bench.start()
    bench.cli("pause")
    job = bench.add("true", gpus=0)
    bench.kill()
    for point in ("core:committed:1", "core:commit:1"):
        with pytest.raises(DibsError):
            bench.start(DIBS_CRASH=point)
    bench.start()
    assert bench.job(job)["state"] == "queued"


def test_a_database_that_the_disk_refuses_to_open_is_not_missed_afterwards(bench: Bench) -> None:
    """Closing it removes its log, which must not look like a loss."""
    job = bench.add("true", gpus=0)
    bench.until(job)
    bench.kill()
    # A check of the whole file ends with the deletion of this name, which now fails.
    in_the_way = bench.home / "dibs.db-suspect"
    in_the_way.mkdir()
    with pytest.raises(DibsError):
        bench.start()
    in_the_way.rmdir()
    bench.start()
    assert bench.job(job)["state"] == "done"


def test_one_unreadable_folder_does_not_block_a_restored_queue(bench: Bench) -> None:
    bench.start()
    bad, good = (bench.add(f"exit {code}", gpus=0) for code in (3, 4))
    bench.wait_all()
    bench.kill()
    remove(bench)
    shutil.rmtree(bench.home / "backups", ignore_errors=True)
    record = bench.home / "jobs" / str(bad) / "1" / "started.1"
    record.rename(record.with_name("x"))
    record.symlink_to("x")
    assert f"1 finished jobs found in their folders; unreadable folders (see daemon.log): {bad}" in repair(bench)
    assert [(job["id"], job["exit_code"]) for job in bench.jobs()] == [(good, 4)]
    assert f"job {bad}: " in (bench.home / "daemon.log").read_text()


def test_a_damaged_database_is_replaced_by_the_copy(bench: Bench) -> None:
    job = bench.add("true", gpus=0)
    bench.until(job)
    bench.stop()
    paths.database(bench.home).write_bytes(b"garbage " * 4096)
    with pytest.raises(NoDaemon) as refused:
        bench.start()
    assert "is damaged" in refused.value.line()
    assert "dibs doctor --repair" in refused.value.line()
    repair(bench)
    assert bench.job(job)["state"] == "done"
    assert bench.cli("doctor", "--repair").stdout == "nothing to repair\n"
