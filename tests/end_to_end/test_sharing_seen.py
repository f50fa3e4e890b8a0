"""Sharing over a fake NVIDIA driver: foreign use counts, and a job that uses more than it declared is ended."""

import pytest

from bench import Bench, wait_for

GIB = 2**30
A, B = "GPU-aaaa", "GPU-bbbb"
CARDS = (f"gpu 0 uuid={A} total={24 * GIB}", f"gpu 1 uuid={B} total={24 * GIB}")


@pytest.fixture
def bench(nvml, tmp_path):
    nvml.is_now(*CARDS)
    found = Bench(tmp_path, "", **nvml.environ)
    found.start()
    yield found
    found.close()


def used(card, gib, pid):
    """Return a card of which a process uses the given amount."""
    return f"{CARDS[card]} used={gib * GIB}", f"proc {card} pid={pid} mem={gib * GIB}"


def test_memory_in_foreign_use_is_not_shared_until_it_is_free(bench, nvml, stranger):
    nvml.is_now(*used(0, 14, stranger), CARDS[1])
    wait_for(lambda: [g["foreign_memory"] for g in bench.client.get("/v1/gpus")["gpus"]] == [14 * GIB, 0])
    assert bench.job(bench.long_job(vram=20 * GIB))["gpu_ids"] == [B]
    waits = bench.add(["sleep", "1000"], vram=12 * GIB)
    wait_for(lambda: "0 of 2 have room, GPU 0: 10G left, GPU 1: 4G left (job 1)" in bench.reason(waits))
    nvml.is_now(*used(0, 12, stranger), CARDS[1])
    assert bench.until(waits, "started")["gpu_ids"] == [A]


def test_other_processes_of_the_owner_beside_a_sharing_job_count_as_foreign(bench, nvml, stranger):
    """The job declared 12G and uses 10G of them; another 6G are used by an undeclared process."""
    job_id = bench.long_job(vram=12 * GIB, gpu_ids=["0"])
    pid = bench.job(job_id)["pid"]
    own = f"proc 0 pid={pid} mem={10 * GIB}"
    nvml.is_now(f"{CARDS[0]} used={16 * GIB}", CARDS[1], own, f"proc 0 pid={stranger} mem={6 * GIB}")
    wait_for(lambda: [g["foreign_memory"] for g in bench.client.get("/v1/gpus")["gpus"]] == [6 * GIB, 0])
    wait_for(lambda: "Foreign" in [event["kind"] for event in bench.events(job_id)])
    assert f"'s sleep (pid {stranger}, 6G)" in bench.job(job_id)["marks"][0]
    waits = bench.add(["sleep", "1000"], vram=10 * GIB, gpu_ids=["0"])
    wait_for(lambda: "6G left" in bench.reason(waits))
    nvml.is_now(f"{CARDS[0]} used={10 * GIB}", CARDS[1], own)
    assert bench.until(waits, "started")["gpu_ids"] == [A]
    assert bench.job(job_id)["marks"] == []


@pytest.mark.parametrize("enforced", [False, True])
def test_a_job_that_uses_more_than_it_declared_is_marked_or_ended(bench, nvml, enforced):
    job_id = bench.long_job(vram=4 * GIB, gpu_ids=["0"], vram_enforce=enforced)
    nvml.is_now(*used(0, 6, bench.job(job_id)["pid"]), CARDS[1])
    wait_for(lambda: "Exceeds" in [event["kind"] for event in bench.events(job_id)])
    if enforced:
        job = bench.until(job_id)
        assert (job["state"], job["cause"]) == ("failed", "gpu")
        assert job["remark"] == "stopped by --vram-enforce: it uses 6G of GPU 0, but declared 4G"
    else:
        assert bench.job(job_id)["marks"] == ["uses 6G of GPU 0, but declared 4G"]
        assert bench.job(job_id)["state"] == "running"


def test_vram_enforce_without_vram_is_refused(bench):
    refused = bench.cli("add", "--vram-enforce", "true")
    assert (refused.returncode, refused.stderr) == (
        2,
        "dibs: --vram-enforce needs --vram. For example: --vram 18G.\n",
    )
