"""A lease whose GPU shows no use is named, and its holder is warned once (a fake NVIDIA driver reports the use)."""

import pytest

from bench import Bench, wait_for
from terminal import CTRL_C, Terminal

A, B = (f"GPU-{letter * 4}" for letter in "ab")
CARDS = (f"gpu 0 uuid={A} bus=00000000:01:00.0", f"gpu 1 uuid={B} bus=00000000:02:00.0")
BUSY = (f"{CARDS[0]} util=90", CARDS[1])


@pytest.fixture
def bench(nvml, tmp_path):
    nvml.is_now(*CARDS)
    found = Bench(tmp_path, "", **nvml.environ, DIBS_IDLE_AFTER="1s")
    found.start()
    yield found
    found.close()


def gpu(bench, device=A):
    return next(one for one in bench.client.get("/v1/gpus")["gpus"] if one["id"] == device)


def test_an_idle_lease_is_named_and_its_terminal_is_warned_once(bench, nvml):
    with Terminal(bench, "lease", "--gpu-ids", "0") as person:
        person.until("export CUDA_VISIBLE_DEVICES")
        wait_for(lambda: gpu(bench)["is_idle"])
        assert gpu(bench, B)["is_idle"] is False, "nobody has leased it"
        person.until("GPU 0 has shown no use for 1s")
        assert "no use for" in bench.cli("gpus").stdout
        assert "GPU 0 is leased by" in bench.cli("doctor").stdout
        nvml.is_now(*BUSY)
        wait_for(lambda: not gpu(bench)["is_idle"])
        person.type(CTRL_C)
        code, output = person.end()
        assert code == 0
        assert output.count("has shown no use") == 1
    assert gpu(bench)["unused_since"] is None


def test_a_job_that_does_not_use_its_gpu_is_noted_once(bench, nvml, tmp_path):
    told = tmp_path / "told"
    job = bench.long_job(notify=f"echo $DIBS_EVENT $DIBS_TEXT >> {told}")
    wait_for(told.exists)
    assert told.read_text().startswith(f"idle job {job} (sleep): GPU 0 has shown no use for 1s")
    wait_for(lambda: gpu(bench)["is_idle"])
    assert [event["kind"] for event in bench.events(job)].count("Idle") == 1
