"""Order inside a queue: dependencies, begin times, retries, holds."""

from __future__ import annotations

import datetime as dt
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

import recorder
from bench import Bench, wait_for
from dibs.errors import DibsError
from dibs.leases import usage_records
from dibs.system.locks import Folder


def gated(gate: Path, code: int = 0) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.01; done; exit {code}"


def after(job: int, when: str = "done") -> list[dict[str, Any]]:
    return [{"select": str(job), "when": when}]


def test_a_job_starts_after_its_dependencies(bench: Bench) -> None:
    gate, trace = bench.folder / "gate", bench.folder / "trace"
    first = bench.add(gated(gate), gpus=0)
    second = bench.add(recorder.command(trace), gpus=0, after=after(first))
    bench.until(first, "started")
    waiting = bench.job(second)
    assert (waiting["state"], waiting["reason"]) == ("queued", f"waiting for job {first}, which is running")
    assert waiting["after"] == [{"id": first, "when": "done"}]
    gate.touch()
    assert bench.until(second)["state"] == "done"
    assert bench.job(first)["finished_at"] <= bench.job(second)["started_at"]


def test_a_failure_cancels_all_dependants_and_a_retry_queues_them_again(bench: Bench) -> None:
    flag = bench.folder / "flag"
    first = bench.add(f"test -e {flag}", gpus=0)
    second = bench.add("true", gpus=0, after=after(first))
    third = bench.add("true", gpus=0, after=after(second))
    assert bench.until(third)["cause"] == "dependency"
    assert [bench.job(job)["state"] for job in (first, second)] == ["failed", "cancelled"]
    flag.touch()
    bench.retry(first)
    assert bench.until(third)["state"] == "done"
    assert [(bench.job(job)["state"], bench.job(job)["attempt"]) for job in (first, second)] == [
        ("done", 2),
        ("done", 1),
    ]


def test_one_success_is_enough_for_any_and_every_end_for_end(bench: Bench) -> None:
    bad, good = bench.add("false", gpus=0), bench.add("true", gpus=0)
    either = [{"select": str(job), "when": "any"} for job in (bad, good)]
    assert bench.until(bench.add("true", gpus=0, after=either))["state"] == "done"
    assert bench.until(bench.add("true", gpus=0, after=after(bad, "end")))["state"] == "done"
    neither = bench.until(bench.add("true", gpus=0, after=after(bad, "any")))
    assert (neither["state"], neither["cause"]) == ("cancelled", "dependency")


def test_a_dependency_must_exist(bench: Bench) -> None:
    bench.start()
    with pytest.raises(DibsError) as refused:
        bench.add("true", after=after(99))
    assert refused.value.exit_code == 3
    assert bench.client.get("/v1/jobs")["jobs"] == []


def test_a_job_starts_at_its_begin_time(bench: Bench) -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    later = bench.add("true", gpus=0, begin_at=(soon + dt.timedelta(days=1)).isoformat())
    job = bench.add("true", gpus=0, begin_at=soon.isoformat())
    assert bench.job(later)["reason"] == "waiting for its begin time (--begin)"
    done = bench.until(job)
    assert done["state"] == "done"
    assert dt.datetime.fromisoformat(done["started_at"]) >= soon - dt.timedelta(milliseconds=1)
    assert bench.job(later)["state"] == "queued"


def test_a_failed_job_is_retried_up_to_its_limit(bench: Bench) -> None:
    job = bench.until(bench.add("exit $((3 - DIBS_ATTEMPT))", gpus=0, retries=2))
    assert (job["state"], job["attempt"]) == ("done", 3)
    hopeless = bench.until(bench.add("exit 4", gpus=0, retries=1))
    assert (hopeless["state"], hopeless["attempt"], hopeless["exit_code"]) == ("failed", 2, 4)


def test_only_the_chosen_causes_are_retried(bench: Bench) -> None:
    words = "echo torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB; exit 1"
    oom = bench.until(bench.add(words, gpus=0, retries=1, retry_on=["oom"]))
    assert (oom["cause"], oom["attempt"]) == ("oom", 2)
    plain = bench.until(bench.add("exit 1", gpus=0, retries=1, retry_on=["oom"]))
    assert (plain["cause"], plain["attempt"]) == ("exit", 1)
    slow = bench.until(bench.add("sleep 60", gpus=0, retries=1, time_limit_s=0.2))
    assert (slow["state"], slow["attempt"]) == ("timeout", 1)


def test_chosen_exit_codes_are_retried(bench: Bench) -> None:
    """144 is the code of a program that wants to run again; a signal counts as the shell counts it."""
    again = bench.until(bench.add("exit $((DIBS_ATTEMPT == 1 ? 144 : 3))", gpus=0, retries=5, retry_on=["lost", 144]))
    assert (again["exit_code"], again["attempt"], again["retry_on"]) == (3, 2, ["lost", "144"])
    killed = bench.until(bench.add(["sh", "-c", "kill -9 $$"], gpus=0, retries=1, retry_on=["137"]))
    assert (killed["signal"], killed["attempt"]) == (9, 2)


def test_a_batch_never_exceeds_its_limit(bench: Bench) -> None:
    trace = bench.folder / "trace"
    body = {"defaults": {"cwd": "/", "gpus": 0}, "jobs": [{"command": recorder.command(trace)}] * 12, "at_once": 2}
    bench.client.post("/v1/jobs", body)
    bench.wait_all()
    moments = [(run.began_ns, 1) for run in recorder.runs(trace)]
    moments += [(run.ended_ns or 0, -1) for run in recorder.runs(trace)]
    assert max(itertools.accumulate(change for _, change in sorted(moments))) <= 2
    assert len(recorder.runs(trace)) == 12


def test_a_batch_is_held_after_too_many_failures(bench: Bench) -> None:
    body = {"defaults": {"cwd": "/", "gpus": 0}, "jobs": [{"command": "false"}] * 9, "at_once": 1, "halt_after": 2}
    bench.client.post("/v1/jobs", body)
    states = wait_for(lambda: [job["state"] for job in bench.jobs()], lambda seen: seen.count("held") == 7)
    assert states.count("failed") == 2
    assert bench.events(9)[-1]["detail"] == "2 of its batch failed (--halt)"


def test_held_jobs_and_a_paused_queue_start_nothing(bench: Bench) -> None:
    bench.start()
    assert bench.client.post("/v1/queue", {"paused": True})["paused"] is True
    job = bench.add("true", gpus=0)
    assert bench.client.get(f"/v1/jobs/{job}/why")["reason"] == "the queue is paused"
    action = {"verb": "hold", "select": [str(job)]}
    assert bench.client.post("/v1/jobs/actions", action)["changed"] == [{"id": job, "state": "held"}]
    bench.client.post("/v1/queue", {"paused": False})
    other = bench.until(bench.add("true", gpus=0))
    assert other["state"] == "done"
    assert bench.job(job)["state"] == "held"
    bench.client.post("/v1/jobs/actions", {"verb": "unhold", "select": [str(job)]})
    assert bench.until(job)["state"] == "done"


def test_a_short_job_backfills_before_a_big_one_that_waits(bench: Bench) -> None:
    gate = bench.folder / "gate"
    long = bench.add(gated(gate), gpus=3, time_limit_s=3600)
    big = bench.add("true", gpus=4)
    bench.until(long, "started")
    endless = bench.add("true", gpus=1)
    short = bench.add("true", gpus=1, time_limit_s=60)
    assert bench.until(short)["state"] == "done"
    assert [bench.job(job)["state"] for job in (big, endless)] == ["queued", "queued"]
    assert f"reserved for job {big}, which is ahead" in bench.job(endless)["reason"]
    gate.touch()
    assert bench.until(endless)["state"] == "done"
    assert bench.job(big)["finished_at"] <= bench.job(endless)["finished_at"]


def test_cpu_and_memory_limits_are_respected(bench: Bench) -> None:
    gate = bench.folder / "gate"
    first = bench.add(gated(gate), gpus=1, cpus=3)
    bench.until(first, "started")
    second = bench.add("true", gpus=1, cpus=2)
    assert bench.job(second)["reason"] == "needs 2 CPUs; running jobs leave 1 of 4"
    with pytest.raises(DibsError) as refused:
        bench.add("true", mem=2**50)
    assert refused.value.exit_code == 69
    gate.touch()
    assert bench.until(second)["state"] == "done"


def test_the_etiquette_limits_our_jobs(tmp_path: Path) -> None:
    polite = Bench(tmp_path, DIBS_MAX_GPUS="2")
    try:
        gate = polite.folder / "gate"
        ids = polite.add_many([{"command": gated(gate), "gpus": 1}] * 3)
        for job in ids[:2]:
            polite.until(job, "started")
        assert polite.job(ids[2])["reason"] == "your jobs use 2 of 2 GPUs (setting max_gpus)"
        gate.touch()
        assert polite.until(ids[2])["state"] == "done"
    finally:
        polite.close()


def test_a_repaired_database_does_not_reuse_the_ids_of_existing_folders(bench: Bench) -> None:
    assert bench.until(bench.add("exit 7", gpus=0))["id"] == 1
    bench.stop()
    for path in bench.home.glob("dibs.db*"):
        path.unlink()
    assert "the queue is missing" in bench.cli("add", "-g0", "true").stderr
    assert bench.cli("doctor", "--repair", "-y").returncode == 0
    again = bench.until(bench.add("true", gpus=0))
    assert (again["id"], again["state"]) == (2, "done")


def test_a_retry_requeues_a_dependency_chain_of_any_length(bench: Bench) -> None:
    flag = bench.folder / "flag"
    first = bench.add(f"while [ ! -e {flag} ]; do sleep 0.01; done; test $(cat {flag}) = good", gpus=0)
    chain = [first]
    for _ in range(1200):
        chain.append(bench.add("true", gpus=0, after=after(chain[-1])))
    flag.write_text("bad")
    wait_for(lambda: bench.client.get("/v1/queue")["counts"]["cancelled"], lambda count: count == 1200)
    flag.write_text("good")
    bench.client.post("/v1/queue", {"paused": True})
    bench.retry(first)
    assert bench.client.get("/v1/queue")["counts"]["queued"] == 1201


def test_dependants_are_updated_when_a_retry_comes_with_the_end(bench: Bench) -> None:
    """Both in one turn: the end to be followed up is no longer the state of the job."""
    job = bench.add("exit 1", gpus=0, retries=3)
    dependant = bench.add("true", gpus=0, after=after(job, "end"))
    for _ in range(200):
        bench.retry(job)
        if bench.job(dependant)["state"] == "done":
            break
    assert bench.until(dependant)["state"] == "done"


def test_the_device_time_of_short_jobs_is_recorded_when_no_job_follows(bench: Bench) -> None:
    bench.add_many([{"command": "true"}] * 3)
    assert {job["state"] for job in bench.wait_all()} == {"done"}

    def recorded_ms() -> float:
        return sum(usage_records.read(Folder(str(bench.leases)), os.geteuid()).days.values())

    wait_for(lambda: recorded_ms() > 0)
