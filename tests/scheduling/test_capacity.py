"""Whether a device can take a job: one rule for jobs of the queue and for commands without a daemon."""

import dataclasses

import pytest

import build
from dibs.errors import Impossible
from dibs.model.devices import EXCLUSIVE, Device, DeviceId
from dibs.model.jobs import JobId, Request
from dibs.scheduling import capacity, explanation, feasibility, planner
from dibs.scheduling.views import Active, Policy, View

GIB = 2**30
CARD = Device(DeviceId("GPU-a"), 0, "A100", 24 * GIB)
ALONE, SHARING, RELAXED = Request(), Request(vram=6 * GIB), Request(ignore_foreign=True)


@pytest.mark.parametrize(
    ("more", "to_alone", "to_sharing", "to_relaxed"),
    [
        ({}, None, None, None),
        ({"fault": "lost"}, "lost", "lost", "lost"),
        ({"drained": "drained: fan"}, "drained: fan", "drained: fan", "drained: fan"),
        ({"settling": "5G to come"}, "5G to come", "5G to come", "5G to come"),
        ({"foreign": "used by bob", "foreign_memory": 3 * GIB}, "used by bob", None, None),
        ({"foreign": "used by bob"}, "used by bob", "used by bob, memory use unknown", None),
        ({"foreign_memory": 3 * GIB}, None, None, None),
        ({"memory_total": None}, None, capacity.UNKNOWN_SIZE, None),
        ({"compute_mode": EXCLUSIVE}, None, capacity.ONE_PROCESS, None),
        ({"compute_mode": EXCLUSIVE, "foreign": "used by bob"}, "used by bob", "used by bob", "used by bob"),
    ],
)
def test_obstacles_of_a_device(more, to_alone, to_sharing, to_relaxed):
    device = dataclasses.replace(CARD, **more)
    told = [capacity.obstacle(device, request) for request in (ALONE, SHARING, RELAXED)]
    assert told == [to_alone, to_sharing, to_relaxed]


@pytest.mark.parametrize(
    ("used", "shares", "told"),
    [
        (18, [], None),
        (19, [], "5G of it left for 6G"),
        (12, [6 * 1024], None),
        (12, [6 * 1024, 1024], "5G of it left for 6G"),
        (24, [1024], "0B of it left for 6G"),
    ],
)
def test_foreign_memory_and_shares_reduce_the_memory_that_is_left(used, shares, told):
    assert capacity.shortage(dataclasses.replace(CARD, foreign_memory=used * GIB), SHARING, shares) == told
    assert capacity.shortage(dataclasses.replace(CARD, foreign_memory=used * GIB), ALONE, shares) is None


def machine(*exclusive):
    """Return two cards, with these in exclusive-process mode."""
    plain = build.inventory(2)
    made = (dataclasses.replace(d, compute_mode=EXCLUSIVE if d.index in exclusive else None) for d in plain.devices)
    return dataclasses.replace(plain, devices=tuple(made))


def test_jobs_do_not_share_a_gpu_in_exclusive_process_mode():
    waiting = [build.waiting(number, vram=6 * GIB) for number in (1, 2)] + [build.waiting(3), build.waiting(4)]
    starts = planner.plan(View(waiting), machine(0), Policy(), build.NOW).starts
    assert [(start.id, start.devices) for start in starts] == [
        (1, build.ids(1)), (2, build.ids(1)), (3, build.ids(0)),
    ]  # fmt: skip


def test_a_job_that_cannot_share_any_gpu_is_refused_or_gets_a_reason():
    request = Request(vram=6 * GIB)
    feasibility.check_possible(request, machine(0), Policy())
    with pytest.raises(Impossible, match="2 of 2 GPUs cannot be shared: their compute mode is exclusive-process"):
        feasibility.check_possible(request, machine(0, 1), Policy())
    # The mode was set after the job was queued.
    waits = build.waiting(1, vram=6 * GIB)
    reason = explanation.explain(waits, View([waits]), machine(0, 1), Policy(), build.NOW)
    assert f"GPU 0-1: {capacity.ONE_PROCESS}" in reason.text


# -- plans with shared devices ------------------------------------------------------------------------------------


def starts(view, inventory, policy):
    found = planner.plan(view, inventory, policy, build.NOW).starts
    return {start.id: start.devices for start in found}


def test_a_gpu_in_foreign_use_does_not_count_for_keep_free():
    """Sharing it takes nothing from others: it was not free for them before."""
    plain = build.inventory(3)
    used = dataclasses.replace(plain.devices[1], foreign="used by bob", foreign_memory=10 * GIB)
    inventory = dataclasses.replace(plain, devices=(plain.devices[0], used, plain.devices[2]))
    queue = [build.waiting(1, gpu_ids=build.ids(1), vram=2 * GIB), build.waiting(2), build.waiting(3)]
    found = starts(View(queue), inventory, Policy(keep_free=1))
    assert found == {1: build.ids(1), 2: build.ids(0)}


def test_a_later_job_starts_when_a_reservation_can_move_to_another_device():
    """The first waiting job would get GPU 1 and 2; once job 3 shares GPU 0, it can have that one instead of GPU 2."""
    long, short = (
        Active(JobId(number), build.ids(1, 2), limit_s=limit_s, started_at=build.NOW, mib=mib)
        for number, limit_s, mib in ((8, 30_000, 6144), (9, 100, 1024))
    )
    queue = [
        build.waiting(1, gpus=2, vram=18 * GIB, limit_s=10_000),
        build.waiting(2, gpu_ids=build.ids(2), vram=11 * GIB, limit_s=1000),
        build.waiting(3, vram=6 * GIB, limit_s=800),
    ]
    found = starts(View(queue, [long, short]), build.inventory(3), Policy())
    assert found == {3: build.ids(0), 2: build.ids(2)}


def test_an_exclusively_used_device_has_no_room():
    inventory = build.inventory(1)
    assert not capacity.beside(inventory.devices[0], [Active(JobId(1), inventory.ids)], 4).fits(1)
    assert capacity.beside(inventory.devices[0], [Active(JobId(1), inventory.ids, mib=1)], 4).fits(1)
