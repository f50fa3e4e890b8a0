"""Tasks of an array on a node: one that ends soon carries out starts of others, each once, and stops when asked to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attempt_bench import Bench, until
from dibs.engines import node_code
from dibs.runner import attempts, records
from dibs.runner.array_tasks import TAKEN
from dibs.system import processes

#: Seconds for which a task takes further starts: longer than any test.
LONG_S = 3600


class ArrayBench(Bench):
    """An array of starts, each with a folder of its own."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.code = node_code.install(tmp_path / "shared")
        self.array = tmp_path / "array"
        (self.array / TAKEN).mkdir(parents=True)
        self.count = 0

    def add(self, *commands: str) -> None:
        """Write the specs of the next starts."""
        for command in commands:
            folder = self.tmp / f"start-{self.count}"
            folder.mkdir()
            self.spec(command, engine="lab", folder=str(folder), output=os.fsencode(folder / "log"))
            (folder / "spec.1").write_bytes(self.specs[1])
            (self.array / str(self.count)).symlink_to(folder)
            self.count += 1

    def begin_task(self, number: int, reuse_s: float = LONG_S) -> subprocess.Popen[bytes]:
        """Start a task as an engine does."""
        words = node_code.argv(sys.executable, self.code, str(self.array / str(number) / "spec.1"))
        environ = {"PATH": os.environ["PATH"]}
        with open(self.tmp / f"engine.{number}", "ab") as output:
            process = subprocess.Popen(
                [*words, str(reuse_s), str(self.count)], env=environ, cwd="/", stdout=output, stderr=output
            )
        self.started.append(process)
        return process

    def run_task(self, number: int, reuse_s: float = LONG_S) -> None:
        """Run a task to its end; it prints nothing."""
        assert self.begin_task(number, reuse_s).wait() == 0
        assert (self.tmp / f"engine.{number}").read_text() == ""

    def final(self, number: int) -> records.Final | None:
        return records.read_final(str(self.array / str(number)), 1)

    def ran(self) -> list[str]:
        """Return the starts that ran, in their order; each writes its own number."""
        path = self.tmp / "ran"
        return path.read_text().split() if path.exists() else []

    def taken(self) -> dict[str, str]:
        return {name: os.readlink(self.array / TAKEN / name) for name in os.listdir(self.array / TAKEN)}

    def leftovers(self) -> list[processes.Proc]:
        return list(processes.marked([self.marker]))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ArrayBench]:
    own = ArrayBench(tmp_path)
    yield own
    own.close()


def test_a_task_carries_out_all_later_starts_each_with_its_own_result(bench: ArrayBench) -> None:
    bench.add(*(f"echo {number} >>ran; exit {number}" for number in range(4)))
    bench.run_task(0)
    assert sorted(bench.ran()) == ["0", "1", "2", "3"]
    assert [final.code for number in range(4) if (final := bench.final(number))] == [0, 1, 2, 3]
    assert bench.taken() == {number: f"0.{place}" for place, number in enumerate(bench.ran()) if place}


def test_tasks_beside_each_other_carry_out_each_start_once(bench: ArrayBench) -> None:
    bench.add(*(f"echo {number} >>ran" for number in range(12)))
    tasks = [bench.begin_task(number) for number in range(12)]
    assert {task.wait() for task in tasks} == {0}
    assert sorted(bench.ran(), key=int) == [str(number) for number in range(12)]
    for number, target in bench.taken().items():
        assert int(target.partition(".")[0]) < int(number)


def test_a_task_without_time_carries_out_its_own_start_only(bench: ArrayBench) -> None:
    bench.add("echo 0 >>ran", "echo 1 >>ran")
    bench.run_task(0, reuse_s=0)
    assert (bench.ran(), bench.taken()) == (["0"], {})


@pytest.mark.parametrize("how", ["taken", "claimed", "buried"])
def test_a_task_whose_own_start_is_decided_takes_no_other(bench: ArrayBench, how: str) -> None:
    """The daemon may end such a task at any moment."""
    bench.add(*(f"echo {number} >>ran" for number in range(3)))
    folder = str(bench.array / "1")
    if how == "taken":
        (bench.array / TAKEN / "1").symlink_to("0.1")
    elif how == "buried":
        attempts.bury(folder, 1, is_shared=True)
    else:
        fd = attempts.claim(folder, 1, "shim 1 1 boot", is_shared=True)
        assert fd is not None
        os.close(fd)
    bench.run_task(1)
    assert bench.ran() == []


def test_starts_that_were_given_up_or_are_over_are_left_alone(bench: ArrayBench) -> None:
    bench.add(*(f"echo {number} >>ran" for number in range(4)))
    attempts.bury(str(bench.array / "1"), 1, is_shared=True)
    (bench.array / "2" / "spec.1").unlink()
    bench.run_task(0)
    assert bench.ran() == ["0", "3"]
    assert set(bench.taken()) == {"3"}


@pytest.mark.parametrize("how", ["the engine", "an order"])
def test_after_a_stop_nothing_follows(bench: ArrayBench, how: str) -> None:
    bench.add("echo 0 >>ran; sleep 600", "echo 1 >>ran")
    task = bench.begin_task(0)
    until(bench.ran, "the command")
    if how == "the engine":
        task.send_signal(signal.SIGTERM)
    else:
        attempts.append_order(str(bench.array / "0"), 1, "stop 5")
        task.send_signal(signal.SIGUSR1)
    assert task.wait() == 0
    final = bench.final(0)
    assert final is not None
    assert final.stopped
    assert (bench.ran(), bench.taken()) == (["0"], {})


def test_an_order_reaches_the_start_that_a_task_has_taken(bench: ArrayBench) -> None:
    bench.add("echo 0 >>ran", "echo 1 >>ran; sleep 600", "echo 2 >>ran; sleep 600")
    task = bench.begin_task(0)
    until(lambda: len(bench.ran()) == 2, "the second command")
    number = bench.ran()[1]
    attempts.append_order(str(bench.array / number), 1, "stop 5")
    task.send_signal(signal.SIGUSR1)
    assert task.wait() == 0
    final = bench.final(int(number))
    assert final is not None
    assert final.stopped
    assert bench.taken() == {number: "0.1"}
    assert bench.leftovers() == []


def test_a_killed_guardian_of_a_start_that_was_taken_leaves_nothing(bench: ArrayBench) -> None:
    bench.add("echo 0 >>ran", "echo 1 >>ran; (setsid sleep 600 &) ; sleep 600")
    task = bench.begin_task(0)
    until(lambda: len(bench.ran()) == 2, "the second command")
    shim = attempts.read_started(str(bench.array / "1"), 1)
    assert isinstance(shim, attempts.Shim)
    os.kill(shim.pid, signal.SIGKILL)
    assert task.wait() == 0
    final = bench.final(1)
    assert final is not None
    assert (final.kind, final.why) == ("lost", "its runner was killed by SIGKILL")
    assert bench.leftovers() == []


def test_a_killed_task_ends_the_start_that_it_has_taken(bench: ArrayBench) -> None:
    bench.add("echo 0 >>ran", "echo 1 >>ran; sleep 600")
    task = bench.begin_task(0)
    until(lambda: len(bench.ran()) == 2, "the second command")
    task.kill()
    until(lambda: bench.final(1), "a final record")
    until(lambda: not bench.leftovers(), "the end of all processes")
