"""The warm interpreter of the tests: what it forks is a process like any other, and no end of one harms the next."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forking
from bench import Bench
from dibs.client import connection
from dibs.system import processes


@pytest.fixture
def nothing() -> Iterator[int]:
    """Yield /dev/null."""
    fd = os.open(os.devnull, os.O_RDWR)
    yield fd
    os.close(fd)


def sleeper(nothing: int) -> forking.Forked:
    """Start what lasts until it is ended."""
    return forking.start(None, ["sleep", "1000"], os.environ, Path("/"), [nothing] * 3)


def traits(pid: int) -> dict[str, object]:
    """Return what can be seen of a process from outside, and does not depend on how it was started."""
    status = Path(f"/proc/{pid}/status").read_text()
    signals = re.findall(r"^Sig(Blk|Ign|Cgt):\s+(\S+)$", status, re.MULTILINE)
    # The C library keeps those from 32 on for itself.
    masks = {name: int(mask, 16) & 0x7FFFFFFF for name, mask in signals}
    return masks | {
        "umask": re.findall(r"^Umask:\s+(\d+)$", status, re.MULTILINE),
        "folder": os.readlink(f"/proc/{pid}/cwd"),
        "leads": os.getsid(pid) == pid,
    }


def test_a_command_line_says_the_same_as_in_a_fresh_interpreter(bench: Bench) -> None:
    for words in (["version"], ["config"], ["help", "add"], ["nonsense"], ["lease", "--env", "--json"]):
        forked, fresh = bench.cli(*words), bench.fresh(*words)
        assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_a_daemon_is_what_it_is_when_a_user_starts_it(bench: Bench) -> None:
    """Its session, its folder, and the signals that it ignores, blocks and catches."""
    bench.start()
    assert [daemon.pid for daemon in bench.client.daemons] == [bench.pid()]
    forked = traits(bench.client.daemons[0].pid)
    bench.stop()
    connection.Client(bench.home, bench.environ).start()
    pid = bench.pid()
    assert pid is not None
    assert forked == traits(pid)


def test_a_process_has_no_descriptors_but_those_it_was_given(tmp_path: Path) -> None:
    done = forking.run(None, ["ls", "/proc/self/fd"], os.environ, tmp_path)
    # The last one is that of `ls`, for the folder.
    assert done.stdout.split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -TERM $$", -15), ("kill -INT $$", -2)]
)
def test_the_end_of_a_process_is_told_as_it_was(nothing: int, script: str, code: int) -> None:
    process = forking.start(None, ["sh", "-c", script], os.environ, Path("/"), [nothing] * 3)
    assert process.wait() == code
    assert process.poll() == code


def test_a_process_that_ended_is_gone_when_it_is_told(nothing: int) -> None:
    """Nobody who counts processes afterwards finds a zombie."""
    process = sleeper(nothing)
    seen = processes.look(process.pid)
    assert seen is not None
    assert process.poll() is None
    process.kill()
    process.wait()
    now = processes.look(process.pid)
    assert now is None or now.key != seen.key


def test_many_at_once_end_each_with_its_own_code(nothing: int) -> None:
    codes = list(range(100))
    many = [forking.start(None, ["sh", "-c", f"exit {code}"], os.environ, Path("/"), [nothing] * 3) for code in codes]
    assert [process.wait() for process in reversed(many)] == codes[::-1]


def test_what_cannot_be_run_says_why_and_harms_nobody(tmp_path: Path) -> None:
    done = forking.run(None, ["/no/such/program"], os.environ, tmp_path)
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr
    assert forking.run("dibs", ["version"], os.environ, tmp_path).returncode == 0


DYING = """
import os, signal, sys
import forking
fd = os.open(os.devnull, os.O_RDWR)
def sleeper():
    return forking.start(None, ["sleep", "1000"], os.environ, "/", [fd] * 3)
first = sleeper()
os.kill(int(open(f"/proc/{first.pid}/stat").read().rpartition(")")[2].split()[1]), signal.SIGKILL)
for ask in (first.wait, sleeper):
    try:
        ask()
    except RuntimeError as error:
        print(error)
second = sleeper()
print(second.poll())
os.kill(first.pid, signal.SIGKILL)
"""


def test_the_death_of_the_interpreter_is_told_with_its_cause_and_the_next_one_asks_a_new_one() -> None:
    """In a test run of its own, whose warm interpreter nobody else uses."""
    command = [sys.executable, "-c", DYING]
    environ = os.environ | {"PYTHONPATH": str(Path(forking.__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=forking.PATIENCE_S)
    assert done.stderr == ""
    told, again = done.stdout.splitlines()
    assert re.fullmatch(r"nobody can tell how process \d+ ended: the warm interpreter ended with -9 and said: ''", told)
    assert again == "None"


def test_nothing_is_left_when_the_test_run_ends() -> None:
    script = (
        "import os, forking; fd = os.open(os.devnull, os.O_RDWR);"
        "print(forking.start(None, ['sleep', '1000'], os.environ, '/', [fd] * 3).pid)"
    )
    environ = os.environ | {"PYTHONPATH": str(Path(forking.__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environ, timeout=forking.PATIENCE_S
    )
    assert done.stderr == ""
    left = processes.look(int(done.stdout))
    assert left is None or left.comm != "sleep"
