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
        ({"parameters": {"lr": "uniform(0,1)", "seed": 1}}, "set the number of points"),
        ({"parameters": {"lr": "range(400)", "seed": "range(400)"}}, "expected at most 100,000 points"),
        ({"defaults": {"gpu": 1}}, "gpu"),
        ({"name": "a/b"}, 'without "/"'),
        ({"name": ""}, "--name: expected a text that is not empty, got nothing."),
    ],
)
def test_a_mistake_is_named_and_nothing_is_queued(bench: Bench, change: dict[str, Any], says: str) -> None:
    with pytest.raises((UserError, Conflict)) as caught:
        bench.client.post("/v1/sweeps", DOCUMENT | change)
    assert says in str(caught.value)
    assert bench.client.get("/v1/sweeps") == {"sweeps": []}


def test_a_document_may_be_a_search(bench: Bench) -> None:
    document = {"command": "echo loss: {x}", "parameters": {"x": "uniform(0,1)"}, "name": "s", "gpus": 0}
    document |= {"search": "tpe", "trials": 3, "early_stop": "median", "metric": DOCUMENT["metric"]}
    defaults = {"cwd": str(bench.folder)}
    assert bench.client.post("/v1/sweeps?dry_run=yes", document | {"defaults": defaults})["points"] == 3
    answer = bench.client.post("/v1/sweeps", document | {"defaults": defaults})
    assert (answer["counts"], answer["search"]["trials"], answer["early_stop"]) == ({"new": 1}, 3, "median")
    assert bench.cli("wait", "sweep:s").returncode == 0
    assert len(bench.jobs("sweep:s")) == 3
    plain = bench.client.post("/v1/sweeps", DOCUMENT | {"name": "plain"})
    with pytest.raises(UserError, match="expected a sweep with a search"):
        bench.client.post(f"/v1/sweeps/{plain['id']}/trials", {})


def test_two_searches_that_begin_together_both_run(bench: Bench) -> None:
    """The driver must not take one that was just created for one whose jobs were deleted."""
    words = ["--search", "tpe", "--trials", "4", "--minimize", "loss", "--metric", "loss=loss=(.*)", "-g", "0"]
    for name in ("a", "b", "c"):
        assert bench.cli("sweep", "echo loss={x}", "-p", "x=uniform(0,1)", "-n", name, *words).returncode == 0
    assert bench.cli("wait").returncode == 0
    assert len(bench.jobs("done")) == 12
