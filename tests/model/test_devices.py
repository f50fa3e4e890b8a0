"""How users name devices."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.model import devices
from dibs.model.devices import Device, DeviceId, Inventory

REAL = Inventory(
    (
        Device(DeviceId("GPU-aa11"), 0, "NVIDIA A100-SXM4-80GB"),
        Device(DeviceId("GPU-aa22"), 1, "NVIDIA A100-PCIE-40GB"),
        Device(DeviceId("GPU-bb33"), 4, "Tesla T4", fault="lost"),
    )
)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("0", "GPU-aa11"),
        ("4", "GPU-bb33"),
        ("04", "GPU-bb33"),
        ("GPU-aa22", "GPU-aa22"),
        ("GPU-b", "GPU-bb33"),
        ("gpu-AA1", "GPU-aa11"),
    ],
)
def test_a_gpu_is_named_by_index_id_or_prefix_of_its_id(word, found):
    assert devices.find(REAL, word) == found


def test_an_id_that_is_a_prefix_of_another_still_names_its_own_gpu():
    pair = Inventory((Device(DeviceId("GPU-1"), 0, "A"), Device(DeviceId("GPU-12"), 1, "B")))
    assert devices.find(pair, "GPU-1") == "GPU-1"


def test_an_ambiguous_prefix_is_refused_and_names_both():
    with pytest.raises(devices.UnknownDevice, match=r"fits 2 GPUs \(GPU-aa11, GPU-aa22\)"):
        devices.find(REAL, "GPU-a")


@pytest.mark.parametrize("word", ["", "2", "-1", "GPU-c", "²", "٠", "0 ", "9" * 5000])
def test_an_unknown_gpu_is_refused_with_the_list_of_gpus(word):
    with pytest.raises(devices.UnknownDevice, match="this machine has: 0, 1, 4"):
        devices.find(REAL, word)


@given(st.text(max_size=8))
def test_any_text_names_a_gpu_or_is_refused_with_an_explanation(word):
    try:
        found = devices.find(REAL, word)
    except devices.UnknownDevice:
        return
    assert found in REAL.ids


@pytest.mark.parametrize(
    ("pattern", "indices"),
    [("[PCIe]", (0,)), ("NVIDIA H100 [PCIe]", (0,)), ("h100 [", (0,)), ("[th]4", (1,)), ("(", ())],
)
def test_brackets_in_a_copied_gpu_name_match_literally(pattern, indices):
    some = Inventory((Device(DeviceId("A"), 0, "NVIDIA H100 [PCIe]"), Device(DeviceId("B"), 1, "Tesla T4")))
    assert devices.indices(some, devices.of_type(some, pattern)) == indices


def test_duplicate_gpus_are_removed_and_the_order_is_kept():
    assert devices.find_all(REAL, ["4", "GPU-aa11", "0"]) == ("GPU-bb33", "GPU-aa11")


@pytest.mark.parametrize(
    ("pattern", "indices"),
    [
        ("a100", (0, 1)),
        ("A100", (0, 1)),
        ("*80gb", (0,)),
        ("Tesla*", (4,)),
        ("A100*", (0, 1)),
        ("h?00", ()),
        ("h100", ()),
    ],
)
def test_a_type_is_a_glob_that_matches_a_part_of_the_name(pattern, indices):
    assert devices.indices(REAL, devices.of_type(REAL, pattern)) == indices


def test_a_gpu_with_a_fault_is_in_the_inventory_but_not_usable():
    assert set(REAL.ids) - set(REAL.usable()) == {"GPU-bb33"}


def test_a_gpu_that_was_removed_has_no_index():
    assert REAL.index_of(DeviceId("GPU-gone")) is None
    assert devices.indices(REAL, (DeviceId("GPU-gone"), DeviceId("GPU-bb33"))) == (4,)


def test_pretend_gpus_are_numbered_from_zero_and_have_the_requested_memory():
    found = devices.pretend(3, 2**30)
    assert [(device.id, device.index, device.memory_total) for device in found] == [
        (build.ids(0)[0], 0, 2**30),
        (build.ids(1)[0], 1, 2**30),
        (build.ids(2)[0], 2, 2**30),
    ]


def test_every_obstacle_of_a_gpu_is_reported_by_one_property():
    well = devices.pretend(1, 2**30)[0]
    assert well.obstacle is None
    used = dataclasses.replace(well, foreign="bob uses it")
    assert used.obstacle == "bob uses it"
    assert used.obstacle_to(ignores_foreign=True) is None
    for reason in ("fault", "drained", "settling"):
        assert dataclasses.replace(used, **{reason: "why"}).obstacle_to(ignores_foreign=True) == "why"


def test_while_the_gpus_cannot_be_read_none_is_usable():
    four = devices.Inventory(devices.pretend(4, 2**30))
    assert len(four.usable()) == 4
    assert dataclasses.replace(four, problem="the driver is silent").usable() == ()
