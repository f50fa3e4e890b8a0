"""The warm interpreter of the tests: its children are ordinary processes, and the end of one does not affect others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forking
from bench import Bench, wait_for
from dibs.client import connection
from dibs.system import processes


@pytest.fixture
def nothing() -> Iterator[int]:
    """Yield /dev/null."""
    fd = os.open(os.devnull, os.O_RDWR)
    yield fd
    os.close(fd)


def sleeper(nothing: int) -> forking.Forked:
    """Start a process that runs until it is ended."""
    return forking.start(None, ["sleep", "1000"], os.environ, Path("/"), [nothing] * 3)


def traits(pid: int) -> dict[str, object]:
    """Return what is visible of a process from outside, and does not depend on how it was started."""
    status = Path(f"/proc/{pid}/status").read_text()
    signals = re.findall(r"^Sig(Blk|Ign|Cgt):\s+(\S+)$", status, re.MULTILINE)
    # The C library reserves those from 32 on.
    masks = {name: int(mask, 16) & 0x7FFFFFFF for name, mask in signals}
    return masks | {
        "umask": re.findall(r"^Umask:\s+(\d+)$", status, re.MULTILINE),
        "folder": os.readlink(f"/proc/{pid}/cwd"),
        "leads": os.getsid(pid) == pid,
    }


def test_a_command_line_behaves_as_in_a_fresh_interpreter(bench: Bench) -> None:
    for words in (["version"], ["config"], ["help", "add"], ["nonsense"], ["lease", "--env", "--json"]):
        forked, fresh = bench.cli(*words), bench.fresh(*words)
        assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_a_daemon_equals_one_started_by_a_user(bench: Bench) -> None:
    """Its session, its folder, and the signals that it ignores, blocks and catches."""
    bench.start()
    assert [daemon.pid for daemon in bench.client.daemons] == [bench.pid()]
    forked = wait_for(lambda: traits(bench.client.daemons[0].pid), lambda found: not found["Blk"])
    bench.stop()
    connection.Client(bench.home, bench.environ).start()
    pid = bench.pid()
    assert pid is not None
    # While a thread starts a process, it blocks all signals.
    wait_for(lambda: traits(pid), lambda found: found == forked)


def test_a_process_has_only_the_given_descriptors(tmp_path: Path) -> None:
    done = forking.run(None, ["ls", "/proc/self/fd"], os.environ, tmp_path)
    # The last one is that of `ls`, for the folder.
    assert done.stdout.split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -TERM $$", -15), ("kill -INT $$", -2)]
)
def test_the_exit_code_of_a_process_is_reported(nothing: int, script: str, code: int) -> None:
    process = forking.start(None, ["sh", "-c", script], os.environ, Path("/"), [nothing] * 3)
    assert process.wait() == code
    assert process.poll() == code


def test_a_process_is_reaped_when_its_end_is_reported(nothing: int) -> None:
    """Counting processes afterwards finds no zombie."""
    process = sleeper(nothing)
    seen = processes.look(process.pid)
    assert seen is not None
    assert process.poll() is None
    process.kill()
    process.wait()
    now = processes.look(process.pid)
    assert now is None or now.key != seen.key


def test_many_concurrent_processes_end_with_their_own_codes(nothing: int) -> None:
    codes = list(range(100))
    many = [forking.start(None, ["sh", "-c", f"exit {code}"], os.environ, Path("/"), [nothing] * 3) for code in codes]
    assert [process.wait() for process in reversed(many)] == codes[::-1]


def test_a_program_that_cannot_run_gives_the_reason_and_affects_no_other(tmp_path: Path) -> None:
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


def test_the_death_of_the_interpreter_is_reported_and_a_new_one_is_started() -> None:
    """In a separate test run, whose warm interpreter nobody else uses."""
    command = [sys.executable, "-c", DYING]
    environ = os.environ | {"PYTHONPATH": str(Path(forking.__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=forking.PATIENCE_S)
    assert done.stderr == ""
    told, again = done.stdout.splitlines()
    assert re.fullmatch(r"nobody can tell how process \d+ ended: the warm interpreter ended with -9 and said: ''", told)
    assert again == "None"


def test_the_interpreter_does_not_count_as_a_process_of_the_test_that_needs_it_first() -> None:
    """A queue's tests end everything that has its DIBS_HOME."""
    script = (
        "import os, forking; fd = os.open(os.devnull, os.O_RDWR);"
        "child = forking.start(None, ['sleep', '1000'], os.environ, '/', [fd] * 3);"
        "parent = open(f'/proc/{child.pid}/stat').read().rpartition(')')[2].split()[1];"
        "print(b'DIBS_HOME' in open(f'/proc/{parent}/environ', 'rb').read())"
    )
    environ = os.environ | {"PYTHONPATH": str(Path(forking.__file__).parent), "DIBS_HOME": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ)
    assert (done.stdout, done.stderr) == ("False\n", "")


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
