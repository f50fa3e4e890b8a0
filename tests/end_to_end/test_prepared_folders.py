"""Jobs whose folders were prepared: the same files, each command once, whatever dies meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench, wait_for

MOST = 6


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, DIBS_PREPARED_FOLDERS=str(MOST))
    bench.start()
    yield bench
    bench.close()


def prepared(bench: Bench, pid: int | None) -> list[str]:
    """Return the names of folders that a daemon has ready."""
    return [name for name in os.listdir(bench.home / "spares") if name.startswith(f"{pid}.")]


def fill(bench: Bench) -> None:
    """Wait until the daemon has folders ready; it prepares them after its first start."""
    bench.until(bench.add("true"))
    wait_for(lambda: len(prepared(bench, bench.pid())) == MOST)


def test_a_burst_uses_the_folders_and_leaves_the_usual_files(bench: Bench) -> None:
    fill(bench)
    inodes = {os.stat(bench.home / "spares" / name).st_ino for name in prepared(bench, bench.pid())}
    jobs = bench.add_many([{"command": f"echo {number}"} for number in range(3 * MOST)])
    assert {job["state"] for job in bench.wait_all()} == {"done"}
    homes = [bench.home / "jobs" / str(job) for job in jobs]
    assert inodes <= {home.stat().st_ino for home in homes}
    for number, home in enumerate(homes):
        assert sorted(os.listdir(home)) == ["1", "checkpoint", "log"]
        assert sorted(os.listdir(home / "1")) == ["log", "started.1"]
        assert (home / "log").read_text() == f"{number}\n"
    # What was used is replaced.
    wait_for(lambda: len(prepared(bench, bench.pid())) == MOST)


def test_each_command_runs_once_although_daemons_are_killed(bench: Bench) -> None:
    trace = bench.folder / "trace"
    jobs = []
    for _ in range(4):
        fill(bench)
        jobs += bench.add_many([{"command": f"echo $DIBS_JOB_ID >> {trace}"}] * 2 * MOST)
        dead = bench.pid()
        bench.kill()
        bench.start()
        wait_for(lambda dead=dead: prepared(bench, dead) == [])
    assert {job["state"] for job in bench.wait_all()} == {"done"}
    assert sorted(map(int, trace.read_text().split())) == jobs


def test_scripts_retries_and_output_elsewhere_need_no_prepared_folder(bench: Bench) -> None:
    fill(bench)
    elsewhere = bench.add("echo out", output=str(bench.folder / "out"))
    retried = bench.add("exit $((2 - DIBS_ATTEMPT))", retries=1)
    assert [bench.until(job)["state"] for job in (elsewhere, retried)] == ["done", "done"]
    assert (bench.folder / "out").read_text() == "out\n"
    assert bench.job(retried)["attempt"] == 2
    assert sorted(os.listdir(bench.home / "jobs" / str(retried))) == ["1", "2", "checkpoint", "log"]


def test_a_daemon_that_stops_leaves_none(bench: Bench) -> None:
    fill(bench)
    bench.stop()
    assert [name for name in os.listdir(bench.home / "spares") if not name.startswith(".")] == []
