"""`POST /v1/sweeps` takes the mapping that sweep files and `dibs.Sweep` take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import Bench
from dibs.errors import Conflict, UserError

DOCUMENT: dict[str, Any] = {
    "command": "echo {lr} {seed}",
    "parameters": {"lr": [0.1, 0.01], "seed": "range(2)"},
    "exclude": "lr == 0.1 and seed == 1",
    "name": "s",
    "gpus": 0,
    "time": "2h",
    "dir": "runs/{lr}-{seed}",
    "metric": {"name": "loss", "goal": "minimize", "from": "loss: ([0-9.]+)"},
    "jobs": 2,
}


def test_a_document_becomes_the_sweep_that_its_file_would(bench: Bench) -> None:
    (bench.folder / "sweep.json").write_text(json.dumps(DOCUMENT | {"name": "filed"}))
    assert bench.cli("sweep", "sweep.json").returncode == 0
    answer = bench.client.post("/v1/sweeps", DOCUMENT | {"defaults": {"cwd": str(bench.folder), "tags": ["x"]}})
    assert (answer["counts"], answer["metric"], answer["goal"]) == ({"new": 3}, "loss", "minimize")
    keys = ("command", "params", "index", "gpus", "time_limit_s", "dir", "metric", "cwd")
    ours, theirs = ([{key: run[key] for key in keys} for run in bench.jobs(f"sweep:{name}")] for name in ("s", "filed"))
    assert ours == theirs
    assert [run["tags"] for run in bench.jobs("sweep:s")] == [["x"]] * 3


def test_the_same_again_queues_what_is_missing(bench: Bench) -> None:
    bench.client.post("/v1/sweeps", DOCUMENT)
    for run in bench.jobs("sweep:s"):
        bench.until(run["id"])
    wider = DOCUMENT | {"parameters": {"lr": [0.1, 0.01], "seed": [0, 1, 2]}}
    assert bench.client.post("/v1/sweeps", wider)["counts"] == {"done": 3, "new": 2}
    for run in bench.jobs("sweep:s"):
        bench.until(run["id"])
    assert bench.client.post("/v1/sweeps", wider | {"again": True})["counts"] == {"retried": 5}


def test_words_blocks_samples_and_a_default_name(bench: Bench) -> None:
    body = {
        "command": ["echo", "{a}", "{b}"],
        "blocks": [{"a": [1], "b": [2]}, {"a": [3], "b": "uniform(0,1)"}],
        "sample": 2,
        "seed": 1,
        "defaults": {"gpus": 0},
    }
    answer = bench.client.post("/v1/sweeps", body)
    assert answer["name"].startswith("echo-")
    assert answer["counts"] == {"new": 2}
    assert answer["argv"] == ["echo", "{a}", "{b}"]


def test_a_dry_run_counts_and_queues_nothing(bench: Bench) -> None:
    assert bench.client.post("/v1/sweeps?dry_run=1", DOCUMENT) == {"is_new": True, "notes": [], "points": 4}
    assert bench.client.get("/v1/sweeps") == {"sweeps": []}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parameters": {"lr": []}}, "the sweep: parameters: "),
        ({"command": "echo {lrr} {lr} {seed}"}, "lrr"),
        ({"dir": "runs/{lr}"}, "have the same folder"),
        ({"parametrs": {}}, "parametrs"),
        ({"parameters": {"lr": "uniform(0,1)", "seed": 1}}, "say how many points"),
        ({"parameters": {"lr": "range(400)", "seed": "range(400)"}}, "expected at most 100,000 points"),
        ({"defaults": {"gpu": 1}}, "gpu"),
        ({"name": "a/b"}, 'without "/"'),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_queued(bench: Bench, change: dict[str, Any], says: str) -> None:
    with pytest.raises((UserError, Conflict)) as caught:
        bench.client.post("/v1/sweeps", DOCUMENT | change)
    assert says in str(caught.value)
    assert bench.client.get("/v1/sweeps") == {"sweeps": []}
