"""The environment and folder of jobs that bring none: from a shell's last job, a named job, or a login shell."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bench import Bench
from dibs.errors import NotFound, UserError

#: Prints what a program needs to be found, and where it runs.
LOOK = "echo $HOME:$GREETING:$PWD; command -v env"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home whose login shell says hello."""
    home = tmp_path / "person"
    home.mkdir()
    (home / ".profile").write_text("export GREETING=login\n")
    (home / ".bash_profile").symlink_to(".profile")
    return home


@pytest.fixture
def bench(bench: Bench, home: Path) -> Bench:
    """Return a dibs of a person with that home."""
    bench.environ["HOME"] = bench.client.environ["HOME"] = str(home)  # type: ignore[index]
    return bench


def post(bench: Bench, **job: Any) -> dict[str, Any]:
    """Submit a job as the page does, without an environment; return it when it has finished."""
    answer = bench.client.post("/v1/jobs", {"command": LOOK, "gpus": 0, **job})
    return bench.until(answer["ids"][0])


def from_shell(bench: Bench, folder: Path, greeting: str) -> int:
    """Submit a job from a shell that says this, in a folder."""
    folder.mkdir(exist_ok=True)
    done = bench.cli("add", "-g", "0", "-C", str(folder), "true", environ={"GREETING": greeting})
    return int(done.stdout)


def test_without_any_job_it_is_a_login_shell_at_home(bench: Bench, home: Path) -> None:
    job = post(bench)
    assert (job["state"], job["environment"], job["cwd"]) == ("done", "login shell", str(home))
    assert bench.log(job["id"]).splitlines()[0] == f"{home}:login:{home}"


def test_the_last_shell_in_the_folder_lends_its_environment(bench: Bench, home: Path) -> None:
    here, there = bench.folder / "here", bench.folder / "there"
    from_shell(bench, here, "old")
    mine = from_shell(bench, here, "mine")
    other = from_shell(bench, there, "other")
    job = post(bench, cwd=str(here), env={"MORE": "1"})
    assert (job["environment"], bench.log(job["id"]).splitlines()[0]) == (f"job {mine}", f"{home}:mine:{here}")
    # Without a folder: the last one, of this person's shells and not of the page.
    job = post(bench)
    assert (job["environment"], job["cwd"]) == (f"job {other}", str(there))
    assert post(bench, cwd="/")["environment"] == "login shell"


def test_a_named_job_lends_its_environment_and_its_folder(bench: Bench, home: Path) -> None:
    mine = from_shell(bench, bench.folder / "here", "mine")
    from_shell(bench, bench.folder / "there", "other")
    job = post(bench, like=mine)
    assert (job["environment"], job["cwd"]) == (f"job {mine}", str(bench.folder / "here"))
    job = post(bench, like=mine, cwd="/tmp", env={"GREETING": "added"})
    assert bench.log(job["id"]).splitlines()[0] == f"{home}:added:/tmp"
    with pytest.raises(NotFound):
        post(bench, like=99)


def test_a_dry_run_and_a_shells_own_job_say_it_too(bench: Bench) -> None:
    mine = from_shell(bench, bench.folder, "mine")
    assert bench.job(mine)["environment"] == "submitter"
    found = bench.client.post("/v1/jobs?dry_run=1", {"command": "true"})["jobs"][0]
    assert (found["environment"], found["cwd"]) == (f"job {mine}", str(bench.folder))


def test_a_job_of_an_older_version_without_an_environment_lends_none(bench: Bench) -> None:
    mine = from_shell(bench, bench.folder, "mine")
    bench.until(mine)
    bench.stop()
    with contextlib.closing(sqlite3.connect(bench.home / "dibs.db")) as database, database:
        database.execute("UPDATE jobs SET environ = NULL, environ_from = ''")
    bench.start()
    assert bench.job(mine)["environment"] is None
    with pytest.raises(UserError, match="no stored environment"):
        post(bench, like=mine)


def test_runs_of_a_sweep_get_one_in_the_same_way(bench: Bench) -> None:
    mine = from_shell(bench, bench.folder / "here", "mine")
    sweep = bench.client.post("/v1/sweeps", {"name": "s", "command": "echo {x} $GREETING"})
    body = {"points": [{"index": 0, "params": {"x": 1}, "command": "echo 1 $GREETING"}], "defaults": {"gpus": 0}}
    bench.client.post(f"/v1/sweeps/{sweep['id']}/points", body)
    (run,) = bench.jobs("sweep:s")
    bench.until(run["id"])
    assert bench.log(run["id"]) == "1 mine\n"
    assert bench.job(run["id"])["environment"] == f"job {mine}"
    assert run["cwd"] == str(bench.folder / "here")


def test_recent_folders_are_offered_with_what_was_active_there(bench: Bench) -> None:
    here = bench.folder / "here"
    here.mkdir()
    bench.cli("add", "-g", "0", "-C", str(here), "true", environ={"VIRTUAL_ENV": "/x/torch"})
    last = from_shell(bench, bench.folder / "there", "x")
    post(bench)
    found = bench.client.get("/v1/environments")["environments"]
    told = [(each["job"], each["cwd"], each["activated"]) for each in found]
    assert told == [(last, str(bench.folder / "there"), None), (last - 1, str(here), "torch")]


def test_a_deleted_job_lends_nothing(bench: Bench) -> None:
    bench.until(from_shell(bench, bench.folder, "mine"))
    assert bench.cli("clean", "all").returncode == 0
    assert bench.client.get("/v1/environments") == {"environments": []}
    assert post(bench, cwd=str(bench.folder))["environment"] == "login shell"
