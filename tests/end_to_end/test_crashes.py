"""The daemon may die at any moment: nothing is lost, nothing runs twice, every result is correct."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import re
import select
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dibs
import forking
import recorder
from bench import PATIENCE_S, Bench, wait_for
from dibs.errors import DibsError
from dibs.runner import attempts
from dibs.system import processes
from fakes.faults.broken_calls import BrokenCalls
from forking import Forked

PROVING = bool(os.environ.get("DIBS_PROVE"))
#: Rounds of this many kills each.
ROUNDS, KILLS = range(20 if PROVING else 1), 100
SOURCES = Path(dibs.__file__).parent


def crash_points() -> list[str]:
    """Return every crash point, found in the code itself."""
    texts = [path.read_text() for path in SOURCES.rglob("*.py")]
    return sorted({name for text in texts for name in re.findall(r'crash_point\("([a-z:]+)"\)', text)})


RUNNER_SIDE = [point for point in crash_points() if point.startswith("runner:")]
DAEMON_SIDE = [point for point in crash_points() if not point.startswith("runner:")]


def launch(bench: Bench, **extra: str) -> Forked:
    """Start a daemon without waiting for it."""
    bench.home.mkdir(exist_ok=True, mode=0o700)
    with (bench.folder / "daemons.log").open("ab") as log, open(os.devnull, "rb") as nothing:
        ends = [nothing.fileno(), log.fileno(), log.fileno()]
        return forking.start("daemon", [], bench.environ | extra, bench.folder, ends)


def end(process: Forked) -> None:
    process.kill()
    process.wait()


def short_jobs(bench: Bench, count: int, rng: random.Random, seconds: float = 0.02) -> dict[int, int]:
    """Queue jobs that record themselves; return their exit codes by id."""
    trace = bench.folder / "trace"
    codes = [rng.choice((0, 0, 1, 42)) for _ in range(count)]
    jobs = [
        {"command": recorder.command(trace, code, rng.random() * seconds), "gpus": rng.choice((0, 1, 1, 2))}
        for code in codes
    ]
    return dict(zip(bench.add_many(jobs), codes, strict=True))


def judge(bench: Bench, codes: dict[int, int], lost: int = 0) -> None:
    """Let the queue finish undisturbed, then compare its results with what the jobs recorded."""
    bench.start()
    jobs = bench.wait_all(300)
    found = recorder.runs(bench.folder / "trace")
    recorder.check_once_each(found)
    recorder.check_no_overlap(found)
    recorder.check_results(jobs, codes, found, lost)
    wait_for(bench.free_devices, lambda free: free == [0, 1, 2, 3])


@pytest.mark.parametrize("number", ROUNDS)
def test_the_daemon_survives_kill_9_at_random_moments(bench: Bench, number: int) -> None:
    """Killed while starting, recovering, placing, recording; some runners are slow, so that they come late."""
    rng = random.Random(20261115 + number)
    codes: dict[int, int] = {}
    pause = threading.Event()
    for kill in range(KILLS):
        if kill % 25 == 0:
            bench.start()
            codes |= short_jobs(bench, 60, rng)
            bench.kill()
        delay = {"DIBS_DELAY": f"runner:begin:{rng.randrange(1500)}"} if kill % 3 == 0 else {}
        process = launch(bench, **delay)
        if kill % 2:
            wait_for(lambda: bench.pid() is not None)
            pause.wait(rng.random() * 0.1)
        else:
            pause.wait(rng.random() * 0.9)
        if kill % 5 == 0:
            kill_launcher(process.pid)
            pause.wait(rng.random() * 0.1)
        end(process)
    judge(bench, codes)


def test_the_daemon_survives_kill_9_while_the_machine_refuses_starts(bench: Bench, tmp_path: Path) -> None:
    """Refusals are reported, recorded, or lost with a daemon; each time the job waits, and runs once in the end."""
    rng = random.Random(20261118)
    calls = BrokenCalls(tmp_path)
    bench.start(**calls.environ)
    codes = short_jobs(bench, 60, rng)
    bench.kill()
    pause = threading.Event()
    for kill in range(KILLS // 4):
        call, number = rng.choice((("link", errno.ENOSPC), ("link", errno.EIO), ("flock", errno.ENOLCK)))
        calls.fail(call, number)
        delay = {"DIBS_DELAY": f"runner:begin:{rng.randrange(300)}"} if kill % 3 == 0 else {}
        process = launch(bench, **calls.environ, **delay)
        wait_for(lambda: bench.pid() is not None)
        pause.wait(rng.random() * 0.2)
        calls.work()
        pause.wait(rng.random() * 0.1)
        end(process)
    judge(bench, codes)


def kill_launcher(daemon: int) -> None:
    """kill -9 the launcher of a daemon, if it has one."""
    for proc in processes.descendants(daemon):
        if proc.ppid == daemon and b"launcher" in Path(f"/proc/{proc.pid}/cmdline").read_bytes():
            os.kill(proc.pid, 9)


def losses(*points: str) -> int:
    """Return how many jobs may be lost: any, if runners died after their claim; otherwise none."""
    return sys.maxsize if {"started:linked", "spare:made"} & {*points} else 0


@pytest.mark.parametrize("point", DAEMON_SIDE)
def test_one_crash_of_the_daemon_at_each_point(bench: Bench, point: str) -> None:
    codes = crash_once(bench, point, random.Random(point))
    judge(bench, codes, losses(point))


@pytest.mark.parametrize("point", RUNNER_SIDE)
def test_one_crash_of_every_runner_at_each_point(bench: Bench, point: str) -> None:
    """A runner that died before it claimed its start costs nothing; after that its job is lost, never done."""
    with_crash = {"DIBS_CRASH": point}
    bench.start(**with_crash)
    job = bench.add(recorder.command(bench.folder / "trace"), gpus=1)
    seen = bench.until(job)
    found = recorder.runs(bench.folder / "trace")
    recorder.check_once_each(found)
    if seen["state"] in ("done", "failed"):
        assert point in ("runner:recorded", "runner:over") or seen["cause"] == "start"
    else:
        assert (seen["state"], seen["cause"]) == ("lost", "lost")
    wait_for(bench.free_devices, lambda free: free == [0, 1, 2, 3])


def crash_once(bench: Bench, point: str, rng: random.Random, **extra: str) -> dict[int, int]:
    """Run a daemon that dies at `point`, if it ever gets there, while jobs are queued and run."""
    bench.start()
    codes = short_jobs(bench, 4, rng, 0.2)
    bench.kill()
    process = launch(bench, DIBS_CRASH=f"{point}:{rng.choice((1, 2))}", **extra)
    codes |= submit_anyway(bench, rng, process)
    wait_for(lambda: process.poll() is not None or is_idle(bench))
    end(process)
    return codes


def submit_anyway(bench: Bench, rng: random.Random, process: Forked) -> dict[int, int]:
    """Queue jobs with a daemon that may die meanwhile: only what was acknowledged must be kept."""
    wait_for(lambda: process.poll() is not None or bench.pid() is not None)
    if process.poll() is not None:
        return {}
    try:
        return short_jobs(bench, 3, rng)
    except DibsError:
        return {}


def is_idle(bench: Bench) -> bool:
    try:
        counts = bench.client.get("/v1/jobs")["counts"]
    except DibsError:
        return False
    return not any(counts[word] for word in ("queued", "starting", "running", "stopping"))


PAIRS = list(itertools.product(DAEMON_SIDE, DAEMON_SIDE))


@pytest.mark.parametrize(
    ("first", "second"), PAIRS if PROVING else random.Random(1).sample(PAIRS, 40), ids=lambda point: point
)
def test_two_crashes_one_after_the_other(bench: Bench, first: str, second: str) -> None:
    """The second daemon dies while it recovers from the first, and the runners are late."""
    rng = random.Random(first + second)
    delay = {"DIBS_DELAY": f"runner:begin:{rng.choice((0, 20, 60, 150))}"}
    codes = crash_once(bench, first, rng, **delay)
    codes |= crash_once(bench, second, rng, **delay)
    judge(bench, codes, losses(first, second))


def test_jobs_that_end_while_the_daemon_is_down_keep_their_result(bench: Bench) -> None:
    bench.start()
    gate = bench.folder / "gate"
    ids = [bench.add(f"while [ ! -e {gate} ]; do sleep 0.01; done; exit {code}", gpus=1) for code in (0, 3)]
    for job_id in ids:
        bench.until(job_id, "started")
    bench.kill()
    gate.touch()
    runner_logs = [bench.home / "jobs" / str(job_id) / "1" for job_id in ids]
    for folder in runner_logs:
        wait_for(lambda folder=folder: not attempts.has_runner(str(folder), 1))
    bench.start()
    done, failed = (bench.until(job_id) for job_id in ids)
    assert (done["state"], done["exit_code"]) == ("done", 0)
    assert (failed["state"], failed["exit_code"]) == ("failed", 3)
    daemon_began = bench.client.get("/v1/daemon")["started_at"]
    assert done["finished_at"] < daemon_began
    assert failed["finished_at"] < daemon_began


def test_stop_leaves_jobs_running_and_the_next_daemon_adopts_them(bench: Bench) -> None:
    bench.start()
    job = bench.add("sleep 300", gpus=1)
    pid = bench.until(job, "started")["pid"]
    bench.stop()
    bench.start()
    adopted = bench.job(job)
    assert (adopted["state"], adopted["pid"]) == ("running", pid)
    bench.cancel(job, grace_s=5)
    assert bench.until(job)["state"] == "cancelled"


def test_a_job_whose_runner_was_killed_keeps_its_gpu_and_is_then_lost(bench: Bench) -> None:
    gate = bench.folder / "gate"
    job = bench.add(f"while [ ! -e {gate} ]; do sleep 0.01; done", gpus=1)
    bench.until(job, "started")
    shim = attempts.read_started(str(bench.home / "jobs" / str(job) / "1"), 1)
    assert isinstance(shim, attempts.Shim)
    os.kill(shim.pid, 9)
    orphan = wait_for(lambda: bench.job(job), lambda seen: seen["remark"] is not None)
    assert (orphan["state"], orphan["reason"]) == ("running", orphan["remark"])
    assert "its runner is gone" in orphan["reason"]
    assert 0 not in bench.free_devices()
    gate.touch()
    lost = bench.until(job)
    assert (lost["state"], lost["cause"], lost["exit_code"]) == ("lost", "lost", None)
    wait_for(bench.free_devices, lambda free: free == [0, 1, 2, 3])


def runner_of(bench: Bench, job: int) -> int:
    """Return the runner of the newest start: a start handed to a runner that just died is given up."""
    folder = bench.home / "jobs" / str(job) / "1"
    newest = max(int(path.suffix[1:]) for path in folder.glob("started.*"))
    shim = attempts.read_started(str(folder), newest)
    assert isinstance(shim, attempts.Shim)
    return shim.pid


def test_a_runner_is_reused_and_its_death_between_two_jobs_loses_nothing(bench: Bench) -> None:
    first, second = (bench.until(bench.add("true", gpus=1)) for _ in range(2))
    warm = runner_of(bench, first["id"])
    assert runner_of(bench, second["id"]) == warm
    os.kill(warm, 9)
    third = bench.until(bench.add("true", gpus=1))
    assert (third["state"], third["attempt"]) == ("done", 1)
    assert runner_of(bench, third["id"]) != warm


def test_idle_runners_exit_with_the_daemon_and_busy_ones_after_their_job(bench: Bench) -> None:
    gate = bench.folder / "gate"
    busy = bench.add(f"while [ ! -e {gate} ]; do sleep 0.01; done; exit 5", gpus=1)
    idle = bench.until(bench.add("true", gpus=1))
    bench.until(busy, "started")
    pidfds = [os.pidfd_open(runner_of(bench, job)) for job in (busy, idle["id"])]
    bench.kill()
    assert select.select([pidfds[1]], [], [], PATIENCE_S)[0]
    assert not select.select([pidfds[0]], [], [], 0)[0]
    gate.touch()
    assert select.select([pidfds[0]], [], [], PATIENCE_S)[0]
    bench.start()
    assert bench.until(busy)["exit_code"] == 5


def test_cancel_ends_a_job_whose_runner_is_gone(bench: Bench) -> None:
    job = bench.add("trap '' TERM; while :; do sleep 1; done", gpus=1)
    bench.until(job, "started")
    shim = attempts.read_started(str(bench.home / "jobs" / str(job) / "1"), 1)
    assert isinstance(shim, attempts.Shim)
    os.kill(shim.pid, 9)
    wait_for(lambda: bench.job(job)["remark"])
    bench.cancel(job, grace_s=0.2)
    assert bench.until(job)["state"] == "lost"
    assert list(processes.marked([f"DIBS_JOB_ID={job}".encode(), f"DIBS_HOME={bench.home}".encode()])) == []


def test_twenty_concurrent_starts_make_one_daemon(bench: Bench) -> None:
    connected = "import os; from dibs.client import connection; queue = connection.connect(os.environ)"
    script = connected + "; print(queue.get('/v1/daemon')['pid'])"
    starters = [
        subprocess.Popen([sys.executable, "-c", script], env=bench.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    pids = {starter.communicate(timeout=480)[0].strip() for starter in starters}
    assert pids == {str(bench.pid())}


def test_twenty_concurrent_daemons_leave_one(bench: Bench) -> None:
    """Also without the client's lock."""
    daemons = [launch(bench) for _ in range(20)]
    wait_for(lambda: bench.pid() is not None and sum(daemon.poll() is None for daemon in daemons) == 1)
    (alive,) = [daemon for daemon in daemons if daemon.poll() is None]
    assert alive.pid == bench.pid()
    end(alive)


#: Dies as a daemon that was just forking: the child has copies of its socket and of its lock until a test ends it.
DYING = """
import fcntl, os, socket, sys
lock = os.open("daemon.lock", os.O_CREAT | os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(lock, b"%d" % os.getpid())
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
if os.fork() == 0:
    print("ready", flush=True)
    sys.stdin.readline()
    listening.close()
    sys.stdin.readline()
"""


def test_the_forked_child_of_a_dying_daemon_is_not_taken_for_a_daemon(bench: Bench) -> None:
    bench.home.mkdir(mode=0o700)
    path = str(bench.client.socket_path)
    command = [sys.executable, "-c", DYING, path]
    with subprocess.Popen(command, cwd=bench.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdin is not None
        assert dying.stdout is not None
        assert dying.stdout.readline() == "ready\n"
        dying.wait()
        with ThreadPoolExecutor() as pool:
            starting = pool.submit(bench.start)
            wait_for(lambda: Path("/proc/net/unix").read_text().count(path) == 2)
            dying.stdin.write("close the socket\n")
            dying.stdin.flush()
            (daemon,) = wait_for(lambda: bench.client.daemons)
            wait_for(lambda: has_open(daemon.pid, bench.home / "daemon.lock"))
            dying.stdin.close()
            starting.result()
    assert bench.pid() == daemon.pid


def has_open(pid: int, path: Path) -> bool:
    """Return whether a process has a file open."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        # Descriptors come and go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(fd) == str(path):
                return True
    return False


def test_a_start_that_fails_three_times_is_a_failure_with_its_reason(bench: Bench) -> None:
    bench.start(DIBS_CRASH="runner:begin")
    job = bench.until(bench.add("true", gpus=1))
    assert (job["state"], job["cause"]) == ("failed", "start")
    assert "3 times" in job["remark"]


def pidfds(bench: Bench) -> int:
    """Count the processes that the daemon watches."""
    count = 0
    for path in Path(f"/proc/{bench.pid()}/fd").iterdir():
        # Descriptors come and go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            count += "pidfd" in os.readlink(path)
    return count


def test_an_orphan_is_watched_once_however_often_it_is_checked(bench: Bench) -> None:
    gate = bench.folder / "gate"
    job = bench.add(f"while [ ! -e {gate} ]; do sleep 0.01; done", gpus=1)
    bench.until(job, "started")
    shim = attempts.read_started(str(bench.home / "jobs" / str(job) / "1"), 1)
    assert isinstance(shim, attempts.Shim)
    os.kill(shim.pid, 9)
    wait_for(lambda: bench.job(job)["remark"])
    before = pidfds(bench)
    for _ in range(20):
        # A cancel of an orphan checks it, as the slow tick does.
        bench.cancel(job, grace_s=600)
    assert pidfds(bench) <= before + 25
    gate.touch()
    assert bench.until(job)["state"] == "lost"
    wait_for(lambda: pidfds(bench), lambda count: count <= before)
