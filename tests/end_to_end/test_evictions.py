"""Evictable jobs give their GPUs to ordinary ones, and run again, whatever happens to the daemon meanwhile."""

import contextlib
import os
import random
import sys
import time
from datetime import datetime

import pytest

from bench import Bench, wait_for
from dibs.errors import DibsError

#: A job that saves on TERM and exits with the given code; it says what it found of earlier attempts.
SAVES = r"""
trap 'echo "saved by $DIBS_ATTEMPT" >> "$DIBS_CHECKPOINT_DIR/log"; exit %d' TERM
echo "attempt $DIBS_ATTEMPT"
touch "$DIBS_CHECKPOINT_DIR/up.$DIBS_ATTEMPT"
while :; do sleep 0.01; done
"""
#: Like that, but it completes when it runs again.
RESUMES = 'if [ -e "$DIBS_CHECKPOINT_DIR/log" ]; then exit 0; fi\n' + SAVES % 75


@pytest.fixture
def bench(tmp_path):
    one = Bench(tmp_path, "fake:1", DIBS_EVICT_MIN_RUN="0s", DIBS_EVICT_GRACE="20s")
    yield one
    one.close()


def running(bench, command, **more):
    """Queue an evictable job; return its id once its command runs and can be warned."""
    job_id = bench.add(command, **{"evictable": True} | more)
    is_up(bench, job_id, 1)
    return job_id


def is_up(bench, job_id, attempt):
    """Wait until an attempt can be warned."""
    mark = bench.home / "jobs" / str(job_id) / "checkpoint" / f"up.{attempt}"
    wait_for(mark.exists)


def kinds(bench, job_id):
    return [event["kind"] for event in bench.events(job_id)]


def test_an_ordinary_job_gets_the_gpu_and_the_evicted_one_runs_again(bench):
    evictable = running(bench, RESUMES)
    urgent = bench.add("true")
    assert bench.until(urgent)["state"] == "done"
    job = bench.until(evictable)
    assert (job["state"], job["exit_code"], job["attempt"], job["evictions"], job["retries"]) == ("done", 0, 2, 1, 0)
    assert [past["outcome"] for past in job["attempts"]] == ["evicted", "done"]
    assert job["attempts"][0]["exit_code"] == 75
    told = [(event["kind"], event["detail"]) for event in bench.events(evictable)]
    assert ("EvictAsked", f"job {urgent} waits for its GPUs") in told
    assert (bench.home / "jobs" / str(evictable) / "checkpoint" / "log").read_text() == "saved by 1\n"


def test_a_job_that_completes_in_its_grace_is_done(bench):
    evictable = running(bench, SAVES % 0)
    bench.until(bench.add("true"))
    job = bench.until(evictable)
    assert (job["state"], job["attempt"], job["evictions"]) == ("done", 1, 0)


def test_a_job_that_ignores_the_warning_is_killed_after_its_grace_and_waits_again(tmp_path):
    bench = Bench(tmp_path, "fake:1", DIBS_EVICT_MIN_RUN="0s", DIBS_EVICT_GRACE="1s")
    try:
        stubborn = running(bench, 'trap "" TERM; touch "$DIBS_CHECKPOINT_DIR/up.$DIBS_ATTEMPT"; sleep 1000')
        assert bench.until(bench.add("true"))["state"] == "done"
        is_up(bench, stubborn, 2)
        job = bench.job(stubborn)
        assert [(past["outcome"], past["signal"]) for past in job["attempts"]] == [("evicted", 9)]
        assert job["evictions"] == 1
    finally:
        bench.close()


def test_a_cancelled_job_does_not_run_again(bench):
    """Even if it is cancelled while it is being evicted."""
    evictable = running(bench, 'trap "" TERM; touch "$DIBS_CHECKPOINT_DIR/up.$DIBS_ATTEMPT"; sleep 1000')
    bench.add("true")
    wait_for(lambda: "EvictAsked" in kinds(bench, evictable))
    assert bench.job(evictable)["state"] == "stopping"
    bench.cancel(evictable, grace_s=0)
    assert bench.until(evictable)["state"] == "cancelled"


def test_the_warning_signal_comes_first(bench):
    command = 'trap "exit 0" USR1; touch "$DIBS_CHECKPOINT_DIR/up.$DIBS_ATTEMPT"; while :; do sleep 0.01; done'
    evictable = running(bench, command, warn={"signal": "USR1"})
    bench.until(bench.add("true"))
    assert bench.until(evictable)["state"] == "done"


def test_an_evicted_job_is_ahead_of_newer_ones_of_its_class(bench):
    first = running(bench, RESUMES)
    second = bench.add(RESUMES, evictable=True)
    bench.until(bench.add("true"))
    assert bench.until(first)["state"] == "done"
    assert bench.until(second, "started")["started_at"] >= bench.job(first)["finished_at"]


def test_a_job_that_was_evicted_often_enough_runs_to_its_end(tmp_path):
    bench = Bench(tmp_path, "fake:1", DIBS_EVICT_MIN_RUN="0s", DIBS_EVICT_GRACE="20s", DIBS_MAX_EVICTIONS="2")
    try:
        evictable = running(bench, SAVES % 75)
        for attempt in (2, 3):
            bench.until(bench.add("true"))
            is_up(bench, evictable, attempt)
        assert bench.job(evictable)["evictable"] is False
        waits = bench.add("true")
        assert f"job {evictable}" in bench.reason(waits)
        assert kinds(bench, evictable).count("EvictAsked") == 2
    finally:
        bench.close()


def test_an_overdue_job_starts_as_an_ordinary_one_and_runs_to_its_end(tmp_path):
    settings = {"DIBS_EVICT_MIN_RUN": "0s", "DIBS_EVICT_GRACE": "20s", "DIBS_EVICTABLE_WAIT": "0s"}
    with contextlib.closing(Bench(tmp_path, "fake:1", **settings)) as bench:
        overdue = running(bench, SAVES % 75)
        assert bench.job(overdue)["evictable"] is False
        assert f"job {overdue}" in bench.reason(bench.add("true"))
        told = [event["detail"] for event in bench.events(overdue) if event["kind"] == "Edited"]
        assert len(told) == 1
        assert told[0].startswith("evictable: submitted ")
        assert told[0].endswith(" ago, so it runs to its end")


def test_a_job_is_evictable_once_it_writes_checkpoints(bench):
    """Until then an ordinary job waits for it like for any other."""
    command = """
    trap 'exit 75' TERM
    for n in 1 2; do
        while [ ! -e "gate.$n" ]; do sleep 0.01; done
        touch "$DIBS_CHECKPOINT_DIR/$n"
    done
    while :; do sleep 0.01; done
    """
    auto = bench.add(command, evictable="auto")
    bench.until(auto, "started")
    (bench.folder / "gate.1").touch()
    waits = bench.add("true")
    checkpoints = bench.home / "jobs" / str(auto) / "checkpoint"
    wait_for((checkpoints / "1").exists)
    assert "EvictAsked" not in kinds(bench, auto)
    first = (checkpoints / "1").stat().st_mtime
    wait_for(lambda: time.time() > first + 1.1)
    (bench.folder / "gate.2").touch()
    assert bench.until(waits)["state"] == "done"
    told = kinds(bench, auto)
    assert told.index("Evictable") < told.index("EvictAsked") < told.index("Evicted")
    assert bench.job(auto)["evictable"] is True, "it waits behind those for whom it was evicted"


def test_the_time_that_checkpoints_kept_and_the_time_that_was_lost_are_counted(bench):
    """The job saves at once and then works in vain for a while."""
    command = 'touch "$DIBS_CHECKPOINT_DIR/up.$DIBS_ATTEMPT"; trap "exit 75" TERM; while :; do sleep 0.01; done'
    evictable = running(bench, command)
    began = time.time()
    wait_for(lambda: time.time() > began + 1.2)
    bench.until(bench.add("true"))
    job = wait_for(lambda: bench.job(evictable), lambda seen: seen["lost_s"] > 0)
    (past,) = job["attempts"]
    ran = datetime.fromisoformat(past["finished_at"]) - datetime.fromisoformat(past["started_at"])
    assert job["saved_s"] + job["lost_s"] == pytest.approx(ran.total_seconds())
    assert job["lost_s"] > 1
    assert "evicted once: " in bench.cli("show", str(evictable)).stdout


# -- crashes ----------------------------------------------------------------------------------------------------------


def keep_trying(act):
    """Return what `act` returns once a daemon lives long enough to answer; the client starts the next one."""

    def attempt():
        try:
            return act(), True
        except DibsError:
            return None, False

    return wait_for(attempt, lambda got: got[1])[0]


def add_ordinary(bench, key, command="true"):
    """Queue an ordinary job exactly once, even if daemons die meanwhile."""
    common = {"cwd": str(bench.folder), "environ": bench.packed()}
    body = {"defaults": common, "jobs": [{"command": command}], "key": key}
    return keep_trying(lambda: bench.client.post("/v1/jobs", body)["ids"][0])


def finished(bench, job_id):
    """Return a job once it is finished, even if daemons die meanwhile."""
    over = ("done", "failed", "cancelled", "timeout", "lost")
    return wait_for(lambda: keep_trying(lambda: bench.job(job_id)), lambda job: job["state"] in over)


@pytest.mark.parametrize("point", ["core:commit", "core:committed", "settle:examined", "recover:job"])
def test_a_daemon_that_dies_while_it_evicts_loses_nothing(bench, point):
    """Kill it at each of its steps: the job has one more attempt each time, and nothing fails."""
    evictable = running(bench, SAVES % 75)
    for count in range(1, 5):
        bench.kill()
        # The start itself may die; the next one is then started without a crash.
        with contextlib.suppress(DibsError):
            bench.start(DIBS_CRASH=f"{point}:{count}")
        assert finished(bench, add_ordinary(bench, f"{count}"))["state"] == "done"
        is_up(bench, evictable, count + 1)
    job = keep_trying(lambda: bench.job(evictable))
    assert [past["outcome"] for past in job["attempts"]] == ["evicted"] * 4
    saved = (bench.home / "jobs" / str(evictable) / "checkpoint" / "log").read_text().split("\n")
    assert saved == [*(f"saved by {n}" for n in range(1, 5)), ""]


#: Evictions in the test under load; `DIBS_PROVE=1` for the whole proof.
EVICTIONS = 200 if os.environ.get("DIBS_PROVE") else 30

#: Counts to a number over all its attempts. A checkpoint is written as a whole and never goes back.
COUNTS = r"""
import os, signal, sys, time
folder = os.environ["DIBS_CHECKPOINT_DIR"]
path = f"{folder}/count"
count = int(open(path).read()) if os.path.exists(path) else 0
with open(f"{folder}/attempts", "a") as file:
    file.write(f"{os.environ['DIBS_ATTEMPT']} {count}\n")
def save():
    with open(f"{path}.new", "w") as file:
        file.write(str(count))
    os.replace(f"{path}.new", path)
def stop(*_):
    save()
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
while count < 40:
    time.sleep(0.005)
    count += 1
    if count % 10 == 0:
        save()
sys.exit(7 if int(sys.argv[1]) % 5 == 0 else 0)
"""


def test_many_evictions_under_load_while_daemons_are_killed(tmp_path):
    """No attempt is lost or runs twice, no checkpoint goes back, no job starves, and every code is true."""
    rng = random.Random(EVICTIONS)
    most = 6
    settings = {"DIBS_EVICT_MIN_RUN": "0s", "DIBS_EVICT_GRACE": "20s", "DIBS_MAX_EVICTIONS": str(most)}
    bench = Bench(tmp_path, "fake:2", **settings)
    program = tmp_path / "counts.py"
    program.write_text(COUNTS)
    evictable, ordinary, kills = [], [], 0

    def evicted():
        return sum(job["evictions"] for job in keep_trying(bench.jobs))

    try:
        while evicted() < EVICTIONS:
            unfinished = len(keep_trying(lambda: bench.jobs("queued", "running", "starting", "stopping")))
            while unfinished < 6:
                number = len(evictable)
                body = {
                    "defaults": {"cwd": str(tmp_path), "environ": bench.packed(), "evictable": True},
                    "jobs": [{"argv": [sys.executable, "-S", str(program), str(number)]}],
                    "key": f"e{number}",
                }
                evictable.append(keep_trying(lambda body=body: bench.client.post("/v1/jobs", body)["ids"][0]))
                unfinished += 1
            ordinary.append(add_ordinary(bench, f"o{len(ordinary)}", "sleep 0.02"))
            if rng.random() < 0.4:
                bench.kill()
                kills += 1
            else:
                wait_for(lambda: keep_trying(lambda: bench.job(ordinary[-1]))["state"] == "done")
        keep_trying(bench.start)
        bench.wait_all()
        for job_id in ordinary:
            assert bench.job(job_id)["state"] == "done"
        for number, job_id in enumerate(evictable):
            job = bench.job(job_id)
            assert job["exit_code"] == (7 if number % 5 == 0 else 0), job
            assert job["evictions"] <= most
            *before, last = job["attempts"]
            assert [past["outcome"] for past in before] == ["evicted"] * job["evictions"]
            assert last["outcome"] == ("failed" if number % 5 == 0 else "done")
            lines = (bench.home / "jobs" / str(job_id) / "checkpoint" / "attempts").read_text().split("\n")[:-1]
            seen = [tuple(map(int, line.split())) for line in lines]
            # One that was evicted before it could write its line is missing here, never doubled.
            assert len({attempt for attempt, _ in seen}) == len(seen)
            assert {attempt for attempt, _ in seen} <= {past["attempt"] for past in job["attempts"]}
            assert [count for _, count in seen] == sorted(count for _, count in seen), "a checkpoint went back"
        assert kills >= EVICTIONS // 20
        print(f"{evicted()} evictions of {len(evictable)} jobs, {kills} daemons killed")
    finally:
        bench.close()
