"""Submitting many lines while the client or the daemon is killed: all jobs or none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench import Bench, wait_for

COUNT = 20_000
#: Kills of each kind: the first before anything is sent, the last after the answer.
KILLS = 4


@pytest.fixture
def lines(bench: Bench) -> Path:
    """A file of commands."""
    path = bench.folder / "lines"
    path.write_text("".join(f"true {number}\n" for number in range(COUNT)))
    return path


def begin(bench: Bench, lines: Path) -> subprocess.Popen[bytes]:
    """Start a client that submits all lines."""
    with lines.open("rb") as given:
        words = [sys.executable, "-m", "dibs", "add", "--hold", "-q", "-"]
        return subprocess.Popen(
            words,
            env=bench.environ,
            cwd=bench.folder,
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def kept(bench: Bench) -> int:
    """Return the number of jobs."""
    return int(sum(bench.client.get("/v1/queue")["counts"].values()))


def test_a_killed_client_leaves_all_jobs_or_none(bench: Bench, lines: Path) -> None:
    bench.start()
    rng, pause = random.Random(20261118), threading.Event()
    for number in range(KILLS):
        client = begin(bench, lines)
        pause.wait(rng.random() * number / 2)
        client.send_signal(signal.SIGKILL)
        client.wait()
        assert kept(bench) % COUNT == 0
    before = kept(bench)
    client = begin(bench, lines)
    assert client.wait(120) == 0
    # What a killed client had sent as a whole may still be stored.
    wait_for(lambda: kept(bench), lambda now: now >= before + COUNT and now % COUNT == 0)


def test_a_killed_daemon_leaves_all_jobs_or_none(bench: Bench, lines: Path) -> None:
    for _ in range(KILLS):
        bench.start()
        before = kept(bench)
        client = begin(bench, lines)
        log = Path(f"{bench.home}/dibs.db-wal")
        size = log.stat().st_size
        # The transaction has begun to reach the log, or has ended already.
        wait_for(lambda: log.stat().st_size > size or client.poll() is not None)  # noqa: B023
        bench.kill()
        client.wait()
        bench.start()
        after = kept(bench)
        assert after - before in (0, COUNT)
        # A client that has printed ids has not lost any.
        assert client.returncode != 0 or after == before + COUNT
        bench.kill()


def test_a_client_that_is_killed_while_it_reads_has_sent_nothing(bench: Bench) -> None:
    bench.start()
    reading, writing = os.pipe()
    client = subprocess.Popen(
        [sys.executable, "-m", "dibs", "add", "-"],
        env=bench.environ,
        cwd=bench.folder,
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(reading)
    with os.fdopen(writing, "wb") as lines:
        lines.write(b"true\n" * COUNT)
        lines.flush()
        client.send_signal(signal.SIGKILL)
        client.wait()
    assert kept(bench) == 0
