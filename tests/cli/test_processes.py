"""The command line as a process: the verbs of the daemon, closed streams, and the cost of a start."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.version import __version__


def test_the_daemon_starts_stops_and_reports_its_status(bench: Bench) -> None:
    down = bench.cli("daemon", "status")
    assert down.returncode == 5
    assert json.loads(bench.cli("daemon", "status", "--json").stdout)["running"] is False
    assert not bench.home.exists(), "looking must not start one"
    assert bench.cli("daemon", "start").stdout.startswith("started (pid ")
    assert bench.cli("daemon", "start").stdout.startswith("already running (pid ")
    told = json.loads(bench.cli("daemon", "status", "--json").stdout)
    assert told["running"] is True
    assert told["pid"] == bench.pid()
    assert told["version"] == __version__
    assert {"socket", "started_at"} <= told.keys()
    assert bench.cli("daemon", "status").stdout.startswith(f"running (pid {bench.pid()}")
    assert bench.cli("daemon", "stop").stdout == "stopped; running jobs continue\n"
    assert bench.pid() is None
    assert (bench.cli("daemon", "stop").returncode, bench.cli("daemon", "stop").stdout) == (0, "not running\n")


def test_a_restart_applies_a_new_devices_setting_and_keeps_jobs_running(bench: Bench) -> None:
    job_id = bench.add("while [ ! -e go ]; do sleep 0.01; done")
    bench.until(job_id, "started")
    before = bench.pid()
    done = bench.cli("daemon", "restart", environ={"DIBS_DEVICES": "fake:2"})
    assert done.returncode == 0
    assert bench.pid() not in (None, before)
    assert bench.cli("add", "true", environ={"DIBS_DEVICES": "fake:2"}).returncode == 0
    (bench.folder / "go").touch()
    bench.environ["DIBS_DEVICES"] = "fake:2"
    assert bench.until(job_id)["state"] == "done"


def test_only_an_explicit_start_uses_the_visible_devices_of_the_shell(bench: Bench) -> None:
    restricted = {"CUDA_VISIBLE_DEVICES": "1"}

    def seen_by_daemon() -> bytes:
        return Path(f"/proc/{bench.pid()}/environ").read_bytes()

    assert bench.cli("status", environ=restricted).returncode == 0
    assert b"CUDA_VISIBLE_DEVICES" not in seen_by_daemon()
    assert bench.cli("daemon", "restart", environ=restricted).returncode == 0
    assert b"CUDA_VISIBLE_DEVICES=1" in seen_by_daemon()
    leased = {**restricted, "DIBS_GPU_INDICES": "1"}
    assert bench.cli("daemon", "restart", environ=leased).returncode == 0
    assert b"CUDA_VISIBLE_DEVICES" not in seen_by_daemon(), "a lease of this shell is no job's"


def test_the_daemon_can_run_in_the_foreground(bench: Bench) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "daemon", "start", "--foreground"],
        env=bench.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert wait_for(bench.pid) == process.pid
    again = bench.cli("daemon", "start", "--foreground")
    assert (again.returncode, again.stdout) == (2, "")
    assert f"a daemon is already running (pid {process.pid})" in again.stderr
    assert bench.cli("daemon", "stop").returncode == 0
    assert process.wait(PATIENCE_S) == 0


def test_version_queries_a_daemon_but_starts_none(bench: Bench) -> None:
    for words in (["version"], ["--version"], ["-V"]):
        assert bench.cli(*words).stdout == f"dibs {__version__}\n"
    told = json.loads(bench.cli("version", "--json").stdout)
    assert (told["version"], told["daemon"], told["python"]) == (__version__, None, platform.python_version())
    assert bench.pid() is None
    bench.start()
    assert json.loads(bench.cli("version", "--json").stdout)["daemon"] == __version__


def test_a_daemon_that_cannot_start_is_a_one_line_error(bench: Bench) -> None:
    done = bench.cli("add", "true", environ={"DIBS_DEVICES": "fake:many"})
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("dibs: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("status",), ("gpus",), ("show", "1"), ("log", "1"), ("--help",), ("add", "true")])
def test_a_reader_that_closes_the_pipe_is_no_error(bench: Bench, words: tuple[str, ...]) -> None:
    bench.until(bench.add("seq 100000", gpus=0))
    read, write = os.pipe()
    os.close(read)
    done = _run(bench, write, *words)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def _run(bench: Bench, stdout: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dibs", *words]
    return subprocess.run(
        command, env=bench.environ, stdout=stdout, stderr=subprocess.PIPE, timeout=PATIENCE_S, cwd=bench.folder
    )


def test_a_full_disk_at_stdout_is_an_error(bench: Bench) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    done = _run(bench, full, "--help")
    os.close(full)
    assert (done.returncode, done.stderr) == (125, b"dibs: system error: No space left on device.\n")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_stream_is_not_confused_with_a_socket(bench: Bench, number: int) -> None:
    bench.start()
    script = f'exec {number}{"<" if number == 0 else ">"}&-; exec "$0" -m dibs add -g0 true'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], env=bench.environ, capture_output=True, text=True, cwd=bench.folder
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "" if number == 1 else "1\n", "")


def test_with_an_ascii_locale_output_is_escaped(bench: Bench) -> None:
    bench.until(bench.add("true", name="漢字", gpus=0))
    done = bench.fresh("status", environ={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 0
    assert "\\u6f22\\u5b57" in done.stdout


def test_a_bug_is_one_line_without_debug(bench: Bench) -> None:
    """An answer that is not JSON can only be a bug; a fake daemon on the socket sends it."""
    bench.home.mkdir(mode=0o700)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(bench.home / "dibs.sock"))
    server.listen()

    def serve() -> None:
        for _ in range(2):
            peer, _ = server.accept()
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{x}")
            peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    done = bench.cli("status")
    assert done.returncode == 125
    assert done.stderr.startswith("dibs: this is a bug: JSONDecodeError")
    assert done.stderr.endswith("Run with --debug for a traceback.\n")
    assert done.stderr.count("\n") == 1
    assert "Traceback" in bench.cli("--debug", "status").stderr
    thread.join()
    server.close()


def test_add_imports_few_modules_while_a_daemon_runs(bench: Bench) -> None:
    bench.start()
    code = "import sys; from dibs.cli.main import main; sys.argv = ['dibs', 'add', 'true']; main(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=bench.environ, capture_output=True, text=True, check=True, cwd=bench.folder
    )
    loaded = set(done.stdout.splitlines()[1].split())
    heavy = {"argparse", "rich", "asyncio", "subprocess", "difflib", "tomllib", "logging", "http.client", "sqlite3"}
    assert not loaded & heavy
    # Each Python loads modules of its own besides.
    assert sum(name.startswith("dibs") for name in loaded) < 45


def test_piped_verbs_do_not_import_rich(bench: Bench) -> None:
    bench.add("true")
    for words in (["status"], ["show", "1"], ["gpus"], ["log", "1"], ["wait"]):
        code = f"import sys; from dibs.cli.main import main; sys.argv = ['dibs', *{words}]; main(); print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], env=bench.environ, capture_output=True, text=True, check=True
        )
        assert not {"rich", "argparse"} & set(done.stdout.splitlines()[-1].split())
