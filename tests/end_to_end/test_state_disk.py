"""Problems with the disk of the state folder or with the clock: jobs can be stopped, nothing is deleted."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import Bench, wait_for
from dibs.errors import MachineError
from dibs.store import copies
from dibs.system import disk, paths

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@contextlib.contextmanager
def mounted(bench: Bench, *words: str) -> Iterator[Path]:
    """Put the state folder on a separate file system."""
    bench.home.mkdir(mode=0o700)
    subprocess.run(["mount", *words, bench.home], check=True)
    bench.home.chmod(0o700)
    try:
        yield bench.home
    finally:
        bench.close()
        subprocess.run(["umount", "--lazy", bench.home], check=True)


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Path]:
    """Put the state folder on a file system of ten megabytes."""
    with mounted(bench, "-t", "tmpfs", "-o", "size=10m,mode=700", "dibs-test") as home:
        yield home


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def exhaust(bench: Bench, filler: Path) -> list[int]:
    """Fill the disk and the reserve of the database, until nothing more can be stored; return some queued jobs."""
    bench.client.post("/v1/queue", {"paused": True})
    job, *spare = bench.add_many([{"command": "true", "gpus": 0}] * 60)
    changes = itertools.cycle(["hold", "unhold"])
    for change in (lambda: bench.add("true " + "x" * 20_000, gpus=0), lambda: act(bench, next(changes), job)):
        wait_for(lambda change=change: is_refused(change, filler))
    return spare


def is_unrecorded(bench: Bench, job: int, filler: Path) -> bool:
    fill(filler)
    return "not recorded yet" in bench.cancel(job).get("note", "")


def act(bench: Bench, verb: str, job: int) -> None:
    bench.client.post("/v1/jobs/actions", {"verb": verb, "select": [str(job)]})


def is_refused(change: Callable[[], object], filler: Path) -> bool:
    fill(filler)
    try:
        change()
    except MachineError:
        return True
    return False


@needs_root
def test_a_job_can_be_cancelled_on_a_full_disk(bench: Bench, small_disk: Path) -> None:
    """SQLite has no space left; the ballast makes room for the record."""
    bench.start()
    wait_for(lambda: (small_disk / "ballast").exists())
    bench.long_job(gpus=1)
    other = bench.long_job(gpus=1)
    exhaust(bench, small_disk / "filler")
    done = bench.cli("cancel", "--grace", "1s", str(other))
    assert (done.returncode, done.stdout.split()[0]) == (0, str(other)), done.stderr
    wait_for(lambda: bench.job(other)["state"] == "cancelled")
    assert not (small_disk / "ballast").exists()
    (small_disk / "filler").unlink()
    assert bench.add("true", gpus=0)


@needs_root
def test_a_job_is_stopped_even_if_the_ballast_does_not_help(bench: Bench, small_disk: Path) -> None:
    """Another process fills the disk as fast as it is freed: the job ends at once, the record follows by itself."""
    bench.start()
    wait_for(lambda: (small_disk / "ballast").exists())
    bench.long_job(gpus=1)
    other = bench.long_job(gpus=1)
    (small_disk / "ballast").unlink()
    queued = exhaust(bench, small_disk / "filler")
    # A cancel needs less space than what was refused until now, and that of one running job the least.
    assert any(is_unrecorded(bench, each, small_disk / "filler") for each in queued)
    done = bench.cli("cancel", "-y", "--grace", "1s", "all")
    assert done.returncode == 0, done.stderr
    assert "not recorded yet" in done.stderr
    wait_for(bench.free_devices, lambda free: len(free) == 4)
    (small_disk / "filler").unlink()
    assert bench.until(other)["state"] == "cancelled"


@needs_root
def test_a_cancel_recorded_later_spares_newer_jobs(bench: Bench, small_disk: Path) -> None:
    """It is for the jobs that its selector matched when it was asked for."""
    bench.start()
    wait_for(lambda: (small_disk / "ballast").exists())
    job = bench.long_job(gpus=1)
    (small_disk / "ballast").unlink()
    exhaust(bench, small_disk / "filler")
    assert "not recorded yet" in bench.cancel("unfinished", grace_s=1)["note"]
    (small_disk / "filler").unlink()
    newer = bench.add("true", gpus=0)
    assert bench.until(job)["state"] == "cancelled"
    wait_for(lambda: bench.jobs("queued"), lambda queued: [one["id"] for one in queued] == [newer])


@needs_root
def test_a_read_on_a_frozen_disk_is_answered_with_an_error_that_names_the_disk(bench: Bench, tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(64 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted(bench, "-o", "loop", str(image)):
        bench.start()
        bench.client.post("/v1/queue", {"paused": True})
        job = bench.add("true", gpus=0)
        changes = itertools.cycle(["hold", "unhold"])
        # A reader blocks if it must update the shared index of the log.
        seen, took_s = wait_for(lambda: read_frozen(bench, lambda: act(bench, next(changes), job)), lambda it: it[0])
        assert f"the disk of {bench.home} does not answer" in seen
        assert took_s < 30
        assert bench.job(job)["state"] in ("held", "queued")


def read_frozen(bench: Bench, change: Callable[[], object]) -> tuple[str, float]:
    """Commit a change, read while the disk is frozen, and return the refusal and how long it took."""
    change()
    subprocess.run(["fsfreeze", "--freeze", bench.home], check=True)
    began = time.monotonic()
    try:
        return refusal(bench), time.monotonic() - began
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", bench.home], check=True)


def refusal(bench: Bench) -> str:
    """Return the error of the list of jobs; empty if there is none."""
    try:
        bench.jobs()
    except MachineError as error:
        return error.line()
    return ""


# -- copies


def made(bench: Bench) -> list[Path]:
    return copies.numbered(paths.database(bench.home))


def test_a_clean_stop_makes_a_copy_if_something_changed(bench: Bench) -> None:
    bench.until(bench.add("true", gpus=0))
    bench.stop()
    (copy,) = made(bench)[-1:]
    bench.start()
    bench.stop()
    assert made(bench)[-1] == copy
    assert copies.look(copy).jobs == 1


def test_a_daemon_that_is_always_killed_still_makes_copies(bench: Bench) -> None:
    """The hour counts from the last copy, not from the start of the daemon."""
    job = bench.add("true", gpus=0)
    bench.until(job)
    wait_for(lambda: made(bench))
    bench.kill()
    first = made(bench)[-1]
    os.utime(first, (time.time() - 2 * copies.EVERY_S,) * 2)
    bench.start()
    bench.until(bench.add("true", gpus=0))
    bench.kill()
    bench.start()
    wait_for(lambda: made(bench)[-1] != first or made(bench)[-1].stat().st_mtime > time.time() - copies.EVERY_S)


# -- the clock

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(which, now);
    if (which == CLOCK_REALTIME) now->tv_sec += 365L * 24 * 3600;
    return code;
}
"""


@pytest.fixture
def year_ahead(tmp_path: Path) -> str:
    """A library that sets the clock of a process a year ahead."""
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)


@contextlib.contextmanager
def foreground(bench: Bench, **environ: str) -> Iterator[None]:
    """Run a daemon with variables that an automatically started one does not get."""
    with subprocess.Popen([sys.executable, "-P", "-m", "dibs.daemon"], env=bench.environ | environ) as process:
        try:
            wait_for(lambda: bench.pid() is not None)
            yield
        finally:
            process.terminate()
            process.wait(60)


def test_a_clock_that_is_a_year_ahead_deletes_no_job(bench: Bench, year_ahead: str) -> None:
    bench.environ["DIBS_KEEP_FOR"] = "1h"
    for _ in range(10):
        bench.until(bench.add("true", gpus=0))
    bench.stop()
    with foreground(bench, LD_PRELOAD=year_ahead):
        job = bench.add("true", gpus=0)
        bench.until(job)
        assert bench.job(job)["submitted_at"] > time.strftime("%Y-%m-%d", time.gmtime(time.time() + 300 * 86400))
        # Cleanup at the start comes before the copy that is due by this clock, or after it: both were awaited.
        bench.until(bench.add("true", gpus=0))
        assert len(bench.jobs()) == 12
    assert len(bench.jobs()) == 12


def test_jobs_are_deleted_when_daemons_have_run_for_that_long(bench: Bench) -> None:
    bench.environ["DIBS_KEEP_FOR"] = "1s"
    bench.until(bench.add("true", gpus=0))

    def are_deleted() -> bool:
        bench.stop()
        bench.start()
        return not bench.client.get("/v1/queue")["counts"]["done"]

    wait_for(are_deleted)


def test_the_ballast_is_made_once_and_released_once(tmp_path: Path) -> None:
    ballast = disk.Ballast(tmp_path)
    ballast.fill()
    ballast.fill()
    assert (tmp_path / "ballast").stat().st_blocks * 512 >= disk.BALLAST_BYTES
    assert ballast.release()
    assert not ballast.release()
