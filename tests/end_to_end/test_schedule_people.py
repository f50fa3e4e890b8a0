"""Two users and the old scheduler's commands: one state file that both may write, leases that it cannot give away."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import people
from bench import PATIENCE_S, wait_for
from dibs.leases import tickets
from dibs.system.locks import Folder
from dibs_compat.schedule import state_file
from people import Person, SharedMachine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making two unix users needs root")

GATE = "sh -c 'echo > began; while [ ! -e go ]; do sleep 0.01; done'"


@pytest.fixture
def machine() -> Iterator[SharedMachine]:
    """One whose leases are in a folder like /tmp."""
    with people.shared_machine(".") as found:
        yield found


@pytest.fixture
def shared(machine: SharedMachine) -> Path:
    return machine.folder


@pytest.fixture
def pair(machine: SharedMachine) -> tuple[Person, Person]:
    made = machine.pair("fake:1")
    for person in made:
        person.environ["DIBS_COMPAT_STATE"] = str(machine.folder / "info")
    return made


def run(person: Person, tool: str, *words: str) -> tuple[int, str, str]:
    """Run one of the commands as a user; return exit code, output and errors."""
    with person.popen(*words, tool=tool) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


@contextmanager
def started(person: Person, tool: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start one of the commands as a user; it is ended with the test."""
    with person.popen(*words, tool=tool, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def task_pid(shared: Path) -> int | None:
    """Return the pid in the state file for the only GPU."""
    entries = state_file.parse((shared / "info").read_bytes())
    return entries[0].task_pid if entries else None


def test_all_users_share_one_state_and_one_line(pair: tuple[Person, Person], shared: Path) -> None:
    ann, ben = pair
    with started(ann, "schedule", GATE) as hers:
        wait_for((ann.folder / "began").exists)
        # Until the task runs, the entry has the pid of its scheduler.
        pid = wait_for(lambda: task_pid(shared), lambda seen: seen not in (None, hers.pid))
        shown = run(ben, "sch", "-s")[1]
        assert f"GPU: cuda0\nUser: {ann.name}\nTask: ['sh', '-c', " in shown
        assert run(ben, "sch", "-r", "0")[::2] == (
            2, f"sch: GPU 0 is in use by {ann.name} (pid {pid}). --force stops the task on it.\n"
        )  # fmt: skip
        assert run(ben, "sch", "-r", "0", "--force")[0] == 4, "nobody ends the task of somebody else"
        with started(ben, "sch", "touch", "ran") as his:
            wait_for(lambda: [ticket.user for ticket in tickets.line(Folder(str(shared)))] == [ben.name])
            (ann.folder / "go").touch()
            assert (hers.wait(PATIENCE_S), his.wait(PATIENCE_S)) == (0, 0)
    assert (ben.folder / "ran").exists()
    assert state_file.parse((shared / "info").read_bytes()) == (state_file.FREE,)


def test_a_read_only_state_file_can_still_be_read(pair: tuple[Person, Person], shared: Path) -> None:
    ann, ben = pair
    (shared / "info").write_bytes(state_file.text((state_file.SET_ASIDE, state_file.FREE)))
    (shared / "info").chmod(0o644)
    code, out, err = run(ben, "schedule", "-v", "true")
    assert (code, err.count("\n")) == (0, 1)
    assert out.startswith("GPU: cuda1\n")
    assert "Permission denied (owner: uid 0)" in err
    assert run(ann, "schedule", "-i", "1")[0] == 125
