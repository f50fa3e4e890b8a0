"""Mistakes and odd situations of a user's first week: what dibs says, and its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench
from terminal import Terminal

LONG = ["sleep", "1000"]


def in_a_deleted_folder(bench: Bench, *program: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose working directory was deleted after the program entered it."""
    folder = bench.folder / "deleted"
    folder.mkdir(exist_ok=True)
    words = ["/bin/sh", "-c", 'rmdir ../deleted; exec "$@"', "sh", *program]
    return subprocess.run(
        words, cwd=folder, env=bench.environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.parametrize("words", [("add", "true"), ("lease", "true"), ("run", "true"), ("map", "echo", ":::", "1")])
def test_a_deleted_folder_is_named_and_nothing_runs(bench: Bench, words: tuple[str, ...]) -> None:
    done = in_a_deleted_folder(bench, sys.executable, "-m", "dibs", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dibs: the current folder no longer exists. Change to another folder: cd ~\n"


def test_an_absolute_folder_is_enough_in_a_deleted_one(bench: Bench) -> None:
    done = in_a_deleted_folder(bench, sys.executable, "-m", "dibs", "run", "-g0", "-C", "/", "pwd")
    assert (done.returncode, done.stdout) == (0, "/\n")


def test_a_call_from_a_deleted_folder_fails_and_the_executor_closes(bench: Bench) -> None:
    text = "import dibs\nwith dibs.Executor(gpus=0) as pool:\n    print(pool.submit(abs, -1).exception())"
    done = in_a_deleted_folder(bench, sys.executable, "-c", text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the current folder no longer exists. Change to another folder: cd ~\n"


def test_follow_of_a_held_job_says_what_releases_it(bench: Bench) -> None:
    """Also without a terminal: a script would wait forever without a word."""
    bench.cli("add", "-g0", "--hold", "true")
    follow = subprocess.Popen(
        [sys.executable, "-m", "dibs", "follow", "1"], env=bench.environ, stderr=subprocess.PIPE, text=True
    )
    assert follow.stderr is not None
    with follow, follow.stderr:
        assert follow.stderr.readline() == "dibs: job 1 waiting: held by you; `dibs unhold 1` releases it\n"
        bench.cli("unhold", "1")
        assert follow.wait(PATIENCE_S) == 0


def test_leaving_a_queued_run_says_that_the_job_stays_queued(bench: Bench) -> None:
    bench.cli("pause")
    with Terminal(bench, "run", "true") as person:
        person.until("job 1 waiting")
        person.signal(15)  # type: ignore[arg-type]
        assert "dibs: job 1 stays queued: dibs follow 1" in person.end()[1]


def test_a_job_whose_dependency_failed_is_reported_as_cancelled(bench: Bench) -> None:
    bench.until(bench.add("false", gpus=0))
    done = bench.cli("add", "--after", "1", "true")
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert done.stderr == "dibs: job 2 was cancelled: job 1, a dependency, did not succeed\n"
    with Terminal(bench, "add", "--after", "1", "true", columns=100) as person:
        shown = person.end()[1]
    assert "3 was cancelled: job 1, a dependency, did not succeed" in shown
    assert "starts now" not in shown


def test_a_job_whose_dependency_succeeded_is_queued_without_a_note(bench: Bench) -> None:
    """Also if it ends before the answer is made."""
    bench.until(bench.add("true", gpus=0))
    done = bench.cli("add", "-g0", "--after", "1", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_jobs_that_did_not_change_share_a_line_for_each_reason(bench: Bench) -> None:
    bench.add_many([{"command": "true"}] * 30, gpus=0)
    bench.wait_all()
    bench.add("true", hold=True)
    done = bench.cli("cancel", "all")
    assert (done.returncode, done.stdout) == (0, "31 cancelled\n")
    assert done.stderr == "1-30 already done\n"


@pytest.mark.parametrize("words", [("hold",), ("pause",), ("kill", "-s", "USR1"), ("retry", "--done")])
def test_a_verb_that_no_selected_job_allows_exits_with_1(bench: Bench, words: tuple[str, ...]) -> None:
    bench.until(bench.add("true", gpus=0))
    bench.until(bench.add(LONG, gpus=4), "started")
    chosen = "2" if words[0] in ("hold", "retry") else "1"
    assert bench.cli(*words, chosen).returncode == 1
    assert bench.cli(*words, "queued").returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("python", "train.py", "|", "tee", "log"),
            'python gets "|" as an argument. To let a shell interpret it: dibs add "python train.py | tee log"',
        ),
        (("echo", "a", "&&", "echo", "b"), 'echo gets "&&" as an argument.'),
        (("sleep 0 &",), "the command ends with &: the job ends at once, and what it started is stopped."),
        (("python trian.py",), "trian.py does not exist in "),
    ],
)
def test_a_command_that_does_something_else_than_meant_gets_a_hint(
    bench: Bench, words: tuple[str, ...], says: str
) -> None:
    (bench.folder / "train.py").write_text("")
    done = bench.cli("add", "-g0", *words)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert says in done.stderr


@pytest.mark.parametrize(
    "words", [("ssh", "host", "ls", "|", "wc"), ("sleep 0 && true",), ("--wait-tree", "sleep 0 &"), ("echo", "a|b")]
)
def test_a_command_that_means_what_it_says_gets_no_hint(bench: Bench, words: tuple[str, ...]) -> None:
    programs = bench.folder / "bin"
    programs.mkdir()
    (programs / "ssh").write_text("#!/bin/sh\n")
    (programs / "ssh").chmod(0o755)
    done = bench.cli("add", "-g0", *words, environ={"PATH": f"{programs}:{os.environ['PATH']}"})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_is_not_called_a_missing_command(bench: Bench, tmp_path: Path) -> None:
    done = bench.cli("add", str(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"dibs: command not found: {tmp_path}; it is a folder.\n")


def test_config_prints_switches_as_the_file_has_them(bench: Bench) -> None:
    shown = bench.cli("config", "command_server", environ={"DIBS_COMMAND_SERVER": "true"})
    assert shown.stdout == "true\n"


def test_wait_inside_a_job_does_not_wait_for_that_job(bench: Bench) -> None:
    """A job that submits others and waits for them would never end."""
    job_id = bench.add(f"{sys.executable} -m dibs add -g0 true && {sys.executable} -m dibs wait", gpus=0)
    assert bench.until(job_id)["exit_code"] == 0
    assert bench.job(2)["state"] == "done"
