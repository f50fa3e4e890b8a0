"""The process of one notice: its command's code, its deadline, and all that it started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench import PATIENCE_S, wait_for
from dibs.engines.runner_pool import boot


def run(
    command: str, deadline_s: float = PATIENCE_S, shell: str = "/bin/sh", folder: str = "/"
) -> subprocess.CompletedProcess[str]:
    words = boot("notify_child", str(deadline_s), shell, folder, command)
    return subprocess.run(words, capture_output=True, text=True, input="facts\n", timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_its_code_is_the_commands(command: str, code: int) -> None:
    assert run(command).returncode == code


def test_it_gets_the_facts_and_runs_where_it_was_told(tmp_path: Path) -> None:
    done = run("cat; pwd", folder=str(tmp_path))
    assert done.stdout == f"facts\n{tmp_path}\n"


def test_a_folder_that_is_gone_does_not_matter() -> None:
    assert run("pwd", folder="/no/such/folder").stdout == "/\n"


def test_a_shell_that_is_not_there_is_126() -> None:
    done = run("true", shell="/no/such/shell")
    assert (done.returncode, done.stderr) == (126, "dibs: cannot run /no/such/shell: No such file or directory\n")


def test_at_the_deadline_all_of_it_is_ended_also_what_forked_away(tmp_path: Path) -> None:
    """Also a part that took a session of its own and ignores TERM."""
    stray = "setsid sh -c 'trap \"\" TERM; echo $$ > stray; while :; do sleep 0.01; done' &"
    done = run(f"{stray} while [ ! -s stray ]; do sleep 0.01; done; sleep 1000", 2.0, folder=str(tmp_path))
    assert done.returncode == 124
    pid = int((tmp_path / "stray").read_text())
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


def test_what_it_leaves_in_the_background_may_finish() -> None:
    assert run("(sleep 0.2; echo late) & exit 3").stdout == "late\n"
