"""Trouble of the machine, or of another user's making, costs no job: starts are refused, jobs wait, and all finish."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from dibs.runner import attempts
from dibs.system import paths, processes
from fakes.faults.broken_calls import BrokenCalls

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and limits of other processes need root")

#: Jobs that wait while the trouble lasts.
MANY = 300
#: Refused starts until the trouble is removed.
TRIES = 3
FULL = "No space left on device"


def submit_many(bench: Bench, **wanted: Any) -> list[int]:
    """Queue many short jobs without retries, most of them with a GPU."""
    return bench.add_many(
        [{"command": "true", "gpus": int(number % 4 > 0)} for number in range(MANY)], retries=0, **wanted
    )


def refusals(bench: Bench) -> int:
    """Return how often the machine refused to start something."""
    return paths.daemon_log(bench.home).read_text().count("a start was refused: ")


def wait_for_reason(bench: Bench, job: int, words: str) -> str:
    """Wait until `why` names the trouble; return all that it says."""
    return wait_for(lambda: bench.reason(job), lambda reason: words in reason)


def check_all_done(bench: Bench) -> None:
    """Let everything finish: no job failed, none used a second attempt."""
    jobs = bench.wait_all(300)
    assert {(job["state"], job["attempt"]) for job in jobs} == {("done", 1)}
    assert bench.client.get("/v1/gpus")["starts"] is None


def survive(bench: Bench, words: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
    """Queue jobs into a trouble, see it named everywhere, remove it, and see all jobs finish."""
    begin()
    ids = submit_many(bench)
    wait_for(lambda: refusals(bench), lambda count: count >= TRIES)
    reason = wait_for_reason(bench, ids[-1], words)
    assert "starts are paused: " in reason
    assert words in wait_for(lambda: bench.cli("status", "queued").stderr, lambda text: "paused" in text)
    assert words in wait_for(lambda: bench.cli("gpus").stderr, lambda text: "paused" in text)
    assert bench.client.get("/v1/queue")["counts"]["failed"] == 0
    end()
    check_all_done(bench)


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """Mount a small file system at a folder."""
    folder.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "dibs-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def use_up_inodes(folder: Path) -> Callable[[], None]:
    """Create files until the file system has no inode left; return how to remove them."""
    made: list[Path] = []
    while os.statvfs(folder).f_ffree:
        made.append(folder / f"filler.{len(made)}")
        made[-1].touch()

    def remove() -> None:
        for path in made:
            path.unlink()

    return remove


@pytest.fixture
def files_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own for logs and checkpoints."""
    with small_disk(tmp_path / "files", "size=64m,nr_inodes=3000"):
        yield tmp_path / "files"


@needs_root
def test_jobs_survive_a_log_disk_without_inodes(tmp_path: Path, files_disk: Path) -> None:
    bench = Bench(tmp_path, DIBS_FILES=str(files_disk))
    with contextlib.closing(bench):
        bench.start()
        remove: list[Callable[[], None]] = []
        survive(bench, FULL, lambda: remove.append(use_up_inodes(files_disk)), lambda: remove[0]())


@needs_root
def test_jobs_survive_a_state_disk_without_inodes(tmp_path: Path) -> None:
    """Not even a claim can be made then, nor a tombstone."""
    bench = Bench(tmp_path)
    with small_disk(bench.home, "size=64m,nr_inodes=4000,mode=700"), contextlib.closing(bench):
        bench.start()
        remove: list[Callable[[], None]] = []
        survive(bench, FULL, lambda: remove.append(use_up_inodes(bench.home)), lambda: remove[0]())


@needs_root
def test_jobs_survive_a_lease_disk_that_is_full_before_their_lease_files_are_made(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with small_disk(bench.leases, "size=1m,nr_inodes=64,mode=1777"), contextlib.closing(bench):
        bench.start()
        remove = use_up_inodes(bench.leases)
        ids = bench.add_many([{"command": "true", "gpus": 1}] * MANY, retries=0)
        wait_for(lambda: refusals(bench), lambda count: count >= TRIES)
        reason = wait_for_reason(bench, ids[-1], FULL)
        assert str(bench.leases) in reason
        (shown,) = {gpu["fault"] for gpu in bench.client.get("/v1/gpus")["gpus"] if gpu["fault"]}
        assert FULL in shown
        # Without a GPU nothing is in the way.
        assert bench.until(bench.add("true", gpus=0))["state"] == "done"
        remove()
        check_all_done(bench)


@pytest.mark.parametrize(
    ("call", "number"),
    [("link", errno.EIO), ("link", errno.ENOSPC), ("flock", errno.ENOLCK), ("flock", errno.EIO)],
)
def test_jobs_survive_system_calls_that_fail(tmp_path: Path, bench: Bench, call: str, number: int) -> None:
    calls = BrokenCalls(tmp_path)
    bench.start(**calls.environ)
    survive(bench, os.strerror(number), lambda: calls.fail(call, number), calls.work)


def limit(kind: int, most: int, pids: list[int]) -> list[tuple[int, tuple[int, int]]]:
    """Lower a limit of processes; return the old ones."""
    return [(pid, resource.prlimit(pid, kind, (most, resource.prlimit(pid, kind)[1]))) for pid in pids]


@needs_root
def test_jobs_survive_a_daemon_without_descriptors(bench: Bench) -> None:
    """No runner waits for its next job yet: it could run all of them without a new descriptor."""
    bench.start()
    pid = bench.pid()
    assert pid is not None
    old: list[tuple[int, tuple[int, int]]] = []

    def begin() -> None:
        # Enough for connections of clients, too few for a runner.
        used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
        old.extend(limit(resource.RLIMIT_NOFILE, used + 3, [pid]))

    def end() -> None:
        # A launcher that was started meanwhile has inherited the limit.
        for each in (pid, *(proc.pid for proc in processes.descendants(pid))):
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(each, resource.RLIMIT_NOFILE, old[0][1])

    survive(bench, "Too many open files", begin, end)


@needs_root
def test_jobs_survive_a_limit_of_descriptors_below_those_of_their_leases(bench: Bench) -> None:
    """Started with `ulimit -n 40`: no command can inherit its leases, which are on higher numbers."""
    bench.start()
    pid = bench.pid()
    assert pid is not None
    before = [(pid, resource.prlimit(pid, resource.RLIMIT_NOFILE))]

    def begin() -> None:
        # The launcher, and with it every runner, inherits the limit.
        bench.until(bench.add("true", gpus=1))
        for proc in processes.descendants(pid):
            before.extend(limit(resource.RLIMIT_NOFILE, 40, [proc.pid]))

    def end() -> None:
        for each, old in before:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(each, resource.RLIMIT_NOFILE, old)
        for proc in processes.descendants(pid):
            resource.prlimit(proc.pid, resource.RLIMIT_NOFILE, before[0][1])

    survive(bench, "Too many open files", begin, end)


# -- the program that starts runners


def test_a_lost_interpreter_is_named_and_jobs_start_when_it_is_back(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    bench = Bench(tmp_path)
    bench.home.mkdir(mode=0o700)
    environ = bench.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([python, "-P", "-m", "dibs.daemon"], env=environ), contextlib.closing(bench):
        wait_for(lambda: bench.pid() is not None)
        python.unlink()
        ids = submit_many(bench)
        reason = wait_for_reason(bench, ids[0], "No such file or directory")
        assert str(python) in reason
        # Six of these start at once, the first time; each further one probes.
        wait_for(lambda: sum(refusals_in(bench, job) for job in ids[:40]), lambda count: count >= 6 + TRIES)
        python.symlink_to(os.path.realpath(sys.executable))
        check_all_done(bench)


def refusals_in(bench: Bench, job: int) -> int:
    """Return how often the start of a job was given up."""
    return sum(event["kind"] == "GivenUp" for event in bench.events(job))


def launcher(bench: Bench) -> int:
    """Return the pid of the launcher."""
    daemon = bench.pid()
    assert daemon is not None
    (found,) = [
        proc.pid
        for proc in processes.descendants(daemon)
        if proc.ppid == daemon and b"launcher" in Path(f"/proc/{proc.pid}/cmdline").read_bytes()
    ]
    return found


def stop(pid: int) -> None:
    """Stop a process, and wait until it is."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: processes.look(pid), lambda proc: proc is not None and proc.is_stopped)


def test_a_stopped_launcher_is_replaced(bench: Bench) -> None:
    bench.start()
    first = bench.long_job(gpus=1)
    pid = launcher(bench)
    stop(pid)
    ids = submit_many(bench)
    assert bench.until(ids[-1])["state"] == "done"
    assert launcher(bench) != pid
    (why,) = {event["detail"] for event in bench.events(ids[0]) if event["kind"] == "GivenUp"}
    assert why == "the launcher of runners was stopped (SIGSTOP), and is replaced"
    bench.cancel(first, grace_s=0)
    bench.until(first)
    jobs = [job for job in bench.wait_all() if job["id"] != first]
    assert {(job["state"], job["attempt"]) for job in jobs} == {("done", 1)}


def test_a_start_whose_runner_is_stopped_before_it_begins_is_given_to_another(bench: Bench) -> None:
    """An idle runner, which the daemon keeps for the next start."""
    job = bench.add("true", gpus=1)
    bench.until(job)
    idle = runner_of(bench, job).pid
    stop(idle)
    second = bench.add("true", gpus=1)
    assert (bench.until(second)["state"], bench.job(second)["attempt"]) == ("done", 1)
    if processes.look(idle) is not None:
        os.kill(idle, signal.SIGCONT)
    assert [event["detail"] for event in bench.events(second) if event["kind"] == "GivenUp"] in (
        ["no runner started it within 10s"],
        # The daemon had already released it.
        [],
    )


def runner_of(bench: Bench, job: int) -> attempts.Shim:
    """Return the runner of a job's first start."""
    found = attempts.read_started(f"{bench.home}/jobs/{job}/1", 1)
    assert isinstance(found, attempts.Shim)
    return found


def test_cancel_wakes_a_stopped_runner(bench: Bench) -> None:
    job = bench.long_job(gpus=1)
    stop(runner_of(bench, job).pid)
    bench.cancel(job, grace_s=30)
    assert bench.until(job)["state"] == "cancelled"
    assert bench.free_devices() == [0, 1, 2, 3]


def test_cancel_ends_a_job_whose_runner_is_stopped_again_and_again(bench: Bench) -> None:
    job = bench.long_job(gpus=1)
    runner = runner_of(bench, job).pid
    command = bench.job(job)["pid"]
    over = threading.Event()

    def keep_stopped() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(runner, signal.SIGSTOP)

    # The order never reaches it: it has no time to run between two stops.
    stop(runner)
    os.kill(command, signal.SIGSTOP)
    thread = threading.Thread(target=keep_stopped)
    thread.start()
    try:
        bench.cancel(job, grace_s=0.2)
        ended = bench.until(job)
    finally:
        over.set()
        thread.join()
    assert ended["state"] == "cancelled"
    wait_for(lambda: processes.look(command), lambda proc: proc is None)
    wait_for(bench.free_devices, lambda free: free == [0, 1, 2, 3])


# -- one job's output

#: Holds a file so that opening it without waiting fails, until its input ends.
HOLD = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_outputs_that_cannot_be_opened_stop_no_queue_with_one_gpu(tmp_path: Path) -> None:
    """The refusal looks like the machine's, and the jobs are at the head of the line."""
    output = tmp_path / "held.log"
    words = [sys.executable, "-c", HOLD, str(output)]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder,
        contextlib.closing(Bench(tmp_path, "fake:1")) as bench,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        bench.start()
        troubled = bench.add_many([{"command": "true", "gpus": 1, "output": str(output)}] * 2, retries=0)
        other = bench.add("true", gpus=1)
        assert bench.until(other)["state"] == "done"
        assert {bench.job(job)["state"] for job in troubled} <= {"queued", "starting"}
        holder.communicate()
        check_all_done(bench)


@needs_root
def test_a_full_disk_of_one_output_lets_only_its_job_wait(bench: Bench, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    with small_disk(mine, "size=1m,nr_inodes=32"):
        remove = use_up_inodes(mine)
        bench.start()
        own = bench.add_many([{"command": "true", "gpus": 1, "output": f"{mine}/{{id}}.log"}] * 20, retries=0)
        others = bench.add_many([{"command": "true", "gpus": 1}] * 20)
        assert {bench.until(job)["state"] for job in others} == {"done"}
        reason = wait_for_reason(bench, own[0], "its start was refused: ")
        assert f"{FULL} ({mine}/{own[0]}.log); next try in" in reason
        assert {bench.job(job)["state"] for job in own} <= {"queued", "starting"}
        remove()
        check_all_done(bench)
        bench.close()


# -- another user's file


def plant(kind: str, path: Path) -> None:
    """Put something at the name of a gate or lease that nobody can lock."""
    match kind:
        case "private":
            path.touch()
            path.chmod(0o600)
            os.chown(path, 65534, 65534)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("/nowhere")
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as sock, contextlib.chdir(path.parent):
                sock.bind(path.name)
        case "second name":
            other = path.with_name(path.name.replace("FAKE-1", "FAKE-3"))
            other.touch()
            other.chmod(0o1666)
            path.hardlink_to(other)


def unplant(path: Path) -> None:
    """Remove it."""
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


@needs_root
@pytest.mark.parametrize("name", ["gate", "lease"])
@pytest.mark.parametrize("kind", ["private", "folder", "link", "fifo", "socket", "second name"])
def test_a_broken_file_makes_one_gpu_unusable_and_costs_no_job(bench: Bench, name: str, kind: str) -> None:
    path = bench.leases / f".dibs-{name}-FAKE-1"
    plant(kind, path)
    owner = "nobody" if kind == "private" else "root"
    bench.start()
    wanted = [{"command": "true", "gpus": 1}] * (MANY - 1)
    ids = bench.add_many([*wanted, {"command": "true", "gpu_ids": ["1"]}], retries=0)
    named = ids[-1]
    for job in ids[:-1]:
        assert bench.until(job)["state"] == "done"
    reason = wait_for_reason(bench, named, f"cannot use {path}")
    assert f"(owner: {owner})" in reason
    shown = bench.client.get("/v1/gpus")["gpus"][1]
    assert (shown["state"], str(path) in shown["fault"]) == ("unhealthy", True)
    assert str(path) in bench.cli("gpus").stdout
    check_foreground(bench, path)
    unplant(path)
    check_all_done(bench)


def check_foreground(bench: Bench, path: Path) -> None:
    """See that `pipe` and `lease` leave a GPU out, unless it was named."""
    piped = bench.cli("pipe", input="true\ntrue\ntrue\n")
    assert (piped.returncode, f"GPU 1 is not used: cannot use {path}" in piped.stderr) == (0, True)
    assert bench.cli("lease", "--", "true").returncode == 0
    for refused in (bench.cli("pipe", "--gpu-ids", "1", input="true\n"), bench.cli("lease", "--gpu-ids", "1", "true")):
        assert refused.returncode == 125
        assert refused.stderr.startswith(f"dibs: GPU 1 cannot be leased: cannot use {path}: ")
        assert refused.stderr.count("\n") == 1
