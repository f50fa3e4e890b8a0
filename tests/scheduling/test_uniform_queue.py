"""The plan of a uniform queue is the one that the planner makes."""

import dataclasses

import pytest
from hypothesis import given

import build
from dibs.model.jobs import JobId, Request
from dibs.scheduling import planner, uniform_queue
from dibs.scheduling.views import Active, Collector, Limit, Occupant, Policy, View, WaitingJob


def request(dice, inventory):
    """Make a request for whole devices, possible on this machine or not."""
    named = tuple(dice.some(inventory.ids, high=3))
    count = dice.number(1, 3)
    match dice.one(["plain", "prefer", "type", "ids", "limit"]):
        case "prefer":
            return Request(count, prefer=named)
        case "type":
            return Request(count, gpu_type=dice.one(["a100", "t4"]))
        case "ids" if len(named) >= count:
            return Request(count, gpu_ids=named)
        case "limit":
            return Request(count, limit_s=60.0)
        case _:
            return Request(count)


def world(dice):
    """Make a machine of up to six devices, some in use, held or faulty, and a queue of equal requests."""
    uses = [dice.one("fffahx") for _ in range(dice.number(0, 6))]
    names = {n: dice.one(("NVIDIA A100", "Tesla T4")) for n in range(len(uses))}
    faulty = [n for n, use in enumerate(uses) if use == "x"]
    inventory = build.inventory(len(uses), faulty=faulty, names=names)
    active = [Active(JobId(100 + n), build.ids(n)) for n, use in enumerate(uses) if use == "a"]
    active += [Active(JobId(200 + n), cpus=2) for n in range(dice.number(0, 2))]
    held = {build.ids(n)[0]: Occupant("bob", 7) for n, use in enumerate(uses) if use == "h"}
    wanted = request(dice, inventory)
    waiting = [
        WaitingJob(JobId(n), wanted, dice.number(-1, 1), turn_s=float(dice.number(0, 1)))
        for n in range(1, dice.number(2, 8))
    ]
    used_at = {device: float(dice.number(0, 3)) for device in inventory.ids}
    return View(waiting, active, held, used_at=used_at), inventory, Policy(dice.number(0, 3))


@given(build.drawn(world))
def test_it_decides_what_the_planner_decides(given_world):
    view, inventory, policy = given_world
    quick, whole = uniform_queue.plan(view, inventory, policy), planner.plan(view, inventory, policy, build.NOW)
    if quick is None:
        assert whole.first is None
        assert not whole.starts
    else:
        assert (quick.starts, quick.waits, quick.first) == (whole.starts, whole.waits, whole.first)
        assert planner.collected(quick, inventory) == planner.collected(whole, inventory)


ONE = Request(1)
WAITING = WaitingJob(JobId(1), ONE)
UNIFORM = View([WAITING, WaitingJob(JobId(2), ONE)])


def changed(**values):
    return dataclasses.replace(UNIFORM, **values)


def test_it_plans_a_uniform_queue():
    assert uniform_queue.plan(UNIFORM, build.inventory(1), Policy()) is not None


@pytest.mark.parametrize(
    ("view", "policy"),
    [
        (View(), Policy()),
        (changed(is_paused=True), Policy()),
        (changed(line=[Collector("bob", 1, frozenset(build.ids(0)))]), Policy()),
        (changed(sharers={build.ids(0)[0]: [Occupant("bob", mib=1)]}), Policy()),
        (changed(lendable=frozenset(build.ids(0))), Policy()),
        (changed(active=[Active(JobId(9), build.ids(0), mib=100)]), Policy()),
        (changed(active=[Active(JobId(9), build.ids(0), is_evictable=True)]), Policy()),
        (changed(waiting=[WAITING, WaitingJob(JobId(2), Request(2))]), Policy()),
        (changed(waiting=[WAITING, WaitingJob(JobId(2), ONE, room=1)]), Policy()),
        (changed(waiting=[WAITING, WaitingJob(JobId(2), ONE, bounds=(Limit(("group", "a"), 1),))]), Policy()),
        (changed(waiting=[WAITING, WaitingJob(JobId(2), ONE, history=(1.0,))]), Policy()),
        (changed(waiting=[WaitingJob(JobId(1), Request(0))]), Policy()),
        *(
            (changed(waiting=[WaitingJob(JobId(1), Request(1, **each))]), Policy())
            for each in [{"cpus": 1}, {"mem": 1}, {"vram": 1}, {"evictable": "yes"}]
        ),
        (UNIFORM, Policy(max_gpus=1)),
        (UNIFORM, Policy(keep_free=1)),
    ],
)
def test_it_leaves_every_other_queue_to_the_planner(view, policy):
    assert uniform_queue.plan(view, build.inventory(2), policy) is None
