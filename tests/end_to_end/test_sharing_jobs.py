"""Jobs of one user that share GPUs by memory, with real processes: which run together, and what they see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench, wait_for

GIB = 2**30


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, "fake:2x24G")
    yield made
    made.close()


def gated(gate: Path) -> str:
    """Return a command that runs until `gate` exists."""
    return f"while [ ! -e {gate} ]; do sleep 0.01; done"


def holders(bench: Bench) -> list[list[tuple[str | None, int | None]]]:
    """Return the job and the bytes of every holder, device by device.

    A holder has no job until the note in its lease is written.
    """
    gpus = bench.client.get("/v1/gpus")["gpus"]
    return [sorted(((holder["job"], holder["vram"]) for holder in gpu["holders"]), key=repr) for gpu in gpus]


def test_jobs_share_a_card_as_far_as_they_fit_and_one_without_vram_is_exclusive(bench: Bench) -> None:
    gate = bench.folder / "gate"
    bench.add_many([{"command": gated(gate), "vram": gib * GIB} for gib in (6, 18, 12)])
    alone = bench.add(gated(gate))
    # 6 and 18 fill one card; beside 12 there is room, but not for an exclusive job.
    wait_for(lambda: holders(bench), lambda seen: seen == [[("1", 6 * GIB), ("2", 18 * GIB)], [("3", 12 * GIB)]])
    why = bench.client.get(f"/v1/jobs/{alone}/why")["reason"]
    assert why == "needs 1 GPU; 0 of 2 free, GPU 0: job 1 and job 2, GPU 1: job 3"
    small = bench.add("echo $XLA_PYTHON_CLIENT_PREALLOCATE $TF_FORCE_GPU_ALLOW_GROWTH", vram=2 * GIB, time_limit_s=60)
    # It ends before the exclusive job ahead could start, so it may backfill.
    assert bench.until(small)["state"] == "done"
    assert bench.log(small) == "false true\n"
    big = bench.add(gated(gate), vram=18 * GIB)
    why = bench.client.get(f"/v1/jobs/{big}/why")["reason"]
    assert (
        "asks for 18G on 1 GPU; 0 of 2 have room, GPU 0: nothing left (job 1 and job 2), GPU 1: 12G left (job 3)" in why
    )
    assert bench.job(1)["vram"] == 6 * GIB
    assert bench.job(alone)["vram"] is None
    gate.touch()
    assert {job["state"] for job in bench.wait_all()} == {"done"}


def test_more_memory_than_a_card_has_is_refused(bench: Bench) -> None:
    refused = bench.cli("add", "--vram", "25G", "true")
    assert refused.returncode == 69
    assert refused.stderr == (
        "dibs: the job asks for --vram 25G; the largest GPU has 24G. Without --vram it gets exclusive use of a GPU.\n"
    )
    refused = bench.cli("add", "--vram", "20", "true")
    assert refused.returncode == 2


def test_after_gpu_out_of_memory_the_next_attempt_is_exclusive(bench: Bench) -> None:
    out_of_memory = "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1"
    retried = bench.add(out_of_memory, vram=6 * GIB, retries=1)
    named = bench.add(out_of_memory, vram=6 * GIB)
    machine = bench.add("echo MemoryError; exit 1", vram=6 * GIB)
    bench.wait_all()
    assert (bench.job(retried)["attempt"], bench.job(retried)["vram"]) == (2, None)
    assert [bench.job(job)["cause"] for job in (retried, named, machine)] == ["oom"] * 3
    assert bench.job(named)["vram"] == 6 * GIB
    bench.retry(named, machine)
    bench.wait_all()
    # If the memory of the machine ran out, a whole GPU would not help.
    assert [bench.job(job)["vram"] for job in (named, machine)] == [None, 6 * GIB]
    told = [event["detail"] for event in bench.events(named) if event["kind"] == "Edited"]
    assert told == ["vram: out of GPU memory with 6G; it gets exclusive use now"]
