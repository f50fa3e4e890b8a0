"""The commands without a daemon on a broken machine: one clear line, the right code, nothing run or left behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import PATIENCE_S, Bench
from dibs.system import users
from old_tools import OldTools

GATE = ".dibs-gate-FAKE-0"


@pytest.fixture
def tools(bench: Bench) -> OldTools:
    return OldTools(bench)


def command(tools: OldTools, door: str) -> list[str]:
    """Return the command line that runs something on GPU 0 with a command."""
    task = ["touch", "ran"]
    return {
        "lease": [sys.executable, "-m", "dibs", "lease", "--gpu-ids", "0", *task],
        "schedule": tools.command("schedule", "-fg", "0", " ".join(task)),
        "sch": tools.command("sch", "-i", "4", "-f", "0", *task),
    }[door]


def run(tools: OldTools, door: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(tools, door),
        env=tools.environ,
        cwd=tools.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **how,
    )


def missing(folder: Path, dear: Path) -> None:
    folder.rmdir()


def replaced_by_a_file(folder: Path, dear: Path) -> None:
    folder.rmdir()
    folder.touch()


def planted_link(folder: Path, dear: Path) -> None:
    (folder / GATE).symlink_to(dear)


def planted_file(folder: Path, dear: Path) -> None:
    """A second name of a file that must not change."""
    os.link(dear, folder / GATE)


def planted_pipe(folder: Path, dear: Path) -> None:
    os.mkfifo(folder / GATE)
    (folder / GATE).chmod(0o666)


def planted_folder(folder: Path, dear: Path) -> None:
    (folder / GATE).mkdir()


FAULTS: dict[Callable[[Path, Path], None], str] = {
    missing: "cannot read the lease folder {folder}: No such file or directory. ",
    replaced_by_a_file: "cannot read the lease folder {folder}: Not a directory. ",
    planted_link: f"cannot use {{folder}}/{GATE}: ",
    planted_file: f"cannot use {{folder}}/{GATE}: not all users can write to it (mode 0600) ",
    planted_pipe: f"cannot use {{folder}}/{GATE}: it is not a regular file ",
    planted_folder: f"cannot use {{folder}}/{GATE}: ",
}


@pytest.mark.parametrize("door", ["lease", "schedule", "sch"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_lease_folder_is_a_one_line_error(
    tools: OldTools, door: str, fault: Callable[[Path, Path], None]
) -> None:
    dear = tools.folder / "dear"
    dear.write_text("mine\n")
    dear.chmod(0o600)
    folder = tools.bench.leases
    fault(folder, dear)
    done = run(tools, door)
    assert (done.returncode, done.stdout) == (125, "")
    said = FAULTS[fault].format(folder=folder)
    if said.startswith("cannot use "):
        assert f"(owner: {users.own()})" in done.stderr
    if door == "lease":
        said = f"dibs: {said.replace('cannot use', 'GPU 0 cannot be leased: cannot use')}"
    else:
        said = f"{door}: {said}"
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert not (tools.folder / "ran").exists()
    assert dear.read_text() == "mine\n"


@pytest.mark.parametrize("door", ["lease", "schedule", "sch"])
def test_without_space_for_a_ticket_there_is_an_error_and_nothing_is_left(tools: OldTools, door: str) -> None:
    """No byte can be written, as on a full disk, and the GPU is held: there is no way to queue for it."""
    tools.run("schedule", "-s")
    with tools.started("schedule", "-fg", "0", "sh -c 'echo > began; sleep 1000'"):
        tools.file("began")
        before = sorted(os.listdir(tools.bench.leases))
        done = run(tools, door, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        assert done.returncode == 125
        lines = done.stderr.splitlines()
        assert f"cannot keep a ticket in the lease folder {tools.bench.leases}: File too large." in lines[-1]
        assert len(lines) == 1
        assert sorted(os.listdir(tools.bench.leases)) == before


@pytest.mark.parametrize("door", ["lease", "schedule"])
def test_a_full_disk_does_not_prevent_the_use_of_a_free_gpu(tools: OldTools, door: str) -> None:
    tools.run("schedule", "-s")
    done = run(tools, door, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert done.returncode == 0
    assert (tools.folder / "ran").exists()
    said = f"schedule: cannot use the state file {tools.path}: File too large"
    assert [line.partition(" (")[0] for line in done.stderr.splitlines()] == ([said] if door == "schedule" else [])


def test_a_state_file_in_a_missing_folder_is_an_error(tools: OldTools) -> None:
    done = tools.run("schedule", "touch ran", DIBS_COMPAT_STATE=str(tools.folder / "no" / "info"))
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "No such file or directory" in done.stderr
    refused = tools.run("sch", "touch", "ran", DIBS_COMPAT_STATE=str(tools.folder / "no" / "info"))
    assert (refused.returncode, refused.stdout) == (
        1, "The scheduler needs to be initializes with --init arg first.\n"
    )  # fmt: skip
