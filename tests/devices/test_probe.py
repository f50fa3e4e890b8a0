"""The GPUs of this machine, as an unmodified nvidia-ml-py reports them and as a broken driver does."""

import dataclasses
import os
import pwd
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from dibs import errors
from dibs.devices import driver_link, last_seen, probe
from dibs.model import devices
from dibs.model.devices import Inventory
from dibs.system.settings import Settings
from fakes.nvml import world

GIB = 2**30

#: Seconds that only a hanging child reaches. Long where the child must answer, short where it never will.
PATIENT_S = 120.0
HASTY_S = 0.2
AN_HOUR_MS = 3_600_000


@pytest.fixture
def driver(nvml, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_STATE", str(nvml.state))
    monkeypatch.setenv("FAKE_NVML_LOG", str(nvml.log))
    return nvml


@pytest.fixture(autouse=True)
def opened():
    """Close the child of every probe at the end of the test."""
    OPENED.clear()
    yield
    for eyes in OPENED:
        wait_until(lambda eyes=eyes: eyes.stuck == 0, "what was killed is gone")
        eyes.close()


OPENED: list[probe.Probe] = []


def open_probe(*words, **options):
    OPENED.append(probe.Probe(*words, **{"deadline_s": PATIENT_S, "first_deadline_s": PATIENT_S, **options}))
    return OPENED[-1]


def probe_of(driver, setting="", visible=None, **options):
    return open_probe(Settings(devices=setting, nvml_library=driver.library), visible, **options)


def probe_printing(code, **options):
    """Return a probe whose child is the given Python program."""
    return open_probe(Settings(), command=(sys.executable, "-c", code), **options)


def wait_until(condition, what):
    end = time.monotonic() + PATIENT_S
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.005)


def indices(inventory):
    return [device.index for device in inventory.devices]


# --- a healthy driver ---


def test_the_driver_reports_what_the_cards_are_and_do(driver):
    driver.is_now(
        "gpu 0 uuid=GPU-aaaa name=NVIDIA_A100 total=85899345920 used=1073741824 reserved=600000000 util=97 temp=61",
        "gpu 1 uuid=GPU-bbbb name=NVIDIA_A100",
    )
    found = probe_of(driver).read()
    more = {"power": 30.0, "power_limit": 300.0, "ecc_errors": 0, "numa": 0, "compute_mode": "default"}
    assert found.devices == (
        devices.Device(
            devices.DeviceId("GPU-aaaa"), 0, "NVIDIA A100", 85899345920, GIB, 97, 61, **more, pci="00000000:01:00.0"
        ),
        devices.Device(
            devices.DeviceId("GPU-bbbb"), 1, "NVIDIA A100", 24 * GIB, 0, 0, 30, **more, pci="00000000:02:00.0"
        ),
    )
    assert (found.restriction, found.problem, found.is_known) == (None, None, True)


def test_a_process_on_a_card_has_a_pid_an_owner_and_a_name(driver):
    driver.is_now("gpu 0", f"proc 0 pid={os.getpid()} mem={GIB}", "proc 0 pid=4194305 mem=5")
    mine, hidden = probe_of(driver).read().devices[0].processes
    comm = Path("/proc/self/comm").read_text().strip()
    assert mine == devices.Process(os.getpid(), pwd.getpwuid(os.getuid()).pw_name, comm, GIB)
    # It may belong to another container, or to a user hidden by hidepid. It exists all the same.
    assert hidden == devices.Process(4194305, None, None, 5)


def test_a_process_that_computes_and_draws_is_one_process(driver):
    me = os.getpid()
    driver.is_now("gpu 0", f"proc 0 pid={me} mem=5 kind=C", f"proc 0 pid={me} mem=7 kind=G", "proc 0 pid=1 kind=M")
    found = probe_of(driver).read().devices[0].processes
    assert [(process.pid, process.memory) for process in found] == [(1, None), (me, 7)]


def test_an_old_driver_is_read_through_its_old_calls(driver):
    driver.is_now(
        "gpu 0 used=100 reserved=50",
        "proc 0 pid=1 mem=9",
        "fail nvmlDeviceGetMemoryInfo_v2 * code=13",
        "fail nvmlDeviceGetComputeRunningProcesses_v3 * code=13",
    )
    card = probe_of(driver).read().devices[0]
    assert (card.memory_used, card.processes[0].memory, card.fault) == (150, 9, None)


def test_a_value_a_card_does_not_report_is_none_and_no_fault(driver):
    driver.is_now(
        "gpu 0",
        "fail nvmlDeviceGetMemoryInfo_v2 0 code=3",
        "fail nvmlDeviceGetMemoryInfo 0 code=3",
        "fail nvmlDeviceGetUtilizationRates 0 code=4",
        "fail nvmlDeviceGetTemperature 0 code=13",
        "fail nvmlDeviceGetComputeRunningProcesses_v3 0 code=3",
        "fail nvmlDeviceGetComputeRunningProcesses_v2 0 code=3",
        "fail nvmlDeviceGetPowerUsage 0 code=3",
        "fail nvmlDeviceGetEnforcedPowerLimit 0 code=3",
        "fail nvmlDeviceGetTotalEccErrors 0 code=3",
        "fail nvmlDeviceGetPciInfo_v3 0 code=3",
        "fail nvmlDeviceGetNumaNodeId 0 code=3",
        "fail nvmlDeviceGetComputeMode 0 code=3",
    )
    card = probe_of(driver).read().devices[0]
    assert card == devices.Device(card.id, 0, "Fake GPU")


def test_a_card_that_appears_later_is_found(driver):
    driver.is_now("gpu 0")
    eyes = probe_of(driver)
    assert indices(eyes.read()) == [0]
    driver.is_now("gpu 0", "gpu 1")
    assert indices(eyes.read()) == [0, 1]
    assert indices(eyes.latest) == [0, 1]


def test_output_of_the_library_does_not_corrupt_the_answer(driver):
    driver.is_now("system noise=NVRM:_hello", "gpu 0")
    found = probe_of(driver).read()
    assert (indices(found), found.problem) == ([0], None)


# --- faulty cards ---


@pytest.mark.parametrize(("code", "words"), [(15, "fallen off the bus"), (16, "needs a reset"), (999, "unknown error")])
def test_a_faulty_card_is_marked_and_the_others_are_fine(driver, code, words):
    driver.is_now("gpu 0", "gpu 1", "gpu 2", f"fail nvmlDeviceGetUtilizationRates 1 code={code}")
    well, unwell, other = probe_of(driver).read().devices
    assert words in unwell.fault
    assert (well.fault, other.fault) == (None, None)


def test_a_card_lost_while_the_daemon_runs_keeps_its_name(driver):
    driver.is_now("gpu 0", "gpu 1 uuid=GPU-bbbb name=A100", "gpu 2")
    eyes = probe_of(driver)
    before = eyes.read()
    driver.is_now("gpu 0", "gpu 1 uuid=GPU-bbbb lost=1", "gpu 2")
    for _ in range(2):
        after = eyes.read()
        assert after.ids == before.ids
        assert "fallen off the bus" in after.by_id["GPU-bbbb"].fault
        assert after.usable() == (before.ids[0], before.ids[2])
        assert after.problem is None


def test_a_card_lost_before_the_daemon_started_is_shown_and_not_usable(driver):
    driver.is_now("gpu 0", "gpu 1 lost=1")
    found = probe_of(driver).read()
    assert indices(found) == [0, 1]
    assert found.usable() == (world.UUID.format(0),)
    assert found.ids[1] == "UNREADABLE-1"


def test_a_card_that_gets_the_index_of_another_does_not_take_its_name(driver):
    driver.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b")
    eyes = probe_of(driver)
    eyes.read()
    driver.is_now("gpu 0 uuid=GPU-b", "gpu 1 lost=1")
    assert eyes.read().ids == ("GPU-b", "UNREADABLE-1")


# --- a driver that does not start ---


@pytest.mark.parametrize("code", [12, 28], ids=["no library", "no card"])
def test_a_machine_without_gpus_has_no_problem(driver, code):
    driver.is_now(f"system init={code}")
    assert probe_of(driver).read() == Inventory(is_known=True, problem=None)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, "no permission"),
        (9, "the NVIDIA driver is not loaded"),
        (18, "the NVIDIA driver was upgraded but not reloaded: reboot, or ask the admin"),
        (999, "unknown error"),
        (23, "does not start: fake NVML error 23 (NVML error 23)"),
    ],
)
def test_a_driver_that_does_not_start_is_a_problem_with_an_explanation(driver, code, words):
    driver.is_now(f"system init={code}", "gpu 0")
    found = probe_of(driver).read()
    assert words in found.problem
    assert (found.devices, found.is_known) == ((), False)


def test_a_driver_upgraded_while_loaded_leaves_the_cards_as_last_seen(driver):
    driver.is_now("gpu 0", "gpu 1")
    eyes = probe_of(driver)
    eyes.read()
    driver.is_now("system init=18", "gpu 0", "gpu 1")
    found = eyes.read()
    assert (indices(found), found.is_known) == ([0, 1], True)
    assert "upgraded but not reloaded" in found.problem
    driver.is_now("gpu 0", "gpu 1")
    assert eyes.read().problem is None


def test_cards_that_vanish_all_at_once_are_a_problem_and_not_a_machine_without_gpus(driver):
    driver.is_now("gpu 0")
    eyes = probe_of(driver)
    eyes.read()
    driver.is_now()
    found = eyes.read()
    assert (indices(found), found.is_known) == ([0], True)
    assert re.fullmatch(r"no GPU is visible; this machine had 1 until \d\d:\d\d \(driver: shows none\)", found.problem)


def test_cards_that_an_earlier_daemon_saw_are_missed(driver):
    driver.is_now("gpu 0", "gpu 1")
    eyes = probe_of(driver)
    eyes.read()
    text = last_seen.write(eyes.last_seen, "this machine")
    assert last_seen.read(text, "another machine") is None
    driver.is_now("system init=12", "gpu 0")
    before = last_seen.read(text, "this machine")
    found = open_probe(Settings(nvml_library=driver.library), before=before).read()
    assert (indices(found), found.is_known) == ([0, 1], True)
    assert "this machine had 2 until " in found.problem
    assert "(driver: NVML Shared Library Not Found)" in found.problem


def test_the_time_when_cards_were_last_seen_has_a_date_on_another_day():
    seen = last_seen.LastSeen(devices.pretend(4, 1), 0)
    day_ms = 24 * 3600 * 1000
    then = time.strftime("%Y-%m-%d %H:%M", time.localtime(0))
    said = f"no GPU is visible; this machine had 4 until {then} (driver: gone)"
    assert last_seen.absence(seen, "gone", 2 * day_ms) == said


def test_a_wrong_library_path_is_a_problem_that_names_it(tmp_path):
    settings = Settings(nvml_library=tmp_path / "nothing.so")
    found = open_probe(settings).read()
    assert f"cannot load the NVIDIA library {tmp_path}/nothing.so" in found.problem


# --- a driver that hangs, and children that fail ---


def test_a_hanging_driver_costs_the_deadline_and_keeps_the_last_good_answer(driver):
    driver.is_now("gpu 0 util=7")
    eyes = probe_of(driver)
    good = eyes.read()
    driver.is_now("gpu 0 util=8", f"slow nvmlInitWithFlags ms={AN_HOUR_MS}")
    eyes.deadline_s = HASTY_S
    found = eyes.read()
    assert found == dataclasses.replace(good, problem=found.problem)
    assert found.problem.startswith("the NVIDIA driver did not answer for 0.2 s")
    wait_until(lambda: eyes.stuck == 0, "the child that was killed is gone")


def test_a_hanging_card_is_unusable_and_the_others_are_read(driver):
    driver.is_now("gpu 0", "gpu 1 uuid=GPU-bbbb", "gpu 2 util=1")
    now = 1000.0
    eyes = probe_of(driver, clock=lambda: now)
    eyes.read()
    driver.is_now("gpu 0", "gpu 1 uuid=GPU-bbbb", "gpu 2 util=2", f"slow nvmlDeviceGetUUID 1 ms={AN_HOUR_MS}")
    eyes.deadline_s = 5.0
    found = eyes.read()
    assert (found.problem, indices(found)) == (None, [0, 1, 2])
    assert [device.fault is None for device in found.devices] == [True, False, True]
    assert "did not answer for 5 s about this GPU: try nvidia-smi -i 1" in found.devices[1].fault
    assert (found.devices[1].id, found.devices[2].utilization) == ("GPU-bbbb", 2)
    # It is not queried again until some time after the child that hung is gone.
    driver.is_now("gpu 0", "gpu 1 uuid=GPU-bbbb", "gpu 2 util=3")
    eyes.deadline_s = PATIENT_S
    assert eyes.read().devices[1].fault is not None
    wait_until(lambda: eyes.stuck == 0, "the child that was killed is gone")
    now += driver_link.RETRY_S
    assert eyes.read().devices[1].fault is None


def test_a_driver_call_that_crashes_the_child_marks_only_that_card(driver):
    """The fake sleeps until a signal ends it, as a crash in the driver would."""
    code = (
        "import json, os, signal, sys\n"
        "for line in sys.stdin:\n"
        "    for index in (0, 1):\n"
        "        if str(index) in line.split(','): continue\n"
        "        if not index: print(json.dumps({'count': 2}), flush=True)\n"
        "        print(json.dumps({'at': str(index)}), flush=True)\n"
        "        if index: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "        print(json.dumps({'card': {'id': f'GPU-{index}', 'index': index, 'name': 'A100'}}), flush=True)\n"
        "    print(json.dumps({'end': None}), flush=True)\n"
    )
    found = probe_printing(code.replace("line.split", "line.strip().split")).read()
    assert (found.problem, found.ids) == (None, ("GPU-0", "UNREADABLE-1"))
    assert "killed by signal 11" in found.devices[1].fault


def test_a_driver_that_answers_again_is_used_again(driver):
    driver.is_now("gpu 0", f"slow * ms={AN_HOUR_MS}")
    eyes = probe_of(driver, first_deadline_s=HASTY_S)
    found = eyes.read()
    assert (found.devices, found.is_known) == ((), False)
    wait_until(lambda: eyes.stuck == 0, "the child that was killed is gone")
    driver.is_now("gpu 0")
    eyes.first_deadline_s = PATIENT_S
    found = eyes.read()
    assert (indices(found), found.problem, found.is_known) == ([0], None, True)


#: A child that SIGKILL cannot end: it is traced, so that it stays until its tracer (the fork) is gone.
UNKILLABLE = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
me, allow = os.getpid(), os.pipe()
if os.fork() == 0:
    os.setsid()
    os.read(allow[0], 1)
    PTRACE_SEIZE = 0x4206
    if libc.ptrace(PTRACE_SEIZE, me, None, None) != 0:
        os._exit(1)
    for fd in (1, 2):
        os.close(fd)
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    while True:
        signal.pause()
PR_SET_PTRACER, ANY = 0x59616D61, ctypes.c_ulong(-1)
libc.prctl(PR_SET_PTRACER, ANY, 0, 0, 0)
os.write(allow[1], b"x")
while True:
    signal.pause()
"""


@pytest.fixture
def unkillable(tmp_path):
    """Return the command of a child that survives SIGKILL, and the file with the pid of its tracer."""
    keeper = tmp_path / "keeper"
    yield (sys.executable, "-c", UNKILLABLE, str(keeper)), keeper
    if keeper.exists():
        os.kill(int(keeper.read_text()), signal.SIGKILL)


def test_an_unkillable_child_is_not_waited_for_and_not_replaced(unkillable):
    command, keeper = unkillable
    now = 1000.0
    eyes = open_probe(Settings(), command=command, clock=lambda: now)
    for eyes.first_deadline_s in (0.5, 2.0, 8.0, 32.0, PATIENT_S):
        eyes.read()
        if keeper.exists():
            break
        wait_until(lambda: eyes.stuck == 0, "the child that was killed too early is gone")
    assert eyes.stuck == 1
    now += 10 * driver_link.RETRY_S
    assert "did not answer" in eyes.read().problem
    assert eyes.stuck == 1
    os.kill(int(keeper.read_text()), signal.SIGKILL)
    keeper.unlink()
    wait_until(lambda: eyes.stuck == 0, "the child is gone with its keeper")


CARD = {"id": "GPU-a", "index": 0, "name": "A100", "processes": []}
WHOLE = [{"count": 1}, {"at": "0"}, {"card": CARD}, {"close": []}, {"end": None}]


@pytest.mark.parametrize(
    "lines",
    [
        *([], [{}], [{"count": 1}], [{"card": CARD}], [{"card": {}}, {"end": None}], [{"card": 7}, {"end": None}]),
        [{"card": CARD | {"colour": 1}}, {"end": None}],
        [{"card": CARD | {"processes": [{}]}}, {"end": None}],
        [{"card": CARD}, {"close": [["a"]]}, {"end": None}],
        [{"count": "x"}, {"end": None}],
    ],
)
def test_a_malformed_answer_is_discarded(lines):
    with pytest.raises(errors.MachineError, match="expected lines about GPUs"):
        probe.parse_answer(lines, Inventory(), {"1": "hung"})


def test_a_complete_answer_is_accepted():
    assert probe.parse_answer(WHOLE, Inventory(), {}).ids == ("GPU-a",)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('rubbish')", "sent an unexpected answer: 'rubbish'"),
        ("print(7)", "sent an unexpected answer: '7'"),
        ("import sys; sys.exit('no such thing')", "exited with code 1 (no such thing)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by signal 11"),
    ],
)
def test_a_failing_child_is_a_problem_and_no_exception(code, words):
    found = probe_printing(code).read()
    assert words in found.problem
    assert not found.is_known


def test_a_child_that_cannot_be_started_is_a_problem_and_no_exception(tmp_path):
    found = open_probe(Settings(), command=(str(tmp_path / "python"),)).read()
    assert "cannot read the GPUs: No such file or directory" in found.problem


def test_a_child_inherits_no_descriptor(tmp_path):
    """A child stuck in the driver would otherwise keep a lease for ever."""
    with open(tmp_path / "lease", "w") as lease:
        os.set_inheritable(lease.fileno(), True)
        code = f"import os, sys; os.fstat({lease.fileno()})"
        assert "Bad file descriptor" in probe_printing(code).read().problem


# --- restrictions ---


FOUR = Inventory(
    tuple(
        devices.Device(devices.DeviceId(f"GPU-{letter * 4}-{n}"), n, "A100")
        for n, letter in enumerate(("a", "b", "c", "c"))
    )
)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ((), [0, 1, 2, 3]),
        (("0",), [0]),
        (("2", "0"), [0, 2]),
        (("0", "0"), [0]),
        (("GPU-bbbb-1",), [1]),
        (("gpu-b", "3"), [1, 3]),
    ],
)
def test_a_list_of_indices_uuids_or_prefixes_restricts(words, kept):
    found = probe.restrict(FOUR, words, "DIBS_DEVICES=x", None)
    assert (indices(found), found.problem) == (kept, None)
    assert found.restriction == ("DIBS_DEVICES=x" if words else None)


@pytest.mark.parametrize(
    ("word", "why"), [("9", 'there is no GPU "9"'), ("GPU-x", 'no GPU "GPU-x"'), ("GPU-c", "fits 2 GPUs")]
)
def test_an_entry_that_matches_no_single_gpu_is_reported_and_the_others_are_used(word, why):
    found = probe.restrict(FOUR, ("0", word), f"DIBS_DEVICES=0,{word}", None)
    assert (indices(found), found.problem) == ([0], None)
    assert found.restriction.startswith(f"DIBS_DEVICES=0,{word}, but ")
    assert why in found.restriction


def test_a_driver_that_does_not_answer_is_reported_before_wrong_entries():
    silent = Inventory(is_known=False, problem="the driver is silent")
    assert probe.restrict(silent, ("0",), "DIBS_DEVICES=0", None).problem == "the driver is silent"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", []),
        ("0", [0]),
        ("3,1", [1, 3]),
        (" 0 , 2 ", [0, 2]),
        ("0,2,-1,1", [0, 2]),
        ("9,0", []),
        ("0,0", []),
        ("GPU-aaaa", [0]),
        ("GPU-cccc,GPU-aaaa", []),
        ("GPU-aaaa,2", [0]),
        ("2,GPU-aaaa", [2]),
        ("NoDevFiles", []),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_restricts_by_cudas_rules(text, kept):
    found = probe.restrict(FOUR, (), "", text)
    assert indices(found) == kept
    assert found.restriction == f"CUDA_VISIBLE_DEVICES={text}"


def test_both_restrictions_hold_together():
    found = probe.restrict(FOUR, ("0", "1"), "DIBS_DEVICES=0,1", "1,2")
    assert indices(found) == [1]
    assert found.restriction == "DIBS_DEVICES=0,1 and CUDA_VISIBLE_DEVICES=1,2"


def test_a_restriction_applies_to_the_answer_of_the_driver(driver):
    driver.is_now("gpu 0", "gpu 1", "gpu 2", "gpu 3")
    found = probe_of(driver, "0,2,3", visible="2,1,0").read()
    assert indices(found) == [0, 2]
    assert found.restriction == "DIBS_DEVICES=0,2,3 and CUDA_VISIBLE_DEVICES=2,1,0"


def test_a_restriction_names_the_file_it_comes_from():
    settings = Settings(devices="none", sources={"devices": "/etc/dibs/config.toml"})
    assert probe.read(settings).restriction == 'devices = "none" in /etc/dibs/config.toml'


# --- pretend devices, and the setting ---


@pytest.mark.parametrize(
    ("text", "count", "size"),
    [
        ("fake:1", 1, 24 * GIB),
        ("fake:4", 4, 24 * GIB),
        ("fake:64", 64, 24 * GIB),
        ("fake:4x24G", 4, 24 * GIB),
        ("fake:2x512M", 2, 512 * 2**20),
        ("fake:2x80GiB", 2, 80 * GIB),
        (" fake:2 ", 2, 24 * GIB),
    ],
)
def test_pretend_gpus_need_no_driver_and_no_child(text, count, size):
    found = probe.Probe(Settings(devices=text), command=("/nothing",)).read()
    assert found == Inventory(devices.pretend(count, size))


@pytest.mark.parametrize(
    "text",
    [
        *("fake", "fake:", "fake:0", "fake:65", "fake:four", "fake:-1", "fake: 4", "fake4", "fakes:4", "fake:4,0"),
        *("fake:4x", "fake:4x24", "fake:4x24X", "fake:x24G", "fake:4X24G", "fake:4.5", "fake:²", "fake:4x24Gx2"),
        *("FAKE:4", "all", "gpu", "cuda:0", "-1", "0-3", "0;1", "0,", ",", "0,,1", "0 1", "None", "1.5", "99999"),
    ],
)
def test_a_malformed_setting_is_refused_with_a_correct_example(text):
    with pytest.raises(errors.UserError, match=r"expected .*(fake:4|18G)"):
        probe.Probe(Settings(devices=text))


def test_the_setting_none_means_no_gpus():
    found = probe.Probe(Settings(devices="none"), command=("/nothing",)).read()
    assert found == Inventory(restriction="DIBS_DEVICES=none")


def test_before_the_first_answer_nothing_is_known():
    assert probe.Probe(Settings()).latest == Inventory(is_known=False)


def test_visible_devices_restrict_pretend_gpus_too():
    found = probe.Probe(Settings(devices="fake:4"), "3,1", command=("/nothing",)).read()
    assert [device.index for device in found.devices] == [1, 3]
    assert "CUDA_VISIBLE_DEVICES=3,1" in (found.restriction or "")
