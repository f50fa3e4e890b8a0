"""Commands without a daemon check a GPU before they use it: one in foreign use is given back."""

import functools
import os
import subprocess
import sys

import pytest

import forking
from bench import Bench
from dibs.foreground import device_check, slot_kinds, slots
from dibs.leases import device_lease, holders, waiters
from dibs.model.jobs import Request
from dibs.scheduling import choice
from dibs.system import process_tree, settings, users

GIB = 2**30
NOTE = device_lease.Note("test", "me")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "leases").mkdir()
    return device_lease.Folder(str(tmp_path / "leases"))


def unfit(*devices):
    return lambda asked, is_taken: {device for device in asked if device in devices}


def test_an_unusable_gpu_is_given_back_and_the_next_one_taken(place):
    (lease,) = waiters.acquire(place, 1, ["a", "b"], NOTE, vet=unfit("a"))
    assert lease.device == "b"
    assert holders.held(place, ["a", "b"]) == {"b"}
    lease.close()


@pytest.mark.parametrize("count", [1, 2])
def test_without_waiting_an_unusable_gpu_is_an_error_and_nothing_is_held(place, count):
    with pytest.raises(waiters.TimedOut):
        waiters.acquire(place, count, ["a", "b"], NOTE, vet=unfit("a", *(["b"] if count == 1 else [])), timeout_s=0)
    assert holders.held(place, ["a", "b"]) == set()


def test_a_waiter_has_no_ticket_for_an_unusable_gpu_and_checks_again_later(place):
    seen = []

    def vet(devices, is_taken):
        seen.append(list(devices))
        return set(devices)

    waiter = waiters.Waiter(place, NOTE, 60.0, vet=vet)
    assert waiter.ask(1, ["a"]) is None
    assert (waiter.has_ticket, waiter.is_waiting) == (False, True)
    assert 0 < waiter.sleep_s <= waiters.UNFIT_FOR_S
    assert waiter.ask(1, ["a"]) is None
    # Checked once, and not at every request.
    assert seen == [["a"]]


@pytest.mark.parametrize(("left", "sleeps"), [(5, waiters.UNFIT_FOR_S), (6, waiters.LONGEST_S)])
def test_a_waiter_for_a_foreign_process_to_end_checks_again_later(place, left, sleeps):
    """The end of a lease wakes a waiter; the end of a foreign process does not."""
    terms = choice.Terms(6, {"a": left})
    (held,) = device_lease.take(place, ["a"], NOTE)
    waiter = waiters.Waiter(place, NOTE, 60.0, terms=lambda: terms)
    assert waiter.ask(1, ["a"]) is None
    assert waiter.sleep_s == sleeps
    waiter.leave()
    held.close()


def test_slots_skip_unusable_gpus(place):
    many = slot_kinds.ChosenSlots(slots.LeaseOptions(place, NOTE, vet=unfit("a")), 1, ["a", "b"], 1, ",".join)
    slot = many.take(0.0)
    assert slot is not None
    assert slot.devices == ("b",)
    assert many.take(1.0) is None
    assert many.ask_at < process_tree.NEVER
    many.give(slot, 2.0)
    many.close()


def test_pretend_gpus_are_not_checked():
    assert device_check.check_for_request(settings.Settings(devices="fake:4"), print) is None
    assert device_check.check_for_request(settings.Settings(devices="none"), print) is None


# --- with a driver ---


@pytest.fixture
def bench(nvml, tmp_path, stranger):
    nvml.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b", f"proc 0 pid={stranger} mem={3 * GIB}")
    found = Bench(tmp_path, "", **nvml.environ)
    yield found
    found.close()


def test_a_check_reports_foreign_use_once_and_drops_it_when_it_ended(nvml, stranger, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_STATE", str(nvml.state))
    nvml.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b", f"proc 0 pid={stranger} mem={3 * GIB}")
    said = []
    looks = device_check.check_for_request(settings.Settings(nvml_library=nvml.library), said.append)
    told = f"used without a lease by {users.own()}'s sleep (pid {stranger}, 3G)"
    vet = functools.partial(looks, is_taken=True)
    assert (vet(["GPU-a", "GPU-b"]), vet(["GPU-a"])) == ({"GPU-a"}, {"GPU-a"})
    assert (said, looks.reasons) == ([f"GPU 0 is not used: {told}"], {"GPU-a": told})
    # A text that names no device here cannot be checked.
    assert vet(["text-1"]) == set()
    nvml.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b lost=1")
    assert (vet(["GPU-a"]), looks.reasons) == (set(), {})
    nvml.is_now("gpu 0 uuid=GPU-a", f"proc 0 pid={stranger} mem={3 * GIB}")
    relaxed = device_check.check_for_request(
        settings.Settings(nvml_library=nvml.library), said.append, Request(ignore_foreign=True)
    )
    assert relaxed(["GPU-a"], is_taken=True) == set()


def test_devices_leased_one_after_the_other_need_one_reading(nvml, stranger, monkeypatch):
    """A reading starts a process, which takes 100 ms; a bad one is always repeated."""
    monkeypatch.setenv("FAKE_NVML_STATE", str(nvml.state))
    nvml.is_now(*(f"gpu {n} uuid=GPU-{n}" for n in range(4)))
    vet = device_check.check_for_request(settings.Settings(nvml_library=nvml.library), [].append)
    assert vet(["GPU-0"], is_taken=True) == set()
    nvml.is_now(*(f"gpu {n} uuid=GPU-{n}" for n in range(4)), f"proc 1 pid={stranger} mem={3 * GIB}")
    vet._fresh_until = process_tree.NEVER
    assert vet(["GPU-1"], is_taken=True) == set()
    vet._fresh_until = 0.0
    assert vet(["GPU-1"], is_taken=True) == {"GPU-1"}
    nvml.is_now(*(f"gpu {n} uuid=GPU-{n}" for n in range(4)))
    vet._fresh_until = process_tree.NEVER
    assert vet(["GPU-1"], is_taken=True) == set()


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize(
    ("gib", "told"),
    [(5, None), (6, "5G of it left for 6G: used without a lease by "), (30, "5G of it left for 30G: used without ")],
)
def test_a_share_fits_into_the_memory_that_foreign_processes_leave(nvml, stranger, monkeypatch, gib, told, is_taken):
    monkeypatch.setenv("FAKE_NVML_STATE", str(nvml.state))
    nvml.is_now(*strangers(stranger, 19))
    vet = device_check.check_for_request(
        settings.Settings(nvml_library=nvml.library), [].append, Request(vram=gib * GIB)
    )
    assert vet(["GPU-a"], is_taken=is_taken) == ({"GPU-a"} if told else set())
    assert (told or "") in vet.reasons.get("GPU-a", "")


def strangers(pid, gib):
    """Return a card of 24G of which a foreign process uses the given amount."""
    return f"gpu 0 uuid=GPU-a total={24 * GIB} used={gib * GIB}", f"proc 0 pid={pid} mem={gib * GIB}"


def test_a_pipe_shares_the_only_gpu_with_a_foreign_process(bench, nvml, stranger):
    nvml.is_now(*strangers(stranger, 10))
    command = "echo $CUDA_VISIBLE_DEVICES"
    done = bench.cli("pipe", "--vram", "12G", input=f"{command}\n" * 2)
    assert (done.returncode, done.stdout, "is not used" in done.stderr) == (0, "GPU-a\n" * 2, False)
    held = bench.cli("lease", "--no-wait", "--vram", "12G", "sh", "-c", command)
    assert (held.returncode, held.stdout) == (0, "GPU-a\n")
    refused = bench.cli("lease", "--no-wait", "--vram", "15G", "true")
    assert (refused.returncode, refused.stdout) == (75, "")
    # Without --vram it would need the card exclusively, and somebody else uses it.
    assert bench.cli("lease", "--no-wait", "true").returncode == 75


def test_the_commands_of_a_pipe_are_not_foreign_to_it(bench, nvml, tmp_path):
    """If the 10G of the first command were counted twice, there would be no room for the second."""
    nvml.is_now(f"gpu 0 uuid=GPU-a total={24 * GIB}")
    for name in ("first", "second"):
        os.mkfifo(tmp_path / name)
    words = [sys.executable, "-m", "dibs", "pipe", "--vram", "10G"]
    with subprocess.Popen(words, env=bench.environ, cwd=tmp_path, stdin=subprocess.PIPE, text=True) as pipe:
        pipe.stdin.write("echo $$ > first; read gate < second\n")
        pipe.stdin.flush()
        nvml.is_now(*strangers(int((tmp_path / "first").read_text()), 10))
        # It opens the gate of the first one, so both run at the same time.
        pipe.stdin.write("echo go > second\n")
        pipe.stdin.close()
        try:
            assert pipe.wait(timeout=60) == 0
        finally:
            pipe.kill()


def test_a_gpu_in_exclusive_process_mode_is_never_shared(bench, nvml):
    nvml.is_now(f"gpu 0 uuid=GPU-a total={24 * GIB} mode=3", f"gpu 1 uuid=GPU-b total={24 * GIB}")
    command = "echo $CUDA_VISIBLE_DEVICES"
    shared = bench.cli("pipe", "--vram", "12G", input=f"{command}\n")
    assert (shared.returncode, shared.stdout) == (0, "GPU-b\n")
    alone = bench.cli("lease", "--no-wait", "--gpu-ids", "0", "sh", "-c", command)
    assert (alone.returncode, alone.stdout) == (0, "GPU-a\n")
    for door in (["add", "true"], ["lease", "true"]):
        refused = bench.cli(door[0], "--gpu-ids", "0", "--vram", "12G", *door[1:])
        assert (refused.returncode, "compute mode is exclusive-process" in refused.stderr) == (69, True)
    (first, second) = bench.client.get("/v1/gpus")["gpus"]
    assert (first["compute_mode"], second["compute_mode"]) == ("exclusive-process", "default")
    assert "one process at a time (compute mode)" in bench.cli("gpus").stdout


def test_a_manual_lease_skips_a_gpu_in_foreign_use(bench, stranger):
    refused = bench.cli("lease", "--no-wait", "--gpu-ids", "0", "true")
    assert (refused.returncode, "used without a lease by" in refused.stderr) == (75, True)
    assert f"pid {stranger}" in refused.stderr
    shown = bench.cli("lease", "--no-wait", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert (shown.stdout, shown.returncode) == ("GPU-b\n", 0)
    forced = bench.cli("lease", "--no-wait", "--gpu-ids", "0", "--ignore-foreign", "true")
    assert forced.returncode == 0


def test_a_pipe_skips_a_gpu_in_foreign_use(bench):
    done = bench.cli("pipe", input="echo $CUDA_VISIBLE_DEVICES\necho $CUDA_VISIBLE_DEVICES\n")
    assert (done.returncode, done.stdout) == (0, "GPU-b\nGPU-b\n")
    assert "GPU 0 is not used: used without a lease by" in done.stderr


@pytest.fixture
def old(bench, tmp_path):
    """Return a function that runs the command line of an old tool."""
    environ = bench.environ | {"DIBS_COMPAT_STATE": str(tmp_path / "old")}
    return lambda tool, *words, stdin="": forking.run(tool, words, environ, tmp_path, stdin=stdin)


def test_the_old_tools_skip_a_gpu_in_foreign_use(old, nvml, stranger, tmp_path):
    """Each of them would take the first GPU if it could."""
    left = f"GPU 0 is not used: used without a lease by {users.own()}'s sleep (pid {stranger}, 3G)\n"
    command = "echo $CUDA_VISIBLE_DEVICES"
    simple = old("simple_gpu_scheduler", "--gpus", "1,0", stdin=f"{command}\n" * 2)
    assert (simple.stdout, simple.stderr) == (f"Processing command `{command}` on gpu 1\n1\n" * 2, left)
    for tool, *words in (("schedule", f"sh -c '{command} >> got'"), ("sch", "sh", "-c", f"{command} >> got")):
        done = old(tool, *words)
        assert (done.returncode, left in done.stderr) == (0, True)
    # The foreign process is gone: the first GPU is taken again.
    nvml.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b")
    assert old("sch", "sh", "-c", f"{command} >> got").returncode == 0
    assert (tmp_path / "got").read_text() == "1\n1\n0\n"
