"""Jobs that record what happened to them, and checks that compare that with the state of the queue.

The jobs write their own history, independently of dibs.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FINISHED = ("done", "failed", "cancelled", "timeout", "lost")


@dataclass(frozen=True)
class Run:
    """One real run of a command. `ended_ns` is None if it never reached its end."""

    job: int
    attempt: int
    devices: tuple[str, ...]
    began_ns: int
    ended_ns: int | None


def command(trace: Path, code: int = 0, seconds: float = 0.02) -> str:
    """Return a shell command that records its start, its end and its devices, and exits with `code`."""
    line = '$DIBS_JOB_ID $DIBS_ATTEMPT "$CUDA_VISIBLE_DEVICES" $(date +%s%N)'
    return f"echo B {line} >> {trace}; sleep {seconds}; echo E {line} >> {trace}; exit {code}"


def runs(trace: Path) -> list[Run]:
    """Return all runs in a trace, in order of start."""
    began: list[tuple[int, int, tuple[str, ...], int]] = []
    ended: dict[tuple[int, int], int] = {}
    for line in trace.read_text().splitlines() if trace.exists() else []:
        words = line.split()
        kind, job, attempt, at = words[0], int(words[1]), int(words[2]), int(words[-1])
        devices = tuple(words[3].split(",")) if len(words) == 5 else ()
        if kind == "B":
            began.append((job, attempt, devices, at))
        else:
            ended[job, attempt] = at
    return [Run(job, attempt, devices, at, ended.get((job, attempt))) for job, attempt, devices, at in began]


def check_once_each(found: list[Run]) -> None:
    """Check that no attempt ran twice."""
    seen = defaultdict(int)
    for run in found:
        seen[run.job, run.attempt] += 1
    assert {key: times for key, times in seen.items() if times > 1} == {}


def check_no_overlap(found: list[Run]) -> None:
    """Check that no two runs used one device at the same time."""
    by_device: dict[str, list[Run]] = defaultdict(list)
    for run in found:
        for device in run.devices:
            by_device[device].append(run)
    for device, users in by_device.items():
        users.sort(key=lambda run: run.began_ns)
        for first, second in itertools.pairwise(users):
            assert first.ended_ns is not None, f"{first} never ended, yet {second} began on {device}"
            assert first.ended_ns <= second.began_ns, f"{first} and {second} overlap on {device}"


def check_results(jobs: list[dict[str, Any]], codes: dict[int, int], found: list[Run], lost: int = 0) -> None:
    """Check that every job is finished, ran exactly once, and has its exit code; at most `lost` may be lost."""
    ran = {run.job for run in found}
    assert {job["id"] for job in jobs} >= set(codes), "an accepted job is gone"
    missing = [job for job in jobs if job["state"] not in FINISHED]
    assert missing == []
    gone = [job["id"] for job in jobs if job["state"] == "lost"]
    assert len(gone) <= lost, f"lost: {gone}"
    for job in jobs:
        if job["state"] == "lost":
            continue
        expected = codes.get(job["id"])
        if expected is not None:
            assert job["id"] in ran, f"job {job['id']} is {job['state']} but never ran"
            assert (job["state"], job["exit_code"]) == ("failed" if expected else "done", expected)
