"""Verbs that the command server runs: the same output, exit code and effects as in the client's own process."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys

import pytest

from bench import Bench, wait_for
from dibs.cli import command_server, fast_verbs
from dibs.cli import main as cli
from dibs.system import paths, processes

#: The full command line in the client's own process.
FULL = "import sys; from dibs.cli.main import main; sys.exit(main())"
#: The thin client alone: it fails where the command server does not accept.
THIN = (
    "import os, sys; from dibs.cli import fast_verbs as f; c = f.run(sys.argv[1:], os.environ); "
    "sys.exit(77 if c is None else c)"
)


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    own = Bench(tmp_path_factory.mktemp("queue"), DIBS_COMMAND_SERVER="true")
    own.start()
    own.add("echo one; echo two >&2", name="first")
    own.add("exit 3", name="second")
    own.wait_all()
    own.add("true", hold=True, name="third")
    wait_for(lambda: paths.commands_socket(own.home).exists())
    yield own
    own.close()


def run(queue, program, *words, **more):
    how = {"env": queue.environ, "cwd": queue.folder, "capture_output": True, "timeout": 60} | more
    return subprocess.run([sys.executable, "-c", program, *words], **how)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["status", "all"],
        ["status", "--json", "failed"],
        ["status", "-q"],
        ["show", "1"],
        ["show", "1", "--json"],
        ["show", "99"],
        ["why", "3"],
        ["log", "1"],
        ["log", "2", "-n", "1"],
        ["gpus"],
        ["config"],
        ["help", "selectors"],
        ["version"],
        ["status", "--nonsense"],
        ["cancel", "1"],
        ["retry", "99"],
        ["hold", "all+nonsense"],
    ],
)
def test_output_and_exit_code_are_those_of_the_full_command_line(queue, words):
    thin, full = run(queue, THIN, *words), run(queue, FULL, *words)
    assert (thin.returncode, thin.stdout, thin.stderr) == (full.returncode, full.stdout, full.stderr)


@pytest.mark.parametrize(
    "words",
    [["status"], ["status", "--columns", "id,name"], ["show", "1"], ["why", "3"], ["gpus"], ["log", "1", "-n", "1"],
     ["cancel", "1"], ["edit", "3", "-n", "third"], ["show", "99"], ["version"]],
)  # fmt: skip
def test_a_quick_verb_imports_nothing(queue, words):
    program = (
        "import sys; from dibs.cli import command_server, main; command_server.preload(); known = {*sys.modules}; "
        "main.execute(sys.argv[1:]); print(*sorted({*sys.modules} - known), file=open('imported', 'w'))"
    )
    run(queue, program, *words)
    assert (queue.folder / "imported").read_text() == "\n"


def test_a_child_that_waits_has_warmed_up_without_effect(queue):
    program = (
        "import os; from dibs.cli import command_server; command_server.preload(); before = dict(os.environ); "
        "command_server._warm_up(); assert dict(os.environ) == before"
    )
    counts = queue.client.get("/v1/queue")["counts"]
    done = run(queue, program)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert queue.client.get("/v1/queue")["counts"] == counts


def test_a_verb_changes_jobs_once(queue):
    job = queue.add("true", hold=True)
    thin = run(queue, THIN, "edit", str(job), "-n", "renamed")
    assert (thin.returncode, queue.job(job)["name"]) == (0, "renamed")
    assert [event["kind"] for event in queue.events(job)].count("Edited") == 1


def test_lines_of_stdin_are_queued_with_the_environment_of_the_client(queue):
    environ = queue.environ | {"OWN": "yes"}
    thin = run(queue, THIN, "add", "-", env=environ, input=b"echo one $OWN\necho two $OWN\n")
    first, second = map(int, thin.stdout.split())
    assert second == first + 1
    queue.until(second)
    assert run(queue, FULL, "log", str(second)).stdout == b"two yes\n"


@pytest.mark.parametrize("words", [("map", "true", "{}", ":::", "a", "b"), ("sweep", "true {x}", "-p", "x", "1", "2")])
def test_verbs_that_submit_many_jobs_run_in_the_server(queue, words):
    before = queue.jobs()
    thin = run(queue, THIN, *words)
    assert thin.returncode == 0, thin.stderr
    assert len(queue.jobs()) == len(before) + 2


def test_folder_environment_and_streams_are_those_of_the_client(queue, tmp_path):
    (tmp_path / "own.toml").write_text("grace = '45s'\n")
    environ = queue.environ | {
        "DIBS_CONFIG": str(tmp_path / "own.toml"),
        "COLUMNS": "300",
        "LC_ALL": "C",
        "TZ": "Asia/Tokyo",
    }
    thin = run(queue, THIN, "config", cwd=tmp_path, env=environ)
    full = run(queue, FULL, "config", cwd=tmp_path, env=environ)
    assert thin.stdout == full.stdout
    assert b"45s" in thin.stdout


@pytest.fixture
def asked(queue):
    """A client that asks on a terminal whether to cancel two running jobs; the terminal, the client, and the jobs."""
    jobs = [queue.long_job(), queue.long_job()]
    ours, its = pty.openpty()
    words = [sys.executable, "-c", THIN, "cancel", *map(str, jobs)]
    client = subprocess.Popen(words, env=queue.environ, stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    seen = b""
    while b"?" not in seen:
        assert select.select([ours], [], [], 60)[0], seen
        seen += os.read(ours, 1000)
    yield ours, client, jobs
    os.close(ours)
    queue.cancel(*jobs, grace_s=0)


def test_a_question_is_asked_on_the_terminal_of_the_client(queue, asked):
    terminal, client, jobs = asked
    os.write(terminal, b"n\n")
    assert client.wait(60) == cli.INTERRUPTED
    assert [queue.job(job)["state"] for job in jobs] == ["running", "running"]


def test_a_command_ends_with_its_client(queue, asked):
    terminal, client, jobs = asked
    client.send_signal(signal.SIGINT)
    client.wait(60)

    def is_hung_up() -> bool:
        # The last process with the terminal open was the one that asked.
        try:
            return bool(select.select([terminal], [], [], 0.01)[0]) and os.read(terminal, 1000) == b""
        except OSError:
            return True

    wait_for(is_hung_up)
    assert [queue.job(job)["state"] for job in jobs] == ["running", "running"]


def test_a_reader_that_leaves_early_ends_the_command(queue):
    ours, its = os.pipe()
    os.close(ours)
    thin = run(queue, THIN, "status", "all", capture_output=False, stdout=its)
    os.close(its)
    assert thin.returncode == cli.CLOSED_PIPE


def test_another_release_runs_the_command_itself(queue):
    other = THIN.replace("c = f.run", "f.__version__ = '0'; c = f.run")
    assert run(queue, other, "status").returncode == 77
    assert run(queue, THIN, "status").returncode == 0


def test_a_client_that_sends_nonsense_or_nothing_is_dropped(queue):
    for sent in (b"", b"\xff" * 8, (5).to_bytes(8, "big") + b"nope!", b"short"):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(paths.commands_socket(queue.home)))
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            try:
                assert client.recv(10) == b""
            except ConnectionResetError:
                # It closed before it had read everything.
                pass
    assert run(queue, THIN, "version").returncode == 0


def test_a_client_of_another_user_is_refused(monkeypatch):
    body = json.dumps({"argv": "status"}).encode()

    def receive():
        server, client = socket.socketpair()
        with server, client:
            socket.send_fds(client, [len(body).to_bytes(8, "big")], [0, 1, 2])
            client.sendall(body)
            return command_server._receive(server)

    request, streams = receive()
    assert (request, len(streams)) == ({"argv": "status"}, 3)
    for fd in streams:
        os.close(fd)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ValueError, match=r"^$"):
        receive()


def servers(own):
    """Return the processes of a queue's command server: itself, and children that wait or run a command."""
    socket_path = os.fsencode(paths.commands_socket(own.home))
    found = [proc for proc in processes.everybody() if socket_path in map(os.fsencode, processes.words(proc.pid))]
    pids = {proc.pid for proc in found}
    return [proc.pid for proc in found if proc.ppid not in pids], [proc.pid for proc in found if proc.ppid in pids]


def test_many_clients_at_once_are_all_served(queue):
    words = [sys.executable, "-c", THIN, "version"]
    clients = [subprocess.Popen(words, env=queue.environ, stdout=subprocess.DEVNULL) for _ in range(6)]
    # A busy machine may make one wait for longer than it is willing to; then it runs the command itself.
    assert {client.wait(60) for client in clients} <= {0, 77}
    wait_for(lambda: run(queue, THIN, "version").returncode == 0)


def test_a_waiting_child_that_is_killed_is_replaced(queue):
    _, waiting = wait_for(lambda: servers(queue), lambda found: len(found[1]) == 1)
    os.kill(waiting[0], signal.SIGKILL)
    wait_for(lambda: servers(queue)[1], lambda found: bool(found) and found != waiting)
    wait_for(lambda: run(queue, THIN, "version").returncode == 0)


def test_a_waiting_child_ends_with_a_server_that_is_killed(tmp_path):
    own = Bench(tmp_path, DIBS_COMMAND_SERVER="true")
    own.start()
    ([server], [child]) = wait_for(lambda: servers(own), lambda found: list(map(len, found)) == [1, 1])
    os.kill(server, signal.SIGKILL)
    # A zombie has no command line any more.
    wait_for(lambda: not processes.words(child))
    own.close()


def test_without_a_server_the_full_command_line_runs(bench):
    bench.start()
    assert not paths.commands_socket(bench.home).exists()
    assert run(bench, THIN, "status").returncode == 77
    assert json.loads(bench.fresh("status", "--json").stdout)["jobs"] == []


def test_the_server_ends_with_its_daemon_and_comes_with_the_next(tmp_path):
    own = Bench(tmp_path, DIBS_COMMAND_SERVER="true")
    own.start()
    path = paths.commands_socket(own.home)
    wait_for(path.exists)
    own.kill()
    wait_for(lambda: not path.exists())
    own.start()
    wait_for(path.exists)
    assert run(own, THIN, "status").returncode == 0
    own.close()


@pytest.mark.parametrize(
    ("words", "is_quick"),
    [
        ([], True),
        (["status"], True),
        (["status", "-w"], False),
        (["status", "-w2"], False),
        (["log", "-f", "1"], False),
        (["log", "1"], True),
        (["edit", "1"], False),
        (["edit", "1", "-n", "x"], True),
        (["config", "edit"], False),
        (["config", "set", "grace", "5s"], True),
        (["add", "-"], True),
        (["add", "--file", "/dev/fd/63"], False),
        (["sweep", "/proc/self/fd/63"], False),
        (["wait"], False),
        (["run", "true"], False),
        (["daemon", "restart"], False),
        (["status", "--debug"], False),
    ],
)
def test_verbs_that_follow_or_edit_stay_in_the_client(words, is_quick):
    assert fast_verbs.is_quick(words) is is_quick


def test_every_quick_verb_exists():
    assert not fast_verbs.VERBS - set(cli.VERBS)
