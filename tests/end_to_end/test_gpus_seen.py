"""Real daemons over a fake NVIDIA driver that changes while jobs run: cards are lost, hang, fail, and are used."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from bench import Bench, wait_for
from dibs.system import users

GIB = 2**30
A, B, C = (f"GPU-{letter * 4}" for letter in "abc")
CARDS = (f"gpu 0 uuid={A} bus=00000000:01:00.0", f"gpu 1 uuid={B} bus=00000000:02:00.0")


@pytest.fixture
def bench(nvml, tmp_path):
    nvml.is_now(*CARDS)
    found = Bench(tmp_path, "", **nvml.environ)
    found.start()
    yield found
    found.close()


def gpus(bench):
    return {gpu["id"]: gpu for gpu in bench.client.get("/v1/gpus")["gpus"]}


def kinds(bench, job_id):
    return [event["kind"] for event in bench.events(job_id)]


def test_the_job_sees_the_allocated_card_whatever_the_indices(bench, nvml):
    job = bench.until(bench.add("echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER", gpu_ids=["1"]))
    assert (job["gpu_ids"], bench.log(job["id"])) == ([B], f"{B} PCI_BUS_ID\n")
    # After a reboot the driver may use another order.
    nvml.is_now(f"gpu 0 uuid={B} bus=00000000:02:00.0", f"gpu 1 uuid={A} bus=00000000:01:00.0")
    wait_for(lambda: gpus(bench)[A]["index"] == 1)
    job = bench.until(bench.add("echo $CUDA_VISIBLE_DEVICES", gpu_ids=["1"]))
    assert (job["gpu_ids"], bench.log(job["id"])) == ([A], f"{A}\n")
    holder = bench.long_job(gpu_ids=["0"])
    found = gpus(bench)
    assert (found[B]["state"], found[B]["holders"][0]["job"], found[A]["state"]) == ("leased", str(holder), "free")


def test_a_card_used_without_a_lease_is_not_allocated_until_it_is_free(bench, nvml, stranger):
    nvml.is_now(*CARDS, f"proc 0 pid={stranger} mem={3 * GIB}")
    wait_for(lambda: gpus(bench)[A]["state"] == "foreign")
    assert (gpus(bench)[A]["foreign_memory"], gpus(bench)[A]["processes"][0]["pid"]) == (3 * GIB, stranger)
    assert bench.until(bench.add("true"))["gpu_ids"] == [B]
    waits = bench.add("true", gpu_ids=["0"])
    wait_for(lambda: f"used without a lease by {users.own()}'s sleep (pid {stranger}, 3G)" in bench.reason(waits))
    ignores = bench.until(bench.add("true", gpu_ids=["0"], ignore_foreign=True))
    assert (ignores["state"], ignores["gpu_ids"]) == ("done", [A])
    assert bench.job(waits)["state"] == "queued"
    nvml.is_now(*CARDS)
    assert bench.until(waits)["gpu_ids"] == [A]


def test_the_expected_gpus_are_based_on_a_fresh_reading(bench, nvml, stranger):
    """GPUs are not read while nothing runs, and somebody may use them by now."""
    nvml.is_now(*CARDS, f"proc 0 pid={stranger} mem={3 * GIB}")
    assert "starts   now, on GPU 1\n" in bench.cli("add", "--dry-run", "true").stdout
    nvml.is_now(*CARDS, f"proc 1 pid={stranger} mem={3 * GIB}")
    assert "starts   now, on GPU 0\n" in bench.cli("add", "--dry-run", "true").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="a process of another user needs root")
def test_foreign_use_of_a_leased_card_is_an_event_of_the_job(bench, nvml):
    job_id = bench.long_job(gpu_ids=["0"])
    theirs = subprocess.Popen(["sleep", "1000"], user="daemon")
    try:
        nvml.is_now(*CARDS, f"proc 0 pid={theirs.pid} mem={GIB}")
        wait_for(lambda: "Foreign" in kinds(bench, job_id))
        assert "daemon's sleep" in bench.job(job_id)["marks"][0]
    finally:
        theirs.kill()
        theirs.wait()


def test_a_card_is_free_only_after_its_memory_was_released(bench, nvml):
    first = bench.long_job(gpu_ids=["0"])
    wait_for(lambda: gpus(bench)[A]["state"] == "leased")
    nvml.is_now(f"{CARDS[0]} used={9 * GIB}", CARDS[1])
    bench.cancel(first, grace_s=0)
    bench.until(first)
    second = bench.add("true", gpu_ids=["0"])
    wait_for(lambda: gpus(bench)[A]["settling"] is not None)
    assert (gpus(bench)[A]["state"], gpus(bench)[A]["holders"]) == ("leased", [])
    assert bench.job(second)["state"] == "queued"
    nvml.is_now(*CARDS)
    assert bench.until(second)["state"] == "done"


def test_an_xid_marks_its_card_and_the_job_on_it_and_no_other(bench, nvml):
    hurt, other = bench.long_job(gpu_ids=["0"]), bench.long_job(gpu_ids=["1"])
    nvml.is_now(*CARDS, "event 0 seq=1 data=31", "event 0 seq=2 data=79")
    wait_for(lambda: gpus(bench)[A]["state"] == "unhealthy")
    assert "Xid 79 (the GPU has fallen off the bus" in gpus(bench)[A]["fault"]
    wait_for(lambda: "Unwell" in kinds(bench, hurt))
    assert "Xid 79" in bench.job(hurt)["marks"][0]
    assert (bench.job(hurt)["state"], bench.job(other)["state"], kinds(bench, other).count("Unwell")) == (
        "running", "running", 0,
    )  # fmt: skip
    # A new daemon has not received it, and knows.
    nvml.is_now(*CARDS)
    bench.cancel(hurt, grace_s=0)
    bench.until(hurt)
    bench.stop()
    bench.start()
    assert gpus(bench)[A]["state"] == "unhealthy"
    waits = bench.add("true", gpu_ids=["0"])
    wait_for(lambda: "Xid 79" in bench.reason(waits))
    bench.client.post(f"/v1/gpus/{A}/undrain", {})
    assert bench.until(waits)["state"] == "done"


def test_a_hanging_or_lost_card_is_unusable_and_the_daemon_answers(bench, nvml):
    nvml.is_now(*CARDS, f"gpu 2 uuid={C} bus=00000000:03:00.0")
    wait_for(lambda: C in gpus(bench))
    nvml.is_now(CARDS[0], f"{CARDS[1]} lost=1", f"gpu 2 uuid={C}", "slow nvmlDeviceGetMemoryInfo_v2 2 ms=3600000")
    wait_for(lambda: gpus(bench)[C]["fault"] and gpus(bench)[B]["fault"])
    found = gpus(bench)
    assert "did not answer for 5 s about this GPU" in found[C]["fault"]
    assert "fallen off the bus" in found[B]["fault"]
    assert found[A]["state"] == "free"
    assert bench.until(bench.add("true"))["gpu_ids"] == [A]


def test_a_slice_is_a_device_and_its_card_is_none(bench, nvml):
    slices = [f"mig 1 uuid=MIG-{n} gi={n} total={20 * GIB}" for n in (1, 2)]
    nvml.is_now(CARDS[0], f"{CARDS[1]} mig=1", *slices)
    wait_for(lambda: set(gpus(bench)) == {A, "MIG-1", "MIG-2"})
    jobs = [bench.until(bench.add("echo $CUDA_VISIBLE_DEVICES", gpu_ids=[f"MIG-{n}"])) for n in (1, 2)]
    assert [(job["gpu_ids"], bench.log(job["id"])) for job in jobs] == [(["MIG-1"], "MIG-1\n"), (["MIG-2"], "MIG-2\n")]


def test_added_cards_are_used_and_removed_ones_are_not(bench, nvml):
    running = bench.long_job(gpu_ids=["1"])
    nvml.is_now(*CARDS, f"gpu 2 uuid={C} bus=00000000:03:00.0")
    wait_for(lambda: C in gpus(bench))
    assert bench.until(bench.add("true", gpu_ids=["2"]))["gpu_ids"] == [C]
    nvml.is_now(CARDS[0])
    wait_for(lambda: C not in gpus(bench))
    assert bench.until(bench.add("true"))["gpu_ids"] == [A]
    assert bench.job(running)["state"] == "running"
    nvml.is_now(*CARDS)
    wait_for(lambda: B in gpus(bench) and gpus(bench)[B]["state"] == "leased")


def test_if_the_driver_stops_answering_nothing_starts_and_the_daemon_answers(bench, nvml):
    running = bench.long_job(gpu_ids=["0"])
    nvml.is_now(*CARDS, "slow * * ms=3600000")
    wait_for(lambda: bench.client.get("/v1/gpus"), lambda seen: "did not answer" in (seen["problem"] or ""))
    waits = bench.add("true")
    assert "did not answer" in bench.reason(waits)
    assert (bench.job(running)["state"], bench.job(waits)["state"]) == ("running", "queued")
    assert bench.until(bench.add("true", gpus=0))["state"] == "done"
    nvml.is_now(*CARDS)
    assert bench.until(waits)["gpu_ids"] == [B]


def test_if_driver_and_library_do_not_match_nothing_starts_and_nothing_stops(bench, nvml):
    running = bench.long_job()
    nvml.is_now(*CARDS, "system init=18")
    wait_for(lambda: "upgraded but not reloaded" in (bench.client.get("/v1/gpus")["problem"] or ""))
    waits = bench.add("true")
    wait_for(lambda: "upgraded but not reloaded" in bench.reason(waits))
    assert (bench.job(running)["state"], bench.job(waits)["state"]) == ("running", "queued")
    assert bench.until(bench.add("true", gpus=0))["state"] == "done"
    nvml.is_now(*CARDS)
    assert bench.until(waits)["state"] == "done"


@pytest.mark.parametrize("strict", [False, True])
def test_a_job_on_a_card_outside_its_allocation_is_marked_or_ended(bench, nvml, strict):
    job_id = bench.long_job(gpu_ids=["0"], strict_gpus=strict)
    pid = bench.job(job_id)["pid"]
    nvml.is_now(*CARDS, f"proc 0 pid={pid} mem={GIB}", f"proc 1 pid={pid} mem={GIB}")
    wait_for(lambda: "Stray" in kinds(bench, job_id))
    if strict:
        job = bench.until(job_id)
        assert (job["state"], job["cause"]) == ("failed", "gpu")
        assert job["remark"] == f"stopped by --strict-gpus: it uses GPU 1, which was not assigned to it (pid {pid})"
    else:
        assert bench.job(job_id)["marks"] == [f"uses GPU 1, which was not assigned to it (pid {pid})"]
        assert bench.job(job_id)["state"] == "running"


def test_the_gpu_usage_of_a_job_is_stored(bench, nvml):
    job_id = bench.long_job(gpu_ids=["0"])
    pid = bench.job(job_id)["pid"]
    nvml.is_now(f"{CARDS[0]} used={5 * GIB} util=80", CARDS[1], f"proc 0 pid={pid} mem={4 * GIB}")
    wait_for(lambda: gpus(bench)[A]["utilization"] == 80)
    nvml.is_now(*CARDS)
    bench.cancel(job_id, grace_s=0)
    bench.until(job_id)
    (use,) = wait_for(lambda: bench.job(job_id)["use"])
    assert (use["id"], use["peak_memory"]) == (A, 4 * GIB)
    assert 0 < use["mean_utilization"] <= 80


def test_an_idle_daemon_closes_the_driver_and_does_not_read_it(bench, nvml):
    def children():
        pid = bench.pid()
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [c for c in found if b"dibs.devices.driver_child" in Path(f"/proc/{c}/cmdline").read_bytes()]

    assert bench.until(bench.add("true"))["state"] == "done"
    wait_for(lambda: not children())
    # A new job gets a fresh reading of the driver.
    nvml.is_now(f"{CARDS[0]} lost=1", CARDS[1])
    assert bench.until(bench.add("true"))["gpu_ids"] == [B]


def test_a_machine_that_had_gpus_and_shows_none_keeps_jobs_for_them(bench, nvml):
    """Also after a restart, and until they are back."""
    bench.until(bench.add("true"))
    bench.stop()
    nvml.is_now("system init=12")
    bench.start()
    gone = r"no GPU is visible; this machine had 2 until \d\d:\d\d \(driver: NVML Shared Library Not Found\)"
    done = bench.cli("add", "echo", "on")
    assert (done.returncode, done.stderr) == (0, "")
    waits = int(done.stdout)
    assert bench.until(bench.add("true", gpus=0))["state"] == "done"
    assert re.fullmatch(f"needs 1 GPU; {gone}", bench.reason(waits))
    assert bench.job(waits)["gpus"] == 1
    assert re.search(gone, bench.cli("status").stdout)
    assert re.search(f"^problem +gpus +{gone}", bench.cli("doctor").stdout, re.MULTILINE)
    nvml.is_now(*CARDS)
    assert bench.until(waits)["gpu_ids"] == [A]


def test_a_machine_that_is_to_use_no_gpus_any_more_does_not_miss_them(bench, nvml):
    bench.until(bench.add("true"))
    bench.stop()
    nvml.is_now("system init=12")
    bench.environ["DIBS_DEVICES"] = "none"
    bench.start()
    assert bench.until(bench.add("true"))["gpus"] == 0
