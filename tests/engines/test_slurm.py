"""Slurm as an engine: what the contract of all engines does not say, on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import wait_for
from dibs.runner import attempts
from dibs.system import processes
from lab import Lab
from sites import living
from slurm_cluster import SlurmCluster


@pytest.fixture
def lab(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, {"lab": slurm.engine_settings()})
    yield own
    own.close()


def test_a_job_on_slurm_is_like_any_other(lab: Lab) -> None:
    """Its code, log, place and reference; `dibs run` ends with its code."""
    done = lab.cli("run", "--engine", "lab", "-g", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 7")
    assert (done.returncode, done.stdout) == (7, "0,1\n")
    job = lab.job(1)
    assert (job["state"], job["exit_code"], job["engine"], job["node"] in ("n1", "n2")) == ("failed", 7, "lab", True)
    assert job["engine_ref"].isdigit()
    assert Path(job["log"]).read_text() == "0,1\n"
    kinds = [event["kind"] for event in lab.events(1)]
    assert [kind for kind in kinds if kind != "Started"] == ["Submitted", "Placed", "Sent", "Ended"]
    # What has the user's environment is gone; the code for the nodes stays.
    assert not list(Path(lab.folder).glob("shared-lab/queue-*/jobs/1/1/spec.*"))


def test_jobs_that_came_together_are_one_array(lab: Lab, slurm: SlurmCluster) -> None:
    ids = lab.add_many(
        [{"command": f"echo {n} $DIBS_GPU_INDICES $SLURM_ARRAY_TASK_ID; exit {n % 3}"} for n in range(12)],
        engine="lab", gpus=1,
    )  # fmt: skip
    jobs = {job["id"]: job for job in lab.wait_all()}
    assert [jobs[job_id]["exit_code"] for job_id in ids] == [n % 3 for n in range(12)]
    assert [lab.log(job_id).split()[0] for job_id in ids] == [str(n) for n in range(12)]
    arrays = {jobs[job_id]["engine_ref"].partition("_")[0] for job_id in ids}
    assert len(arrays) == 1
    # What Slurm sets is its own affair.
    assert all(len(lab.log(job_id).split()) == 2 for job_id in ids)


def many(lab: Lab, *commands: str) -> list[int]:
    """Queue jobs together, each with all GPUs of a node: at most two of their tasks run at a time."""
    return lab.add_many([{"command": command} for command in commands], engine="lab", gpus=4)


def taken(lab: Lab) -> set[int]:
    """Return the numbers of the starts in the only array that other tasks have claimed."""
    return {int(path.name) for path in lab.folder.glob("shared-lab/arrays/*/taken/*")}


def test_short_jobs_share_tasks_and_each_runs_once(slurm: SlurmCluster, tmp_path: Path) -> None:
    own = Lab(tmp_path, {"lab": slurm.engine_settings() | {"reuse": "1h"}})
    try:
        ids = many(own, *(f"echo $DIBS_JOB_ID $CUDA_VISIBLE_DEVICES >>ran; exit {n % 3}" for n in range(20)))
        jobs = {job["id"]: job for job in own.wait_all()}
        assert [jobs[job_id]["exit_code"] for job_id in ids] == [n % 3 for n in range(20)]
        assert sorted((own.folder / "ran").read_text().splitlines()) == sorted(f"{job_id} 0,1,2,3" for job_id in ids)
        assert {jobs[job_id]["node"] for job_id in ids} <= {"n1", "n2"}
        # While two of them had all GPUs, no other task could begin.
        assert taken(own)
    finally:
        own.close()


@pytest.mark.parametrize("end", ["exit", "cancel"])
def test_a_job_in_the_task_of_another_one_is_like_any_other(slurm: SlurmCluster, tmp_path: Path, end: str) -> None:
    """It outlives the daemon, has its own result, and is cancelled alone."""
    own = Lab(tmp_path, {"lab": slurm.engine_settings() | {"reuse": "1h"}})
    try:
        wait = "until test -e end.$DIBS_JOB_ID; do sleep 0.1; done; exit 5"
        ids = many(own, "true", wait, wait)
        number = wait_for(lambda: taken(own)).pop()
        guest, other = ids[number], ids[3 - number]
        for job_id in (guest, other):
            own.until(job_id, "started")
        assert own.until(ids[0])["state"] == "done"
        own.kill()
        own.start()
        if end == "cancel":
            own.cancel(guest)
            assert own.until(guest)["state"] == "cancelled"
        else:
            (own.folder / f"end.{guest}").touch()
            assert own.until(guest)["exit_code"] == 5
        (own.folder / f"end.{other}").touch()
        assert own.until(other)["exit_code"] == 5
    finally:
        own.close()


def test_a_killed_step_leaves_nothing_and_the_job_is_retried(lab: Lab) -> None:
    """Slurm's own process above the runner: it may take Slurm minutes to notice that."""
    script = """
    test $DIBS_ATTEMPT = 2 && exit 3
    trap '' TERM; (setsid setsid sleep 600 &)
    while :; do sleep 0.1; done
    """
    job_id = lab.send(script, retries=1, retry_on=["lost"])
    mark = f"DIBS_JOB_DIR={Path(lab.until(job_id, 'started')['log']).parents[1]}"
    wait_for(lambda: len(living(mark)) >= 3)
    (started,) = lab.folder.glob(f"shared-lab/queue-*/jobs/{job_id}/1/started.1")
    shim = attempts.read_started(str(started.parent), 1)
    assert isinstance(shim, attempts.Shim)
    step = next(
        proc for pid in processes.lineage(shim.pid) if (proc := processes.look(pid)) and proc.comm == "slurmstepd"
    )
    first = living(mark)
    os.kill(step.pid, signal.SIGKILL)
    wait_for(lambda: set(first) & set(living(mark)), lambda left: not left)
    assert lab.until(job_id)["exit_code"] == 3
    assert [attempt["outcome"] for attempt in lab.job(job_id)["attempts"]] == ["lost", "failed"]
    wait_for(lambda: living(mark), lambda left: not left)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("-g", "9"), 69, "no node of lab has 9 GPUs; the largest has 4"),
        (("--cpus", "99"), 69, "no node of lab has 99 CPUs; the largest has 16"),
        (("--slurm=--array=1-2",), 69, "--array is set by dibs"),
        (("--gpu-ids", "0"), 2, "--gpu-ids is about this machine's GPUs; lab chooses its own."),
        (("--vram", "1G"), 2, "--vram is about this machine's GPUs"),
        (("--overflow", "lab"), 2, "--overflow is for jobs that wait on this machine"),
    ],
)
def test_what_can_never_run_is_refused_before_it_waits(lab: Lab, words: tuple[str, ...], code: int, told: str) -> None:
    done = lab.cli("add", "--engine", "lab", *words, "true")
    assert (done.returncode, told in done.stderr, done.stdout) == (code, True, "")


def test_what_sbatch_refuses_fails_with_its_words(lab: Lab) -> None:
    job = lab.until(lab.send("true", engine_options="-p nix"))
    assert (job["state"], job["cause"]) == ("failed", "start")
    assert job["remark"] == "lab refused it: invalid partition specified: nix; Invalid partition name specified"


def test_without_a_python_on_the_nodes_their_own_words_are_shown(slurm: SlurmCluster, tmp_path: Path) -> None:
    own = Lab(tmp_path, {"lab": slurm.engine_settings() | {"python": "/no/such/python3"}})
    try:
        job = own.until(own.send("true"))
        assert (job["state"], job["cause"]) == ("failed", "start")
        assert "3 times lab ended it before its runner began (failed" in job["remark"]
        assert "/no/such/python3: not found" in job["remark"]
    finally:
        own.close()


#: Seconds for which the controller is away.
AWAY_S = 60.0 if os.environ.get("DIBS_PROVE") else 0.0


def test_while_the_controller_is_away_no_job_changes(lab: Lab, slurm: SlurmCluster) -> None:
    marker = lab.folder / "go"
    running = lab.send(f"while [ ! -e {marker} ]; do sleep 0.1; done; exit 3")
    waiting = lab.send("true", gpus=4)
    fillers = [lab.send("sleep 600", gpus=4) for _ in range(2)]
    lab.until(running, "started")
    slurm.stop_controller()
    before = {job["id"]: job["state"] for job in lab.jobs()}
    marker.touch()
    # It ends while nobody is there to say so, and another one comes that nobody can take.
    late = lab.send("exit 4")
    wait_for(lambda: "cannot be reached" in lab.reason(late))
    back_at = time.monotonic() + AWAY_S
    took_s = []
    while not took_s or time.monotonic() < back_at:
        asked_at = time.monotonic()
        now = {job["id"]: job["state"] for job in lab.jobs() if job["id"] != late}
        took_s.append(time.monotonic() - asked_at)
        assert now == before
        time.sleep(0.1)
    print(f"{len(took_s)} lists of jobs while the controller was away, the slowest in {max(took_s) * 1000:.0f} ms")
    slurm.start_controller()
    assert lab.until(running)["exit_code"] == 3
    assert lab.until(late)["exit_code"] == 4
    lab.cancel(waiting, *fillers)
    assert {lab.until(job_id)["state"] for job_id in (waiting, *fillers)} <= {"cancelled", "done"}


def test_jobs_that_slurm_has_forgotten_have_their_own_results(tmp_path: Path) -> None:
    """The daemon is away while they end, and for longer than Slurm remembers."""
    import clusters

    with clusters.separate("slurm", min_job_age_s=2) as slurm:
        own = Lab(tmp_path, {"lab": slurm.engine_settings()})
        try:
            ids = [own.send(f"echo up > up.{code}; sleep 1; exit {code}") for code in (0, 5)]
            for job_id in ids:
                own.until(job_id, "started")
            own.kill()
            wait_for(lambda: slurm.run("squeue", "-h", "-t", "all"), lambda text: not text.strip())
            own.start()
            assert [own.until(job_id)["exit_code"] for job_id in ids] == [0, 5]
        finally:
            own.close()


def test_a_lost_node_loses_its_jobs_and_a_retry_runs_elsewhere(lab: Lab, slurm: SlurmCluster) -> None:
    job_id = lab.send(f"echo $DIBS_ATTEMPT >> {lab.folder}/tries; [ $DIBS_ATTEMPT = 2 ] || sleep 600", retries=1)
    node = wait_for(lambda: lab.job(job_id)["node"])
    lab.until(job_id, "started")
    slurm.kill_node(node)
    job = lab.until(job_id)
    assert (job["state"], job["attempt"]) == ("done", 2)
    (lost,) = [event["detail"] for event in lab.events(job_id) if event["kind"] == "LostTrack"]
    assert f"lab: its node failed; no result was written on {node}" in lost
    assert (lab.folder / "tries").read_text() == "1\n2\n"
    assert os.path.exists(job["log"])


def test_a_sweep_overflows_and_has_one_table(lab: Lab) -> None:
    """Four busy GPUs: what does not start in time goes to the cluster, once; the rest runs here."""
    fillers = [lab.long_job(gpus=1) for _ in range(4)]
    words = ("--overflow", "lab", "--overflow-after", "1s", "-g", "1")
    done = lab.cli("sweep", "echo {x} >> runs; exit 0", "-p", "x=1,2,3,4,5,6", "--name", "spread", *words)
    assert done.returncode == 0, done.stderr
    runs = [job["id"] for job in lab.jobs("sweep:spread")]
    wait_for(lambda: sum(job["engine"] == "lab" for job in lab.jobs("sweep:spread")), lambda count: count == 6)
    more = lab.cli("sweep", "echo {x} >> runs; exit 0", "-p", "x=7,8", "--name", "spread", "-g", "1")
    assert more.returncode == 0, more.stderr
    lab.cancel(*fillers)
    for run in [job["id"] for job in lab.jobs("sweep:spread")]:
        assert lab.until(run)["state"] == "done"
    assert sorted((lab.folder / "runs").read_text().split()) == [str(n) for n in range(1, 9)]
    told = json.loads(lab.cli("results", "spread", "--json").stdout)
    assert {run["engine"] for run in told["runs"]} == {"lab", "local"}
    assert len(told["runs"]) == 8
    (event,) = [event for event in lab.events(runs[0]) if event["kind"] == "Edited"]
    assert event["detail"] == "overflow to lab: it has waited here for 1s"


def test_engines_are_listed_with_their_nodes_and_the_script_can_be_used(lab: Lab, slurm: SlurmCluster) -> None:
    job_id = lab.send("sleep 600", gpus=3)
    lab.until(job_id, "started")

    def listed() -> dict[str, Any]:
        told = json.loads(lab.cli("engines", "--json").stdout)["engines"]
        assert [engine["name"] for engine in told] == ["local", "lab"]
        return dict(told[1])

    own = wait_for(listed, lambda own: own["free_gpus"] == 5)
    assert (own["kind"], own["state"], own["gpus"], own["running"]) == ("slurm", "ready", 8, 1)
    node = lab.job(job_id)["node"]
    assert {entry["name"]: entry["jobs"] for entry in own["nodes"]} == {"n1": [], "n2": []} | {node: [job_id]}
    assert "lab" in lab.cli("engines").stdout
    assert node in lab.cli("engines", "lab").stdout
    assert f"lab:{node}" in lab.cli("status").stdout
    assert lab.cli("why", str(job_id)).stdout.startswith(f"job {job_id}: it is running on lab, node {node}")
    script = lab.cli("sbatch-script", str(job_id)).stdout
    assert "#SBATCH --gres=gpu:3" in script
    slurm.run("sbatch", "--test-only", stdin=script)
    lab.cancel(job_id)
    assert lab.until(job_id)["state"] == "cancelled"
    assert lab.cli("sbatch-script", str(lab.add("true"))).returncode == 2


def test_the_time_limit_of_a_job_there_can_only_become_shorter(lab: Lab) -> None:
    """Slurm ends it at the limit that it was given, and lets only administrators raise that."""
    job_id = lab.send("sleep 600", time_limit_s=600)
    lab.until(job_id, "started")
    done = lab.cli("edit", str(job_id), "--time", "1h")
    assert (done.returncode, "it can only be shortened" in done.stderr) == (2, True), done.stderr
    assert lab.job(job_id)["time_limit_s"] == 600
    assert lab.cli("edit", str(job_id), "--time", "1s").returncode == 0
    assert lab.until(job_id)["state"] == "timeout"
