"""The protocol in a shared folder needs no locks: network file systems may refuse them, or keep them to one machine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import no_locks
from attempt_bench import Bench, until
from dibs.engines import node_code
from dibs.runner import attempts, records

LOCKS = pytest.mark.parametrize("error", [errno.ENOLCK, 0], ids=["refused", "of-one-machine"])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    own = Bench(tmp_path)
    yield own
    own.close()


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node_code.install(tmp_path_factory.mktemp("shared"))


def without_locks(error: int, *command: str) -> list[str]:
    return [sys.executable, no_locks.__file__, str(error), *command]


def start(bench: Bench, code: Path, path: Path, error: int) -> subprocess.Popen[bytes]:
    words = without_locks(error, *node_code.argv(sys.executable, code, str(path)))
    with open(bench.tmp / "engine.1", "ab") as output:
        process = subprocess.Popen(words, env={"PATH": os.environ["PATH"]}, cwd="/", stderr=output)
    bench.started.append(process)
    return process


def spec(bench: Bench, command: str) -> Path:
    bench.spec(command, engine="lab")
    path = Path(bench.folder) / "spec.1"
    path.write_bytes(bench.specs[1])
    return path


def test_the_filter_works() -> None:
    try_lock = "import fcntl, os; fcntl.flock(os.open('/', os.O_RDONLY), fcntl.LOCK_EX)"
    done = subprocess.run(
        without_locks(errno.ENOLCK, sys.executable, "-c", try_lock), capture_output=True, text=True, check=False
    )
    assert "No locks available" in done.stderr
    try_lock = "import fcntl, os; fcntl.lockf(os.open(os.devnull, os.O_RDWR), fcntl.LOCK_EX)"
    done = subprocess.run(
        without_locks(errno.ENOLCK, sys.executable, "-c", try_lock), capture_output=True, text=True, check=False
    )
    assert "No locks available" in done.stderr


@LOCKS
def test_a_start_that_several_nodes_got_runs_once(bench: Bench, code: Path, error: int) -> None:
    path = spec(bench, "echo ran; sleep 0.2; exit 7")
    nodes = [start(bench, code, path, error) for _ in range(4)]
    assert [node.wait() for node in nodes] == [0] * 4
    found = until(lambda: records.read_final(bench.folder, 1), "a final record")
    assert found is not None
    assert (found.kind, found.code) == ("exited", 7)
    assert (bench.tmp / "log").read_text() == "ran\n"
    assert (bench.tmp / "engine.1").read_text() == ""


@LOCKS
def test_a_start_that_was_given_up_does_not_run(bench: Bench, code: Path, error: int) -> None:
    path = spec(bench, "echo ran")
    assert attempts.give_up(bench.folder, 1, is_shared=True)
    assert start(bench, code, path, error).wait() == 0
    assert not (bench.tmp / "log").exists()
    assert isinstance(attempts.read_started(bench.folder, 1), attempts.Tombstone)
