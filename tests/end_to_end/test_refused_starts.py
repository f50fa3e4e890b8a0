"""Trouble of the machine, or of another user's making, costs no job: starts are refused, jobs wait, and all finish."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from dibs.system import paths, processes
from fakes.faults.broken_calls import BrokenCalls

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and limits of other processes need root")

#: Jobs that wait while the trouble lasts.
MANY = 300
#: Refused starts until the trouble is removed.
TRIES = 3


def submit_many(bench: Bench, **wanted: Any) -> list[int]:
    """Queue many short jobs without retries, most of them with a GPU."""
    return bench.add_many(
        [{"command": "true", "gpus": int(number % 4 > 0)} for number in range(MANY)], retries=0, **wanted
    )


def refusals(bench: Bench) -> int:
    """Return how often the machine refused to start something."""
    return paths.daemon_log(bench.home).read_text().count("a start was refused: ")


def wait_for_reason(bench: Bench, job: int, words: str) -> str:
    """Wait until `why` names the trouble; return all that it says."""
    return wait_for(lambda: bench.reason(job), lambda reason: words in reason)


def check_all_done(bench: Bench) -> None:
    """Let everything finish: no job failed, none used a second attempt."""
    jobs = bench.wait_all(300)
    assert {(job["state"], job["attempt"]) for job in jobs} == {("done", 1)}
    assert bench.client.get("/v1/gpus")["starts"] is None


def survive(bench: Bench, words: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
    """Queue jobs into a trouble, see it named everywhere, remove it, and see all jobs finish."""
    begin()
    ids = submit_many(bench)
    wait_for(lambda: refusals(bench), lambda count: count >= TRIES)
    reason = wait_for_reason(bench, ids[-1], words)
    assert "starts are paused: " in reason
    assert words in wait_for(lambda: bench.cli("status", "queued").stderr, lambda text: "paused" in text)
    assert words in wait_for(lambda: bench.cli("gpus").stderr, lambda text: "paused" in text)
    assert bench.client.get("/v1/queue")["counts"]["failed"] == 0
    end()
    check_all_done(bench)


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """Mount a small file system at a folder."""
    folder.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "dibs-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def use_up_inodes(folder: Path) -> Callable[[], None]:
    """Create files until the file system has no inode left; return how to remove them."""
    made: list[Path] = []
    with pytest.raises(OSError, match="No space left on device"):
        while True:
            path = folder / f"filler.{len(made)}"
            path.touch()
            made.append(path)

    def remove() -> None:
        for path in made:
            path.unlink()

    return remove


@pytest.fixture
def files_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own for logs and checkpoints."""
    with small_disk(tmp_path / "files", "size=64m,nr_inodes=3000"):
        yield tmp_path / "files"


@needs_root
def test_jobs_survive_a_log_disk_without_inodes(tmp_path: Path, files_disk: Path) -> None:
    bench = Bench(tmp_path, DIBS_FILES=str(files_disk))
    with contextlib.closing(bench):
        bench.start()
        remove: list[Callable[[], None]] = []
        survive(
            bench,
            "No space left on device",
            lambda: remove.append(use_up_inodes(files_disk)),
            lambda: remove[0](),
        )


@needs_root
def test_jobs_survive_a_state_disk_without_inodes(tmp_path: Path) -> None:
    """Not even a claim can be made then, nor a tombstone."""
    bench = Bench(tmp_path)
    with small_disk(bench.home, "size=64m,nr_inodes=4000,mode=700"), contextlib.closing(bench):
        bench.start()
        remove: list[Callable[[], None]] = []
        survive(
            bench,
            "No space left on device",
            lambda: remove.append(use_up_inodes(bench.home)),
            lambda: remove[0](),
        )


@needs_root
def test_jobs_survive_a_lease_disk_that_is_full_before_their_lease_files_are_made(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with small_disk(bench.leases, "size=1m,nr_inodes=64,mode=1777"), contextlib.closing(bench):
        bench.start()
        remove = use_up_inodes(bench.leases)
        ids = bench.add_many([{"command": "true", "gpus": 1}] * MANY, retries=0)
        wait_for(lambda: refusals(bench), lambda count: count >= TRIES)
        reason = wait_for_reason(bench, ids[-1], "No space left on device")
        assert str(bench.leases) in reason
        (shown,) = {gpu["fault"] for gpu in bench.client.get("/v1/gpus")["gpus"] if gpu["fault"]}
        assert "No space left on device" in shown
        # Without a GPU nothing is in the way.
        assert bench.until(bench.add("true", gpus=0))["state"] == "done"
        remove()
        check_all_done(bench)


@pytest.mark.parametrize(
    ("call", "number"),
    [("link", errno.EIO), ("link", errno.ENOSPC), ("flock", errno.ENOLCK), ("flock", errno.EIO)],
)
def test_jobs_survive_system_calls_that_fail(tmp_path: Path, bench: Bench, call: str, number: int) -> None:
    calls = BrokenCalls(tmp_path)
    bench.start(**calls.environ)
    survive(bench, os.strerror(number), lambda: calls.fail(call, number), calls.work)


def limit(kind: int, most: int, pids: list[int]) -> list[tuple[int, tuple[int, int]]]:
    """Lower a limit of processes; return the old ones."""
    return [(pid, resource.prlimit(pid, kind, (most, resource.prlimit(pid, kind)[1]))) for pid in pids]


@needs_root
def test_jobs_survive_a_daemon_without_descriptors(bench: Bench) -> None:
    bench.start()
    assert bench.until(bench.add("true", gpus=1))["state"] == "done"
    pid = bench.pid()
    assert pid is not None
    old: list[tuple[int, tuple[int, int]]] = []

    def begin() -> None:
        # Enough for connections of clients, too few for a runner.
        used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
        old.extend(limit(resource.RLIMIT_NOFILE, used + 3, [pid]))

    def end() -> None:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, old[0][1])

    survive(bench, "Too many open files", begin, end)


@needs_root
def test_jobs_survive_a_limit_of_descriptors_below_those_of_their_leases(bench: Bench) -> None:
    """Started with `ulimit -n 40`: no command can inherit its leases, which are on higher numbers."""
    bench.start()
    pid = bench.pid()
    assert pid is not None
    before = [(pid, resource.prlimit(pid, resource.RLIMIT_NOFILE))]

    def begin() -> None:
        # The launcher, and with it every runner, inherits the limit.
        bench.until(bench.add("true", gpus=1))
        for proc in processes.descendants(pid):
            before.extend(limit(resource.RLIMIT_NOFILE, 40, [proc.pid]))

    def end() -> None:
        for each, old in before:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(each, resource.RLIMIT_NOFILE, old)
        for proc in processes.descendants(pid):
            resource.prlimit(proc.pid, resource.RLIMIT_NOFILE, before[0][1])

    survive(bench, "Too many open files", begin, end)
