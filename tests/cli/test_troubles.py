"""Every verb on a broken machine: no daemon, an unwritable disk, a closed output.

One table of verbs for all of it. The common rules apply to a verb outside the table: at most one line, no
traceback, and a failure as exit code.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.cli import main as cli

#: The arguments with which a verb would do something on a queue with one finished job.
WORDS: dict[str, tuple[str, ...]] = {
    "status": (), "add": ("-g0", "true"), "run": ("-g0", "true"), "show": ("1",), "why": ("1",), "log": ("1",),
    "follow": ("1",), "wait": (), "cancel": ("1",), "retry": ("--done", "1"), "hold": ("1",), "unhold": ("1",),
    "pause": (), "resume": (), "gpus": (), "lease": ("echo", "leased"), "pipe": (), "daemon": ("status",),
    "version": (), "help": (),
}  # fmt: skip
#: Verbs that need no daemon; `daemon status` says that there is none.
ALONE = {"lease": 0, "pipe": 0, "daemon": 5, "version": 0, "help": 0}
#: Verbs that print nothing here: they do not notice that nobody reads.
SILENT = {"pipe", "wait", "run", "log", "follow", "cancel", "hold", "unhold"}
#: The folder holds one job, which is done and printed nothing.
NO_DAEMON = 5

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


def typed(verb: str) -> tuple[str, ...]:
    return (verb, *WORDS.get(verb, ()))


def check_one_line(done: subprocess.CompletedProcess[str], verb: str, code: int) -> None:
    """Check that the problem was reported by one line and the exit code."""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) <= 1, done.stderr
    assert all(line.startswith("dibs: ") for line in lines)
    if verb in ALONE:
        assert (done.returncode, done.stderr) == (ALONE[verb], "")
    elif verb in WORDS:
        assert (done.returncode, done.stdout, len(lines)) == (code, "", 1)
    else:
        # 1 is the code of `doctor`, which found it.
        assert done.returncode in (0, 1, 2, code)


@pytest.mark.parametrize("verb", cli.VERBS)
def test_a_daemon_that_cannot_start_is_exit_code_5(bench: Bench, verb: str) -> None:
    # Only the daemon and these verbs use that folder.
    wrong = {} if verb in ("lease", "pipe", "reserve") else {"DIBS_LEASE_DIR": "/no/such/folder"}
    check_one_line(bench.cli(*typed(verb), environ=wrong), verb, NO_DAEMON)


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Path]:
    """Put the state folder on a separate file system of one megabyte."""
    bench.home.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "dibs-test", bench.home], check=True)
    yield bench.home
    bench.close()
    subprocess.run(["umount", "--lazy", bench.home], check=True)


@needs_root
@pytest.mark.parametrize("verb", cli.VERBS)
def test_a_full_state_folder_is_an_error(bench: Bench, small_disk: Path, verb: str) -> None:
    with open("/dev/zero", "rb") as zeros:
        subprocess.run(["dd", f"of={small_disk}/ballast", "bs=4k"], stdin=zeros, stderr=subprocess.DEVNULL, check=False)
    done = bench.cli(*typed(verb))
    check_one_line(done, verb, NO_DAEMON)
    assert verb in ALONE or verb not in WORDS or "No space left on device" in done.stderr or "full" in done.stderr


@needs_root
@pytest.mark.parametrize("verb", cli.VERBS)
def test_a_read_only_state_folder_is_an_error(bench: Bench, small_disk: Path, verb: str) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = bench.cli(*typed(verb))
    check_one_line(done, verb, NO_DAEMON)
    assert verb in ALONE or verb not in WORDS or "Read-only file system" in done.stderr


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A queue with one finished job and a daemon."""
    bench = Bench(tmp_path_factory.mktemp("used"))
    bench.until(bench.add("true", gpus=0))
    yield bench
    bench.close()


@pytest.mark.parametrize("verb", cli.VERBS)
def test_a_closed_pipe_at_stdout_ends_a_verb_quietly(used: Bench, verb: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "dibs", *typed(verb)],
        env=used.environ, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE, text=True,
        timeout=PATIENCE_S, cwd=used.folder, check=False,
    )  # fmt: skip
    os.close(write)
    assert "Traceback" not in done.stderr
    if verb in WORDS and verb not in SILENT and verb != "lease":
        assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("verb", cli.VERBS)
def test_a_closed_stdout_changes_nothing_but_the_output(used: Bench, verb: str) -> None:
    if verb == "lease":
        # Its command has a closed stdout too, and may say so.
        words: tuple[str, ...] = ("lease", "true")
    else:
        words = typed(verb)
    usual = used.cli(*words)
    script = 'exec >&-; exec "$0" -m dibs "$@"'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, *words],
        env=used.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
        cwd=used.folder, check=False,
    )  # fmt: skip
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.returncode == usual.returncode


@pytest.mark.parametrize("kind", ["dead socket", "plain file"])
@pytest.mark.parametrize("verb", ["status", "add", "run", "wait", "gpus"])
def test_the_socket_of_a_dead_daemon_is_no_problem(bench: Bench, verb: str, kind: str) -> None:
    bench.home.mkdir(mode=0o700)
    left = bench.home / "dibs.sock"
    if kind == "plain file":
        left.write_text("")
    else:
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(left))
    done = bench.cli(*typed(verb))
    assert done.returncode == 0
    assert "dibs: " not in done.stderr


@pytest.mark.parametrize("verb", cli.VERBS)
def test_a_state_folder_that_is_a_file_is_an_error(bench: Bench, verb: str) -> None:
    bench.home.write_text("")
    done = bench.cli(*typed(verb))
    bench.home.unlink()
    check_one_line(done, verb, 2)


@needs_root
@pytest.mark.parametrize("verb", cli.VERBS)
def test_a_missing_home_is_an_error(bench: Bench, verb: str) -> None:
    """A user without an entry in the user database and without HOME, as in many containers."""
    kept = {name: value for name, value in bench.environ.items() if name not in ("HOME", "DIBS_HOME", "USER")}
    # The interpreter may lie in a home that only its owner may enter; to read it anyway is all this user may do more.
    reader = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    done = subprocess.run(
        ["setpriv", "--reuid", "54321", *reader, sys.executable, "-m", "dibs", *typed(verb)],
        env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, cwd="/", check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    # A lease and a pipe need no home, but a folder that this user may write to.
    if verb in WORDS and verb not in ("lease", "pipe", "version", "help"):
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "dibs: expected a home folder, but HOME is not set and user 54321 has none. Set HOME or DIBS_HOME.\n"
        )


def test_without_home_the_user_database_is_used(bench: Bench) -> None:
    kept = {name: value for name, value in bench.environ.items() if name != "HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "status"],
        env=kept,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0
    assert "dibs: " not in done.stderr


@pytest.mark.parametrize("option", ["-o", "--stderr"])
def test_an_unwritable_output_is_refused_at_once(used: Bench, option: str) -> None:
    fifo = used.folder / f"fifo{option}"
    os.mkfifo(fifo)
    done = used.cli("add", "-g0", option, fifo.name, "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("expected a regular file or a terminal, but it is a FIFO.\n")
    assert used.cli("add", "-g0", option, "/dev/null", "true").returncode == 0


def test_a_fifo_that_appears_later_fails_the_job_and_frees_its_gpu(used: Bench) -> None:
    """The path has a placeholder, so it is first known at the start; it is tested as the API sends it."""
    os.mkfifo(used.folder / "later")
    job = used.until(used.add("true", gpus=1, output=str(used.folder / "later")))
    assert (job["state"], job["exit_code"]) == ("failed", 126)
    assert "it is a FIFO" in job["remark"]
    wait_for(used.free_devices, lambda free: free == [0, 1, 2, 3])
