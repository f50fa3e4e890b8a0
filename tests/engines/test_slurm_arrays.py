"""Arrays of Slurm whose tasks carry out starts of other tasks: the state of a start, and tasks that are not needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs.engines import slurm, slurm_arrays
from dibs.engines.protocol import Needs, Seen, Start
from dibs.engines.slurm_arrays import Arrays
from dibs.system.configuration.engines import EngineSettings

WAITS, RUNS = Seen("waiting", "waits"), Seen("running", node="n1")


def starts(folder: Path, count: int) -> list[Start]:
    paths = [folder / f"start-{number}" for number in range(count)]
    return [
        Start(f"dibs-x-{number}.1.1", str(path), ("py", f"{path}/spec.1"), Needs(), 0, "n", f"{path}/engine.1", 9)
        for number, path in enumerate(paths)
    ]


def take(folder: Path, **taken: str) -> None:
    """Note that tasks took the starts of others: `_2="0.1"`."""
    for name, target in taken.items():
        (folder / "taken" / name[1:]).symlink_to(target)


def test_a_start_shares_the_fate_of_the_task_that_claimed_it(tmp_path: Path) -> None:
    arrays = Arrays("lab", tmp_path / "arrays")
    folder = arrays.make("a", starts(tmp_path, 4))
    arrays.accept("7", "a")
    lines = {"7_0": RUNS, "7_1": WAITS, "7_2": WAITS, "7_3": WAITS}
    own = arrays.of(["7_0"])["7"]
    assert [own.seen(number, lines) for number in "0123"] == [RUNS, WAITS, WAITS, WAITS]
    assert own.idle(lines) == []
    take(folder, _2="0.1")
    own = arrays.of(["7_0"])["7"]
    # Task 0 has one start at a time: its own one is over.
    over = Seen("ended", "its task continued with another job", node="n1")
    assert [own.seen(number, lines) for number in "0123"] == [over, WAITS, RUNS, WAITS]
    assert [own.task_of(number) for number in "0123"] == [None, "1", "0", "3"]
    # Until Slurm was told.
    assert (own.idle(lines), own.idle(lines)) == (["2"], ["2"])
    own.note_cancelled(["2"])
    assert own.idle(lines) == []
    take(folder, _3="0.2")
    own = arrays.of(["7_0"])["7"]
    assert [own.seen(number, lines) for number in "0123"] == [over, WAITS, over, RUNS]
    # Slurm has forgotten the task.
    assert own.seen("3", {}) is None


def test_a_new_daemon_finds_the_newest_array_of_its_own_cluster(tmp_path: Path) -> None:
    for name, engine, time_ns in (("old", "lab", 1), ("new", "lab", 3), ("other", "uni", 5)):
        before = Arrays(engine, tmp_path)
        take(before.make(name, starts(tmp_path, 2)), _1="0.1")
        before.accept("7", name)
        os.utime(tmp_path / name, ns=(time_ns, time_ns))
    (tmp_path / "part").mkdir()
    found = Arrays("lab", tmp_path).of(["7_0", "8_1", "9"])
    assert {ref: array.folder.name for ref, array in found.items()} == {"7": "new"}
    assert found["7"].task_of("1") == "0"
    assert set(Arrays("lab", tmp_path).keys()) == {"old", "new", "other"}


def test_arrays_that_nobody_asks_about_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = Arrays("lab", tmp_path)
    for ref in ("7", "8"):
        arrays.make(f"array-{ref}", starts(tmp_path, 2))
        arrays.accept(ref, f"array-{ref}")
    assert set(arrays.of(["7_0"])) == {"7"}
    assert len(list(tmp_path.glob("array-*"))) == 2
    monkeypatch.setattr(slurm_arrays, "KEEP_S", -1.0)
    arrays.of(["7_0"])
    assert not list(tmp_path.glob("array-*"))
    assert not arrays.of(["7_0", "8_0"])


@pytest.mark.parametrize(
    ("numbers", "written"),
    [(["3"], "7_[3]"), (["10", "2", "3", "4", "11", "7"], "7_[2-4,7,10-11]"), (["0", "1"], "7_[0-1]")],
)
def test_tasks_as_slurm_writes_them(numbers: list[str], written: str) -> None:
    assert slurm_arrays.expression("7", numbers) == written


def test_calls_mean_the_task_that_carries_out_a_start(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    text = "7_0 |RUNNING |None |0 |n1 |a |\\n7_1 |PENDING |None |0 | |a |\\n7_2 |PENDING |None |0 | |a |\\n"
    for name, script in (("sbatch", "echo 7"), ("squeue", f"printf '{text}'"), ("scancel", f"echo $* >>{tmp_path}/c")):
        (path / name).write_text(f"#!/bin/sh\n{script}\n")
        (path / name).chmod(0o755)
    settings = EngineSettings("lab", "slurm", tmp_path / "shared")
    engine = slurm.Slurm(settings, {"PATH": f"{path}:{os.environ['PATH']}"})
    refs = list(engine.submit(starts(tmp_path, 3)).values())
    assert refs == ["7_0", "7_1", "7_2"]
    (folder,) = (tmp_path / "shared" / "arrays").iterdir()
    take(folder, _1="0.1")
    phases = {ref: seen.phase for ref, seen in engine.poll(["7_0", "7_1", "7_2"]).items()}
    assert phases == {"7_0": "ended", "7_1": "running", "7_2": "waiting"}
    engine.poke("7_1")
    # The start of task 0 is over, and the task has another one.
    engine.stop(["7_0"], now=True)
    engine.stop(["7_1", "7_2", "12"], now=True)
    assert (tmp_path / "c").read_text().splitlines() == [
        "-Q 7_[1]", "-Q --state=RUNNING --batch --signal=USR1 7_0", "-Q 7_0 7_2 12",
    ]  # fmt: skip
