"""`like` over HTTP: a new job with the options, environment, folder and command of another; what is sent wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import Bench
from dibs.errors import UserError

MODEL = ("-g", "0", "-n", "model", "-t", "3h", "--retries", "2", "--tag", "x", "-P", "vision", "--priority", "5")


@pytest.fixture
def model(bench: Bench) -> int:
    """Return a held job with options, variables and a folder of its own."""
    variables = ("-e", "A=1", "-e", "MY_TOKEN=abc", "-C", "/", "--notify", "true", "--hold")
    command = "echo $A:$MY_TOKEN:$PWD:$GREETING"
    return int(bench.cli("add", *MODEL, *variables, command, environ={"GREETING": "hi"}).stdout)


def post(bench: Bench, **body: Any) -> dict[str, Any]:
    (job_id,) = bench.client.post("/v1/jobs", body)["ids"]
    return bench.job(job_id)


def test_a_job_like_another_has_its_options_and_its_command(bench: Bench, model: int) -> None:
    job = bench.until(post(bench, like=model)["id"])
    same = ("name", "project", "command", "gpus", "time_limit_s", "retries", "tags", "priority", "cwd")
    assert {key: job[key] for key in same} == {key: bench.job(model)[key] for key in same}
    assert (job["state"], job["environment"]) == ("done", f"job {model}")
    # The masked variable, too, although nobody can read it.
    assert bench.log(job["id"]) == "1:abc:/:hi\n"


def test_what_is_sent_wins_and_lists_are_joined(bench: Bench, model: int) -> None:
    job = post(bench, like=model, command="true", retries=0, time_limit_s=None, tags=["y"], env={"A": "2"}, cwd="/tmp")
    assert (job["command"], job["retries"], job["time_limit_s"], job["cwd"]) == ("true", 0, None, "/tmp")
    assert (job["tags"], job["priority"], job["env"]["A"]) == (["x", "y"], 5, "2")
    job = bench.until(post(bench, like=model, argv=["/bin/true"])["id"])
    assert (job["argv"], job["project"]) == (["/bin/true"], "vision")


def test_the_folder_of_the_template_may_be_gone_if_another_is_sent(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    model = bench.add("true", cwd=str(folder), tags=["x"], hold=True)
    folder.rmdir()
    assert post(bench, like=model, command="true", cwd="/tmp")["tags"] == ["x"]
    assert post(bench, like=model, command=None, cwd="/tmp")["command"] == "true"


def test_of_many_jobs_each_has_its_own_command(bench: Bench, model: int) -> None:
    each = [{"command": "true"}, {"command": "false", "priority": 0}]
    told = {"defaults": {"like": model, "retries": 1}, "jobs": each}
    jobs = [bench.job(job_id) for job_id in bench.client.post("/v1/jobs", told)["ids"]]
    assert [(one["command"], one["retries"], one["priority"]) for one in jobs] == [("true", 1, 5), ("false", 1, 0)]
    (job_id,) = bench.client.post("/v1/jobs", {"defaults": {"like": model}, "lines": "true"})["ids"]
    assert bench.job(job_id)["tags"] == ["x"]
    with pytest.raises(UserError, match="expected either `command` or `argv`"):
        bench.client.post("/v1/jobs", {"defaults": {"like": model}, "jobs": [{}]})


def test_runs_of_a_sweep_take_options_but_no_name(bench: Bench, model: int) -> None:
    sweep = bench.client.post("/v1/sweeps", {"name": "s", "command": "echo {x}", "defaults": {"like": model}})
    body = {"points": [{"index": 0, "params": {"x": 1}, "command": "echo 1"}], "defaults": {"like": model}}
    bench.client.post(f"/v1/sweeps/{sweep['id']}/points", body)
    (run,) = bench.jobs("sweep:s")
    assert (run["name"], run["retries"], run["time_limit_s"], run["command"]) == ("s-0", 2, 10800.0, "echo 1")


def test_a_script_is_copied_with_its_text(bench: Bench) -> None:
    script = bench.folder / "train.sh"
    script.write_text("#!/bin/sh\necho with $1\n")
    first = int(bench.cli("add", "-g", "0", "--script", str(script), "seven").stdout)
    bench.until(first)
    script.unlink()
    job = bench.until(post(bench, like=first)["id"])
    assert (job["state"], bench.log(job["id"])) == ("done", "with seven\n")


def test_an_environment_can_be_taken_alone(bench: Bench, model: int) -> None:
    job = post(bench, environ_of=model, command="true", gpus=0)
    assert (job["environment"], job["cwd"], job["retries"], job["tags"]) == (f"job {model}", "/", 0, [])


@pytest.mark.parametrize("like", ["1", 0, -1, True, 1.5])
def test_like_is_the_number_of_a_job(bench: Bench, like: object) -> None:
    with pytest.raises(UserError, match="like expected the number of a job"):
        bench.client.post("/v1/jobs", {"like": like, "command": "true"})
    assert bench.jobs() == []
