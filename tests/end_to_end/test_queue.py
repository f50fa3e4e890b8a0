"""The queue as a whole: many jobs of mixed sizes, correct results, the order of starts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import recorder
from bench import Bench, wait_for


def test_two_hundred_mixed_jobs_run_once_each_without_overlap(bench: Bench) -> None:
    rng = random.Random(7)
    trace = bench.folder / "trace"
    jobs: list[dict[str, Any]] = []
    for n in range(200):
        code = rng.choice((0, 0, 0, 1, 7))
        jobs.append(
            {
                "command": recorder.command(trace, code, rng.choice((0, 0.01, 0.03))),
                "gpus": rng.choice((0, 1, 1, 1, 2, 4)),
                "priority": rng.choice((-10, 0, 0, 0, 10)),
                "name": f"j{n}-{code}",
            }
        )
    ids = bench.add_many(jobs)
    finished = bench.wait_all(180)
    codes = {job_id: int(job["name"].split("-")[1]) for job_id, job in zip(ids, jobs, strict=True)}
    found = recorder.runs(trace)
    recorder.check_once_each(found)
    recorder.check_no_overlap(found)
    recorder.check_results(finished, codes, found)
    assert {run.job: len(run.devices) for run in found} == {job["id"]: job["gpus"] for job in finished}
    check_order(bench, finished)


def check_order(bench: Bench, jobs: list[dict[str, Any]]) -> None:
    """Check that jobs with equal requests were placed by priority, then by submission."""
    placed = {job["id"]: min(e["at"] for e in bench.events(job["id"]) if e["kind"] == "Placed") for job in jobs}
    for gpus in (0, 1, 2, 4):
        alike = [job for job in jobs if job["gpus"] == gpus]
        by_rule = sorted(alike, key=lambda job: (-job["priority"], job["id"]))
        moments = [placed[job["id"]] for job in by_rule]
        assert moments == sorted(moments)


def test_many_simultaneous_starts_are_all_reported(tmp_path: Path) -> None:
    """More than the queue of a datagram socket holds."""
    bench = Bench(tmp_path, devices="fake:40")
    try:
        ids = bench.add_many([{"argv": ["sleep", "300"], "gpus": 1}] * 40)
        counts = wait_for(lambda: bench.client.get("/v1/jobs")["counts"], lambda seen: seen["running"] == 40)
        assert counts["starting"] == 0
        assert sorted(index for job in ids for index in bench.job(job)["gpu_indices"]) == list(range(40))
    finally:
        bench.close()


def test_a_big_job_is_not_starved_by_small_ones_behind_it(bench: Bench) -> None:
    trace = bench.folder / "trace"
    small = {"command": recorder.command(trace, seconds=0.05), "gpus": 1}
    first = bench.add_many([small] * 4)
    big = bench.add(recorder.command(trace), gpus=4)
    behind = bench.add_many([small] * 8)
    bench.wait_all()
    began = {run.job: run.began_ns for run in recorder.runs(trace)}
    assert max(began[job] for job in first) < began[big] < min(began[job] for job in behind)


def test_chosen_preferred_and_typed_devices_are_allocated(bench: Bench) -> None:
    chosen = bench.add("true", gpu_ids=["2", "FAKE-0"])
    preferred = bench.add("true", gpus=1, prefer=["3"])
    typed = bench.add("true", gpus=2, gpu_type="pretend*")
    assert bench.until(chosen)["gpu_indices"] == [0, 2]
    assert bench.until(preferred)["gpu_indices"] == [3]
    assert len(bench.until(typed)["gpu_indices"]) == 2


def test_a_job_gets_its_environment(bench: Bench) -> None:
    bench.client.environ = bench.environ
    job = bench.add(
        "env; umask; pwd; readlink /proc/self/fd/0; ls -l /proc/self/fd", gpus=2, name="see me", env={"MINE": "x y"}
    )
    bench.until(job)
    seen = bench.log(job)
    for line in (
        "CUDA_VISIBLE_DEVICES=FAKE-0,FAKE-1",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "PYTHONUNBUFFERED=1",
        f"DIBS_JOB_ID={job}",
        "DIBS_JOB_NAME=see me",
        "DIBS_PROJECT=default",
        "DIBS_ATTEMPT=1",
        f"DIBS_JOB_DIR={bench.home}/jobs/{job}",
        "DIBS_GPU_INDICES=0,1",
        f"DIBS_CHECKPOINT_DIR={bench.home}/jobs/{job}/checkpoint",
        f"DIBS_REPORT={bench.home}/jobs/{job}/1/report.jsonl",
        "MASTER_ADDR=127.0.0.1",
        "MINE=x y",
        "0022",
        str(bench.folder),
        "/dev/null",
    ):
        assert line in seen.splitlines(), line
    assert (bench.home / "jobs" / str(job) / "log").read_text() == seen
    assert (bench.home / "jobs" / str(job) / "checkpoint").is_dir()


def test_jobs_on_one_gpu_have_ports_of_their_own_also_after_a_restart(bench: Bench) -> None:
    def ports(many: int) -> set[str]:
        ids = [bench.add("echo $MASTER_ADDR:$MASTER_PORT:$PET_MASTER_PORT:$DIBS_PORT", gpus=1) for _ in range(many)]
        return {bench.log(bench.until(job_id)["id"]) for job_id in ids}

    before = ports(3)
    bench.kill()
    bench.start()
    after = ports(3)
    assert len(before | after) == 6
    for line in before | after:
        address, *same = line.strip().split(":")
        assert (address, len(set(same))) == ("127.0.0.1", 1)


def test_logs_and_checkpoints_may_be_stored_elsewhere(tmp_path: Path) -> None:
    bench = Bench(tmp_path, DIBS_FILES=str(tmp_path / "files"))
    try:
        job = bench.until(bench.add("echo here; ls -d $DIBS_CHECKPOINT_DIR", gpus=0))
        folder = tmp_path / "files" / "jobs" / str(job["id"])
        assert job["log"] == f"{folder}/1/log"
        assert (folder / "log").read_text() == f"here\n{folder}/checkpoint\n"
    finally:
        bench.close()


def test_a_job_without_gpus_sees_none(bench: Bench) -> None:
    job = bench.add('echo "[$CUDA_VISIBLE_DEVICES]"', gpus=0)
    bench.until(job)
    assert bench.log(job) == "[]\n"


def test_a_retry_is_a_new_attempt_with_its_own_log(bench: Bench) -> None:
    job = bench.add("echo attempt $DIBS_ATTEMPT; exit $((2 - DIBS_ATTEMPT))")
    assert bench.until(job)["exit_code"] == 1
    assert bench.retry(job)["changed"] == [{"id": job, "state": "queued"}]
    again = bench.until(job)
    assert (again["state"], again["attempt"], again["exit_code"]) == ("done", 2, 0)
    assert [past["outcome"] for past in again["attempts"]] == ["failed", "done"]
    folder = bench.home / "jobs" / str(job)
    assert (folder / "1" / "log").read_text() == "attempt 1\n"
    assert (folder / "log").read_text() == "attempt 2\n"


def test_a_command_that_cannot_be_started_gives_the_reason(bench: Bench) -> None:
    job = bench.until(bench.add(["/nonexistent/program"]))
    assert (job["state"], job["cause"], job["exit_code"]) == ("failed", "start", 127)
    assert "No such file" in job["remark"]
    assert bench.free_devices() == [0, 1, 2, 3]


def test_the_time_limit_ends_a_job(bench: Bench) -> None:
    job = bench.until(bench.add("sleep 300", time_limit_s=0.2))
    assert (job["state"], job["cause"]) == ("timeout", "timeout")
