"""Submitting a sweep while everything is killed: the client that sends its points, and the daemon that stores them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from bench import Bench, wait_for


def begin(bench: Bench, *words: str) -> subprocess.Popen[bytes]:
    """Start a client in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "dibs", *words],
        env=bench.environ,
        cwd=bench.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kept(bench: Bench) -> int:
    """Return the number of jobs."""
    return sum(bench.client.get("/v1/queue")["counts"].values())


def test_every_point_is_stored_once_even_if_client_or_daemon_is_killed(bench: Bench) -> None:
    count = 12_000
    words = ["sweep", "true {a} {b}", "-p", "a=range(120)", "-p", "b=range(100)", "--name", "big", "--hold"]
    bench.start()
    client = begin(bench, *words)
    try:
        wait_for(lambda: kept(bench) > 0)
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    assert kept(bench) % 2000 == 0, "a part was kept in part"
    client = begin(bench, *words)
    try:
        before = kept(bench)
        wait_for(lambda: kept(bench), lambda now: now > before or client.poll() is not None)
    finally:
        bench.kill()
        client.wait()
    bench.start()
    told = json.loads(bench.cli(*words, "--json").stdout)
    assert (told["points"], told["new"] + told["held"]) == (count, count)
    runs = bench.client.get(f"/v1/sweeps/{told['id']}/results")["runs"]
    assert sorted((run["params"]["a"], run["params"]["b"]) for run in runs) == [
        (a, b) for a in range(120) for b in range(100)
    ]
    assert [run["index"] for run in runs] == list(range(count))
    again = json.loads(bench.cli(*words, "--json").stdout)
    assert (again["new"], again["held"]) == (0, count)


def test_metrics_of_runs_that_end_without_a_daemon_are_read_by_the_next(bench: Bench) -> None:
    gate = bench.folder / "gate"
    os.mkfifo(gate)
    command = f"echo loss: {{a}}; read x < {gate}; test {{a}} != 2"
    words = ["sweep", command, "-p", "a", "1", "2", "3", "--name", "n", "--metric", "loss=loss: ([0-9])"]
    assert bench.cli(*words).returncode == 0
    for job_id in (1, 2, 3):
        bench.until(job_id, "started")
    bench.kill()
    for _ in range(3):
        gate.write_text("go\n")
    bench.start()
    bench.wait_all()
    answer = bench.client.get("/v1/sweeps/1/results")["runs"]
    assert [(run["state"], run["numbers"]) for run in answer] == [
        ("done", {"loss": 1.0}),
        ("failed", {"loss": 2.0}),
        ("done", {"loss": 3.0}),
    ]
