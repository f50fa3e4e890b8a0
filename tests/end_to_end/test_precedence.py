"""Without any time limit: a job for all GPUs waits, and short jobs use the free one meanwhile."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import Bench, wait_for


def seconds(job: dict[str, Any]) -> float:
    """Return how long a job has run."""
    end = datetime.fromisoformat(job["finished_at"]) if job["finished_at"] else datetime.now(UTC)
    return (end - datetime.fromisoformat(job["started_at"])).total_seconds()


def test_short_jobs_pass_a_job_that_waits_for_a_long_one(tmp_path: Path) -> None:
    with contextlib.closing(Bench(tmp_path, "fake:2")) as bench:
        took_s = [seconds(bench.until(bench.add("true", name="short", gpus=1))) for _ in range(3)]
        gate = tmp_path / "gate"
        long = bench.add(f"until [ -e {gate} ]; do sleep 0.1; done", name="long", gpus=1)
        # Those like it took less: it is expected to run as long again, and short ones to end before it.
        bench.until(long, "started")
        wait_for(lambda: [seconds(bench.job(long))], lambda ran_s: ran_s[0] > 2 * max(took_s) + 1)
        big = bench.add("true", gpus=2)
        for job_id in bench.add_many([{"command": "true", "name": "short", "gpus": 1}] * 3):
            assert bench.until(job_id)["state"] == "done"
        assert bench.job(big)["state"] == "queued"
        gate.touch()
        assert bench.until(big)["state"] == "done"
