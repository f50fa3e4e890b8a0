"""The process of one notification: the exit code of its command, its deadline, and all that it started."""

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
def test_its_exit_code_is_that_of_the_command(command: str, code: int) -> None:
    assert run(command).returncode == code


def test_the_command_gets_the_variables_and_the_folder(tmp_path: Path) -> None:
    done = run("cat; pwd", folder=str(tmp_path))
    assert done.stdout == f"facts\n{tmp_path}\n"


def test_a_missing_folder_does_not_matter() -> None:
    assert run("pwd", folder="/no/such/folder").stdout == "/\n"


def test_a_missing_shell_is_exit_code_126() -> None:
    done = run("true", shell="/no/such/shell")
    assert (done.returncode, done.stderr) == (126, "dibs: cannot run /no/such/shell: No such file or directory\n")


def test_at_the_deadline_the_whole_process_tree_is_ended(tmp_path: Path) -> None:
    """Including a process with its own session that ignores TERM."""
    stray = "setsid sh -c 'trap \"\" TERM; echo $$ > stray; while :; do sleep 0.01; done' &"
    done = run(f"{stray} while [ ! -s stray ]; do sleep 0.01; done; sleep 1000", 2.0, folder=str(tmp_path))
    assert done.returncode == 124
    pid = int((tmp_path / "stray").read_text())
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


def test_background_processes_may_finish() -> None:
    assert run("(sleep 0.2; echo late) & exit 3").stdout == "late\n"
