"""`--like JOB`: a new job with the options, environment, folder and command of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dibs
from bench import Bench

pytestmark = pytest.mark.usefixtures("started")


def add(bench: Bench, *words: str, **more: Any) -> dict[str, Any]:
    """Submit with `dibs add`; return the job when it has finished."""
    done = bench.cli("add", *words, **more)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return bench.until(int(done.stdout))


@pytest.fixture
def first(bench: Bench) -> dict[str, Any]:
    """A job with options, variables of which one is secret, and a folder of its own."""
    (bench.folder / "there").mkdir()
    words = ("-g", "2", "-n", "vit", "-t", "1h", "--tag", "x", "-e", "A=1", "-e", "MY_TOKEN=abc", "-C", "there")
    return add(bench, *words, "echo $A:$MY_TOKEN:$GREETING:$PWD", environ={"GREETING": "hello"})


def test_without_a_command_the_job_is_repeated(bench: Bench, first: dict[str, Any]) -> None:
    again = add(bench, "--like", "1", environ={"GREETING": "other"})
    assert bench.log(again["id"]) == bench.log(1) == f"1:abc:hello:{bench.folder / 'there'}\n"
    same = ("name", "gpus", "tags", "time_limit_s", "cwd", "command")
    assert {key: again[key] for key in same} == {key: first[key] for key in same}
    assert (again["environment"], again["env"]) == ("job 1", {"A": "1", "MY_TOKEN": "***"})


@pytest.mark.usefixtures("first")
def test_the_command_line_overrides_the_job(bench: Bench) -> None:
    job = add(bench, "--like", "@", "-g", "1", "--tag", "y", "-e", "A=2", "-C", "/", "echo $A:$MY_TOKEN:$PWD")
    assert (job["gpus"], job["tags"], job["name"], job["time_limit_s"]) == (1, ["x", "y"], "vit", 3600)
    assert bench.log(job["id"]) == "2:abc:/\n"


@pytest.mark.usefixtures("first")
def test_run_map_and_sweep_take_it_too(bench: Bench) -> None:
    assert bench.cli("run", "--like", "1", "echo $A:$MY_TOKEN").stdout == "1:abc\n"
    ids = bench.cli("map", "--like", "1", "-q", "echo $MY_TOKEN {}", ":::", "a", "b").stdout.split()
    assert [bench.log(bench.until(int(each))["id"]) for each in ids] == ["abc a\n", "abc b\n"]
    done = bench.cli("sweep", "--like", "1", "--name", "s", "echo {x} $MY_TOKEN", "-p", "x", "7")
    assert (done.returncode, done.stdout) == (0, "1 point: 1 new, 0 retried, 0 done\n")
    run = bench.until(int(bench.cli("status", "-q", "sweep:s").stdout))
    assert (bench.log(run["id"]), run["tags"]) == ("7 abc\n", ["x"])


def test_a_job_that_is_missing_or_several_get_one_line(bench: Bench, first: dict[str, Any]) -> None:
    done = bench.cli("add", "--like", "9")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "dibs: there is no job 9 (the newest is 1).\n")
    add(bench, "true")
    done = bench.cli("add", "--like", "1-2")
    assert (done.returncode, done.stderr) == (2, "dibs: add --like expected one job, got 2: 1, 2.\n")
    assert bench.cli("status", "-q", "all").stdout.split() == ["1", "2"]


@pytest.mark.usefixtures("first")
def test_python_takes_a_job_and_a_preset(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    config = bench.folder / "config.toml"
    config.write_text('[presets.small]\ngpus = 0\ncomment = "from a preset"\n')
    for name, value in (bench.environ | {"DIBS_CONFIG": str(config)}).items():
        monkeypatch.setenv(name, value)
    again = dibs.submit(like=1, preset="small")
    other = dibs.submit("echo $MY_TOKEN", like=again)
    assert (again.wait(), other.wait()) == ("done", "done")
    found = bench.job(again.id)
    assert (found["gpus"], found["comment"], found["name"]) == (0, "from a preset", "vit")
    assert (again.log(), other.log()) == (f"1:abc:hello:{bench.folder / 'there'}\n", "abc\n")
    with pytest.raises(dibs.errors.UserError, match=r'there is no preset "smal". Did you mean small\?'):
        dibs.submit("true", preset="smal")


def test_a_preset_of_the_settings_is_used_by_the_thin_client_and_by_sweep(bench: Bench, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    environ = {"DIBS_CONFIG": str(config)}
    assert bench.cli("config", "set", "presets.small.gpus", "0", environ=environ).returncode == 0
    done = bench.cli("config", "set", "presets.small.time", "soon", environ=environ)
    assert done.returncode == 2
    assert done.stderr.startswith("dibs: presets.small.time: expected a time such as 90m")
    assert config.read_text() == '[presets.small]\ngpus = "0"\n', "nothing was changed"
    assert "presets.small.gpus" in bench.cli("config", environ=environ).stdout
    assert add(bench, "--preset", "small", "true", environ=environ)["gpus"] == 0
    bench.cli("sweep", "--preset", "small", "--name", "s", "true {x}", "-p", "x", "7", environ=environ)
    assert bench.until(2)["gpus"] == 0
