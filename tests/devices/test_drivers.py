"""What the drivers report: unmodified nvidia-ml-py over the fake library, in this process; amdsmi as a fake module."""

import os
import sys
import types

import pytest

from dibs import errors
from dibs.devices import amd, driver_child, nvidia, probe
from dibs.model import environment
from dibs.model.devices import Inventory
from dibs.system.settings import Settings

GIB = 2**30
#: All codes that nvidia-ml-py 13 defines.
CODES = [*range(1, 31), 999]
#: Three cards with a faulty one in the middle; the others must not be affected.
CARDS = (
    *("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b", "gpu 2 uuid=GPU-c mig=1", "mig 2 uuid=MIG-c1 gi=1"),
    "link 0 1 level=20 nvlinks=2",
)
CALLS = [
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPagesPendingStatus", "nvmlDeviceGetFieldValues", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeMode", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
]  # fmt: skip


@pytest.fixture
def nvml(nvml, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_STATE", str(nvml.state))
    return nvml


def ask(nvml, *skip):
    """Return the inventory that the child would send, and everything it printed."""
    said = []
    driver_child.answer(str(nvml.library), skip, set(), said.append)
    return probe.parse_answer(said, Inventory(), {}), said


# --- NVML ---


def test_eight_cards_with_slices_and_links_are_reported_completely(nvml):
    cards = [f"gpu {n} uuid=GPU-{n} name=NVIDIA_A100 bus=00000000:{n + 16:02X}:00.0 numa={n // 4}" for n in range(7)]
    pairs = [f"link {a} {b} level={30 if a // 4 == b // 4 else 50}" for a in range(7) for b in range(a)]
    nvml.is_now(
        *cards,
        "gpu 7 uuid=GPU-7 mig=1 name=NVIDIA_A100",
        f"mig 7 uuid=MIG-one gi=1 total={20 * GIB} used={GIB}",
        "mig 7 uuid=MIG-two gi=2",
        f"proc 7 pid={os.getpid()} mem=5 gi=2",
        "link 0 1 level=10 nvlinks=12",
        "link 2 3 level=20 nvlinks=4",
        *(pair for pair in pairs if not pair.startswith(("link 1 0", "link 3 2"))),
    )
    found, _ = ask(nvml)
    assert found.ids == (*(f"GPU-{n}" for n in range(7)), "MIG-one", "MIG-two")
    assert [device.index for device in found.devices] == [0, 1, 2, 3, 4, 5, 6, 700, 701]
    one, two = found.devices[-2:]
    assert (one.parent, one.name, one.memory_total, one.memory_used) == ("GPU-7", "NVIDIA A100 MIG", 20 * GIB, GIB)
    assert ([p.pid for p in one.processes], [p.pid for p in two.processes]) == ([], [os.getpid()])
    assert [device.numa for device in found.devices[:7]] == [0] * 4 + [1] * 3
    close = found.closeness
    assert close["GPU-0", "GPU-1"] == close["GPU-1", "GPU-0"] == nvidia.NVLINK + 12
    assert close["GPU-2", "GPU-3"] == nvidia.NVLINK + 4
    assert (close["GPU-0", "GPU-2"], close["GPU-0", "GPU-4"]) == (2, 0)
    assert not any("MIG-one" in pair or "GPU-7" in pair for pair in close)


def test_cards_on_a_switch_are_all_equally_close():
    switch = {"0000:ff:00.0": 12}
    assert nvidia._joined(switch, switch, "a", "b", {"a", "b"}) == 12
    assert nvidia._joined(switch, {}, "a", "b", {"a", "b"}) == 0


def test_a_card_in_mig_mode_without_slices_has_a_fault_that_names_the_fix(nvml):
    nvml.is_now("gpu 0 mig=1", "gpu 1")
    found, _ = ask(nvml)
    assert (found.devices[0].fault, found.devices[1].fault) == (nvidia.NO_SLICES, None)


@pytest.mark.parametrize(
    ("state", "fault", "worry"),
    [
        ("", None, None),
        ("mode=2", nvidia.PROHIBITED, None),
        ("pending=1", None, "faulty memory, which a reset replaces"),
        ("retired=1", None, "faulty memory, which a reset replaces"),
        ("failed=1", None, nvidia.ROW_FAILED),
        ("recover=1", None, "asks for a reset of the GPU"),
        ("recover=2", None, "asks for a reboot"),
        ("recover=3", None, None),
        ("mode=3", None, None),
    ],
)
def test_permanent_conditions_of_a_card_are_reported_as_fault_or_warning(nvml, state, fault, worry):
    nvml.is_now(f"gpu 0 {state}", "gpu 1")
    found, _ = ask(nvml)
    assert found.devices[0].fault == fault
    assert worry is found.devices[0].worry if worry is None else worry in found.devices[0].worry
    assert (found.devices[1].fault, found.devices[1].worry) == (None, None)


def test_the_compute_mode_of_a_card_also_applies_to_its_slices(nvml):
    nvml.is_now("gpu 0", "gpu 1 mode=3", "gpu 2 mode=1", "gpu 3 mode=2 mig=1", "mig 3 uuid=MIG-c1 gi=1", "gpu 4 mode=9")
    found, _ = ask(nvml)
    assert [device.compute_mode for device in found.devices] == [
        "default", "exclusive-process", "exclusive-process", None, "prohibited",
    ]  # fmt: skip
    assert found.devices[-1].fault == nvidia.PROHIBITED


@pytest.mark.parametrize("call", CALLS)
def test_every_error_of_every_call_affects_at_most_its_own_card(nvml, call):
    """31 codes each. A value that the card does not report is unknown; an error that means a fault is a fault."""
    about = 2 if "Mig" in call else 1
    for code in CODES:
        nvml.is_now(*CARDS, f"fail {call} {about} code={code}")
        found, said = ask(nvml)
        assert said[-1] == {"end": None}, code
        # With a slice, the card itself is one more thing to query; if it fails, it is a device of its own.
        expected = {"GPU-a", "GPU-b", "MIG-c1", "GPU-c", "UNREADABLE-1", "UNREADABLE-200"}
        assert set(found.ids) <= expected
        assert len(found.devices) == 3, code
        well = [device for device in found.devices if device.index // 100 != 2 and device.index != about]
        assert all(device.fault is None for device in well), code
        hurt = next(device for device in found.devices if device.index in (about, about * 100))
        is_asked = call not in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetTopologyCommonAncestor") and not (
            call.endswith("_v2") and "Processes" in call
        )
        if code in nvidia.FAULTS and is_asked and "NvLink" not in call:
            assert hurt.fault is not None, code
        if code == 3 and call not in ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID") and "Mig" not in call:
            assert hurt.fault is None


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_every_initialisation_error_is_a_sentence_or_a_machine_without_gpus(nvml, call):
    for code in CODES:
        nvml.is_now("gpu 0", f"fail {call} * code={code}")
        found, said = ask(nvml)
        assert (found.problem is None) == (code in nvidia.NO_GPUS), code
        assert found.problem is None or found.problem.startswith(("the NVIDIA driver", "no permission")), code
        assert said[-1]["end"] == found.problem


def test_cards_that_hung_are_not_queried(nvml, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_LOG", str(nvml.log))
    nvml.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b")
    found, said = ask(nvml, "0", driver_child.TOPOLOGY)
    assert found.ids == ("GPU-b",)
    asked = {line.split()[2] for line in nvml.log.read_text().splitlines()}
    assert "0" not in asked
    assert not any("close" in line for line in said)


def test_links_between_cards_are_reported_once_and_when_they_change(nvml):
    nvml.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b")
    said = []
    known = driver_child.answer(str(nvml.library), (), set(), said.append)
    driver_child.answer(str(nvml.library), (), known, said.append)
    assert sum("close" in line for line in said) == 1
    nvml.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b", "gpu 2 uuid=GPU-c")
    driver_child.answer(str(nvml.library), (), known, said.append)
    assert sum("close" in line for line in said) == 2


def test_xids_are_reported_until_the_parent_exits(nvml):
    nvml.is_now("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b", "event 1 seq=1 data=79", "event 0 seq=2 data=31")
    said = []

    def say(line):
        said.append(line)
        if line.get("xid") == 31:
            nvml.is_now("gpu 0 lost=1", "fail nvmlEventSetWait_v2 * code=15")

    driver_child.listen(str(nvml.library), say, os.getppid())
    assert said[:3] == [{"listens": [0, 1]}, {"xid": 79, "id": "GPU-b"}, {"xid": 31, "id": "GPU-a"}]
    assert "deaf" in said[3]


def test_a_child_without_a_parent_does_not_listen_for_xids(nvml):
    nvml.is_now("gpu 0")
    said = []
    driver_child.listen(str(nvml.library), said.append, -1)
    assert said == [{"listens": [0]}]


# --- devices that the machine hides from us ---


@pytest.mark.parametrize(
    ("error", "hidden"), [(None, False), (PermissionError, True), (FileNotFoundError, True), (OSError, False)]
)
def test_a_card_that_a_container_may_not_open_is_hidden(tmp_path, error, hidden):
    (tmp_path / "nvidiactl").touch()

    def opened(path, flags):
        assert path == f"{tmp_path}/nvidia3"
        if error is not None:
            raise error(path)
        return os.open(os.devnull, os.O_RDONLY)

    assert nvidia.is_hidden(3, str(tmp_path), opened) is hidden
    (tmp_path / "nvidiactl").unlink()
    assert nvidia.is_hidden(3, str(tmp_path), opened) is False
    assert nvidia.is_hidden(None) is False


def test_hidden_cards_are_reported_and_not_offered():
    card = {"id": "GPU-a", "index": 0, "name": "A100"}
    lines = [{"count": 2}, {"card": card}, {"card": {"hidden": 1}}, {"end": None}]
    found = probe.parse_answer(lines, Inventory(), {})
    assert found.ids == ("GPU-a",)
    assert found.restriction == "GPU 1 cannot be opened here (container or batch system)"
    kept = probe.restrict(found, ("0",), "DIBS_DEVICES=0", None)
    assert kept.restriction == f"DIBS_DEVICES=0 and {found.restriction}"


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("-1\n", None), ("x", None), (None, None)])
def test_the_numa_node_comes_from_the_kernel_where_the_driver_does_not_report_it(tmp_path, text, node):
    (tmp_path / "0000:07:00.0").mkdir()
    if text is not None:
        (tmp_path / "0000:07:00.0" / "numa_node").write_text(text)
    assert nvidia.numa_of("00000000:07:00.0", str(tmp_path)) == node
    assert nvidia.numa_of(None) is None


# --- AMD and Intel ---


def pretend_amdsmi(monkeypatch, **calls):
    smi = types.ModuleType("amdsmi")
    told = {
        "amdsmi_init": lambda: None,
        "amdsmi_shut_down": lambda: None,
        "amdsmi_get_processor_handles": lambda: ["first", "second"],
        "amdsmi_get_gpu_enumeration_info": lambda h: {"hip_uuid": f"GPU-{h}"},
        "amdsmi_get_gpu_asic_info": lambda h: {"market_name": "AMD Instinct MI250X"},
        "amdsmi_get_gpu_vram_usage": lambda h: {"vram_total": 65520, "vram_used": 12},
        "amdsmi_get_gpu_activity": lambda h: {"gfx_activity": 42},
        "amdsmi_get_power_info": lambda h: {"current_socket_power": "N/A", "average_socket_power": 90},
        "amdsmi_get_gpu_total_ecc_count": lambda h: {"uncorrectable_count": 0},
        "amdsmi_get_gpu_device_bdf": lambda h: "0000:c1:00.0",
        "amdsmi_get_gpu_process_list": lambda h: [{"pid": os.getpid(), "memory_usage": {"vram_mem": 7}}],
        **calls,
    }
    for name, call in told.items():
        setattr(smi, name, call)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)


def test_amd_gpus_are_found_where_there_is_no_nvidia(monkeypatch, nvml):
    pretend_amdsmi(monkeypatch)
    nvml.is_now("system init=12")
    found, _ = ask(nvml)
    first = found.devices[0]
    assert found.ids == ("GPU-first", "GPU-second")
    assert (first.vendor, first.name, first.memory_total, first.memory_used) == (
        "amd", "AMD Instinct MI250X", 65520 * 2**20, 12 * 2**20,
    )  # fmt: skip
    assert (first.utilization, first.power, first.temperature, first.pci) == (42, 90.0, None, "0000:c1:00.0")
    assert [(p.pid, p.memory) for p in first.processes] == [(os.getpid(), 7)]


def broken(*words):
    raise RuntimeError("AMDSMI_STATUS_NOT_SUPPORTED")


def test_a_value_an_amd_gpu_does_not_report_is_unknown_and_hides_no_other(monkeypatch):
    names = ("asic_info", "vram_usage", "activity", "total_ecc_count", "process_list")
    pretend_amdsmi(monkeypatch, **{f"amdsmi_get_gpu_{name}": broken for name in names})
    assert [(record["name"], record["memory_used"]) for record in amd.read(str)] == [("AMD GPU", None)] * 2
    pretend_amdsmi(monkeypatch, amdsmi_get_gpu_enumeration_info=broken, amdsmi_get_gpu_device_uuid=broken)
    assert all(record["id"] is None and "AMD driver" in record["fault"] for record in amd.read(str))


@pytest.mark.parametrize("error", [ImportError, KeyError, OSError, AttributeError, RuntimeError])
def test_an_amd_library_that_does_not_load_means_no_amd_gpus(monkeypatch, error):
    def refuse():
        raise error("libamd_smi.so")

    pretend_amdsmi(monkeypatch, amdsmi_init=refuse)
    assert amd.read(str) == []
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert amd.read(str) == []


def test_each_vendor_uses_only_its_own_variable(monkeypatch, nvml):
    pretend_amdsmi(monkeypatch)
    nvml.is_now("system init=12")
    found, _ = ask(nvml)
    shown = environment.for_devices(found, found.ids, "uuid")
    assert shown == {"ROCR_VISIBLE_DEVICES": "GPU-first,GPU-second", "DIBS_GPU_INDICES": "0,1"}
    intel = probe.Probe(Settings(devices="intel:1,0")).read()
    assert intel.ids == ("INTEL-0", "INTEL-1")
    assert environment.for_devices(intel, ("INTEL-1",), "uuid") == {"ZE_AFFINITY_MASK": "1", "DIBS_GPU_INDICES": "1"}


def test_a_slice_is_named_by_uuid_even_where_indices_are_configured(nvml):
    nvml.is_now("gpu 0 mig=1", "mig 0 uuid=MIG-x gi=1")
    found, _ = ask(nvml)
    assert environment.for_devices(found, found.ids, "index")["CUDA_VISIBLE_DEVICES"] == "MIG-x"


@pytest.mark.parametrize("text", ["intel:", "intel:x", "intel:0,0", "intel:-1", "intel:0,,1"])
def test_a_wrong_list_of_intel_gpus_is_refused_with_an_explanation(text):
    with pytest.raises(errors.UserError, match="expected the numbers of Intel GPUs such as intel:0,1"):
        probe.parse_devices(text, "DIBS_DEVICES")
