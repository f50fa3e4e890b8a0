"""`scripts/demo`: its generated day is consistent, and a real queue shows it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import end
from dibs.client import connection
from dibs.store.writer import Store
from dibs.system import processes
from pretend import __main__ as demo
from pretend import cards, crowd, day, machine, training


def test_the_same_seed_gives_the_same_day() -> None:
    assert day.make(3) == day.make(3) != day.make(4)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_gpu_has_one_job_at_a_time(seed: int) -> None:
    story = day.make(seed)
    for lane in range(day.GPUS):
        mine = sorted((w for w in (*story.past, *story.running) if lane in w.lanes), key=lambda work: work.began)
        for before, after in itertools.pairwise(mine):
            assert before.began + (before.took or 0) < after.began
    assert all(work.began + (work.took or 0) < 0 for work in story.past)


def test_names_are_used_once() -> None:
    story = day.make()
    names = [work.name for work in (*story.past, *story.running, *story.waiting)]
    assert len(set(names)) == len(names)


def test_the_day_has_every_kind_of_problem() -> None:
    ends = {work.end for work in day.make().past}
    assert ends == {"done", "oom", "nan", "data", "timeout", "cancelled"}


def test_the_loss_of_a_training_decreases() -> None:
    epochs = list(training.epochs(training.parse(["--lr", "7e-4"])))
    assert epochs[0].numbers["loss"] > 3 * epochs[-1].numbers["loss"]
    assert epochs[0].numbers["acc"] < epochs[-1].numbers["acc"] < 0.95
    assert training.best(training.parse(["--lr", "7e-4"])) > training.best(training.parse(["--lr", "3e-2"])) + 0.03


def test_the_driver_reports_the_running_jobs() -> None:
    lines = list(machine.lines([{"name": "asr-1", "gpu_indices": [2], "pid": 77}], stranger=88, minute=5.0))
    assert [line.split()[2] for line in lines if line.startswith("proc 2")] == ["pid=77"]
    assert [line.split()[2] for line in lines if line.startswith(f"proc {day.FOREIGN}")] == ["pid=88"]
    assert sum(line.startswith("gpu") for line in lines) == day.GPUS


def test_a_large_number_of_jobs_is_counted_correctly(tmp_path: Path) -> None:
    crowd.write(tmp_path, 400, 1_794_744_000_000, "/")
    store = Store.open(tmp_path / "dibs.db")
    try:
        counts = store.counts()
        assert sum(counts.values()) == 400
        assert counts["queued"] == 0 < counts["timeout"] < counts["failed"] < counts["done"]
    finally:
        store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a demo; everything left running is ended."""
    yield tmp_path / "demo"
    end(processes.marked([f"{demo.MARK}={tmp_path}/demo".encode()]))


def test_a_demo_starts_shows_its_day_and_ends(folder: Path) -> None:
    assert demo.main(["--folder", str(folder), "--no-link"]) == 0
    queue, story = connection.Client(folder / "home", demo.environ(folder)), day.make()
    shown = {job["name"]: job for job in queue.get("/v1/jobs", [("select", "all")])["jobs"]}
    for work in story.running:
        assert (shown[work.name]["state"], tuple(shown[work.name]["gpu_indices"])) == ("running", work.lanes)
    assert {shown[work.name]["state"] for work in story.waiting} == {"queued", "held"}
    assert {shown[work.name]["cause"] for work in story.past if work.end == "oom"} == {"oom"}
    gpus = queue.get("/v1/gpus")["gpus"]
    assert [gpu["state"] for gpu in gpus][day.DRAINED] == "drained"
    assert [gpu["state"] for gpu in gpus][day.FOREIGN] == "foreign"
    assert gpus[0]["name"] == cards.NAME.replace("_", " ")
    sweep = next(each for each in queue.get("/v1/sweeps")["sweeps"] if each["name"] == day.RUN.name)
    runs = queue.get(f"/v1/sweeps/{sweep['id']}/results")["runs"]
    assert max(run["numbers"]["acc"] for run in runs if run["numbers"]) > 0.9
    log = Path(shown["vit-lr-8"]["log"]).read_text()
    assert "AssertionError: loss is nan" in log
    assert json.loads((folder / "lab" / "pace.json").read_text())
    assert demo.main(["--folder", str(folder), "--stop"]) == 0
    assert not folder.exists()


def test_two_demos_cannot_share_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    (folder / "alive").touch()
    assert demo.main(["--folder", str(folder)]) == 1
    assert "one is there already" in capsys.readouterr().err
    (folder / "alive").unlink()
    assert demo.main(["--folder", str(folder), "--stop"]) == 1
