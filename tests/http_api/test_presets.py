"""`preset` in submissions over HTTP, and `GET /v1/presets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import Bench
from dibs.errors import UserError
from dibs.http_api import presets
from dibs.system.configuration.presets import Preset

SETTINGS = """
[presets.big]
gpus = 2
time = "2h"
tag = ["paper", "night"]
env = "A=1"
priority = 10

[presets.wrong]
time = "soon"
"""


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("queue")
    file = Path(folder) / "presets.toml"
    file.write_text(SETTINGS)
    own = Bench(folder, DIBS_CONFIG=str(file))
    own.start()
    yield own
    own.close()


def rehearsed(queue: Bench, **fields: Any) -> dict[str, Any]:
    body = {"command": "true", "cwd": "/", **fields}
    (job,) = queue.client.post("/v1/jobs?dry_run=1", body)["jobs"]
    found: dict[str, Any] = job
    return found


def test_a_preset_fills_in_what_the_request_leaves_out(queue: Bench) -> None:
    job = rehearsed(queue, preset="big")
    assert (job["gpus"], job["time_limit_s"], job["tags"], job["priority"]) == (2, 7200, ["paper", "night"], 10)
    assert job["cwd"] == "/"


def test_what_the_request_says_wins_and_tags_and_variables_add_up(queue: Bench) -> None:
    job = rehearsed(queue, preset="big", gpu_ids=["3"], time_limit_s=60, tags=["x"], env={"B": "2"})
    assert (job["gpus"], job["request"]["gpu_ids"], job["time_limit_s"]) == (1, ["FAKE-3"], 60)
    assert job["tags"] == ["paper", "night", "x"]
    assert job["env"] == {"A": "1", "B": "2"}


def test_jobs_of_a_batch_and_of_a_sweep_take_presets(queue: Bench) -> None:
    many = [{"command": "true"}, {"command": "true", "priority": 3}]
    defaults = {"cwd": "/", "preset": "big", "hold": True}
    ids = queue.client.post("/v1/jobs", {"defaults": defaults, "jobs": many})["ids"]
    assert [(queue.job(each)["gpus"], queue.job(each)["priority"]) for each in ids] == [(2, 10), (2, 3)]
    sweep = queue.client.post("/v1/sweeps", {"name": "s", "command": "echo {a}", "defaults": defaults})
    points = [{"index": 0, "params": {"a": 1}, "command": "echo 1"}]
    queue.client.post(f"/v1/sweeps/{sweep['id']}/points", {"points": points, "defaults": defaults})
    (run,) = queue.jobs("sweep:s")
    assert (run["gpus"], run["tags"]) == (2, ["paper", "night"])


def test_the_presets_are_listed_with_what_they_set_or_why_they_cannot(queue: Bench) -> None:
    big, wrong = queue.client.get("/v1/presets")["presets"]
    assert big["options"] == "--gpus=2 --time=2h --tag=paper,night --env=A=1 --priority=10"
    assert big["fields"] == {
        "gpus": 2, "time_limit_s": 7200, "tags": ["paper", "night"], "env": {"A": "1"}, "priority": 10,
    }  # fmt: skip
    assert big["problem"] is None
    assert "presets.wrong.time" in wrong["problem"]
    assert wrong["fields"] == {}


@pytest.mark.parametrize(
    ("name", "says"), [("bog", "there is no preset"), ("wrong", "presets.wrong.time"), (3, "name of a preset")]
)
def test_an_unknown_or_wrong_preset_is_refused(queue: Bench, name: object, says: str) -> None:
    with pytest.raises(UserError, match=says):
        rehearsed(queue, preset=name)


def test_bodies_without_a_preset_are_left_as_they_are() -> None:
    known = {"p": Preset("p", ())}
    jobs = [{"command": "a"}, 7]
    assert presets.filled(jobs, known) is jobs
    assert presets.filled("text", known) == "text"
    assert presets.filled({"preset": "p", "command": "a"}, known) == {"command": "a"}
