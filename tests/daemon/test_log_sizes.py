"""The sizes of the logs of running jobs are noted, and the API tells when lines were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from dibs.daemon.log_sizes import LogSizes
from dibs.engines.job_files import JobFiles
from dibs.errors import NotFound
from dibs.logs import write_times
from dibs.model import serialization
from dibs.store import writer
from dibs.system import paths


def times(queue: Bench, job_id: int) -> list[tuple[int, int]]:
    """Return the marks of a job's log, in milliseconds."""
    marks = queue.client.get(f"/v1/jobs/{job_id}/log/times")["marks"]
    return [(serialization.parse_moment(mark["at"]), mark["size"]) for mark in marks]


def look(queue: Bench, sizes: LogSizes) -> None:
    """Do what the daemon does with every safety tick."""
    files = JobFiles(Path(queue.home), Path(queue.home))
    reader = writer.Reader.open(paths.database(Path(queue.home)))
    try:
        sizes.look(files, [job for job in reader.active() if job.started_at is not None])
    finally:
        reader.close()


def printed(queue: Bench, job_id: int, text: str) -> None:
    wait_for(lambda: text in queue.log(job_id))


def test_lines_are_between_the_looks_at_a_growing_log(bench: Bench) -> None:
    gate = bench.folder / "gate"
    job_id = bench.add(f"echo first; until [ -e {gate} ]; do sleep 0.05; done; echo second; exec sleep 600", gpus=0)
    bench.until(job_id, "started")
    printed(bench, job_id, "first")
    sizes = LogSizes()
    look(bench, sizes)
    file = Path(bench.home) / "jobs" / str(job_id) / "1" / "stdout.times"
    assert [size for _, size in write_times.read(str(file))] == [6]
    # A log that has not grown costs no byte.
    look(bench, sizes)
    assert file.stat().st_size == write_times.MARK.size
    gate.touch()
    printed(bench, job_id, "second")
    look(bench, sizes)
    assert [size for _, size in write_times.read(str(file))] == [6, 13]
    marks = times(bench, job_id)
    started = serialization.parse_moment(bench.job(job_id)["started_at"])
    assert marks[0] == (started, 0)
    assert [size for _, size in marks] == [0, 6, 13]
    assert [at for at, _ in marks] == sorted(at for at, _ in marks)
    bench.cancel(job_id, grace_s=0)


def test_a_short_job_has_its_start_and_its_last_change(bench: Bench) -> None:
    job_id = bench.add("echo hello", gpus=0)
    job: dict[str, Any] = bench.until(job_id)
    (began, zero), (ended, size) = times(bench, job_id)
    assert (zero, size) == (0, 6)
    assert serialization.parse_moment(job["started_at"]) == began <= ended
    assert ended <= serialization.parse_moment(job["finished_at"])
    assert not (Path(bench.home) / "jobs" / str(job_id) / "1" / "stdout.times").exists()


def test_of_a_file_that_may_have_held_something_no_start_is_claimed(bench: Bench) -> None:
    (bench.folder / "own.log").write_text("before\n")
    job_id = bench.add("echo hello", gpus=0, output="own.log")
    bench.until(job_id)
    assert [size for _, size in times(bench, job_id)] == [13]
    waiting = bench.add("true", gpus=0, hold=True)
    assert times(bench, waiting) == []
    with pytest.raises(NotFound, match="has no attempt 7"):
        bench.client.get(f"/v1/jobs/{job_id}/log/times", [("attempt", "7")])
