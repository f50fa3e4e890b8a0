"""What a runner does while its command runs, with the time passed in: the warning before the limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attempt_bench import Bench
from dibs.runner import supervision
from dibs.system import process_tree, processes

CATCHER = """
import signal
warnings = []
signal.signal(signal.SIGUSR1, lambda *_: warnings.append(1))
signal.signal(signal.SIGUSR2, lambda *_: print(len(warnings), flush=True))
print("ready", flush=True)
while True: signal.pause()
"""
DEAF = "import signal; print('ready', flush=True)\nwhile True: signal.pause()"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    """Start one process that catches USR1, and one that would die of it."""
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for code in (CATCHER, DEAF)
    ]
    for child in started:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    yield started
    for child in started:
        child.kill()
        child.communicate()


def warnings(child: subprocess.Popen[str]) -> str:
    """Return the number of warnings received; pending ones are delivered first, their signal number being lower."""
    assert child.stdout is not None
    os.kill(child.pid, signal.SIGUSR2)
    return child.stdout.readline().strip()


def test_a_warning_before_the_limit_goes_to_processes_that_catch_it(
    tmp_path: Path, children: list[subprocess.Popen[str]]
) -> None:
    catcher, deaf = children
    spec = Bench(tmp_path).spec("true", time_limit_s=100.0, warn_signal=int(signal.SIGUSR1), warn_s=10.0)
    tree = supervision.Tree(spec, catcher.pid, 0.0, lambda what, names: None)
    assert tree.act(1.0) == 90.0
    assert warnings(catcher) == "0"
    assert tree.act(90.0) == 100.0
    assert warnings(catcher) == "1"
    assert tree.act(95.0) == 100.0
    assert warnings(catcher) == "1"
    assert deaf.poll() is None


def test_a_new_limit_causes_a_new_warning(tmp_path: Path, children: list[subprocess.Popen[str]]) -> None:
    catcher, _ = children
    spec = Bench(tmp_path).spec("true", time_limit_s=100.0, warn_signal=int(signal.SIGUSR1), warn_s=10.0)
    tree = supervision.Tree(spec, catcher.pid, 0.0, lambda what, names: None)
    tree.act(95.0)
    assert warnings(catcher) == "1"
    tree.obey(["limit", "200"], 96.0)
    assert tree.act(96.0) == 190.0
    tree.act(190.0)
    assert warnings(catcher) == "2"


def test_a_warning_waits_until_a_process_catches_it(tmp_path: Path, children: list[subprocess.Popen[str]]) -> None:
    catcher, deaf = children
    spec = Bench(tmp_path).spec("true", time_limit_s=100.0, warn_signal=int(signal.SIGTERM), warn_s=10.0)
    tree = supervision.Tree(spec, catcher.pid, 0.0, lambda what, names: None)
    assert tree.act(90.0) == 90.0 + supervision.WARN_AGAIN_S
    assert (catcher.poll(), deaf.poll()) == (None, None)


def test_without_a_limit_there_is_no_warning(tmp_path: Path, children: list[subprocess.Popen[str]]) -> None:
    spec = Bench(tmp_path).spec("true", warn_signal=int(signal.SIGUSR1), warn_s=10.0)
    tree = supervision.Tree(spec, children[0].pid, 0.0, lambda what, names: None)
    assert tree.act(1e9) == process_tree.NEVER


def test_signal_handlers_are_read_from_the_kernel(children: list[subprocess.Popen[str]]) -> None:
    catcher, deaf = children
    assert processes.catches(catcher.pid, signal.SIGUSR1)
    assert not processes.catches(catcher.pid, signal.SIGTERM)
    assert not processes.catches(deaf.pid, signal.SIGUSR1)
    assert not processes.catches(2**22 + 1, signal.SIGUSR1)
