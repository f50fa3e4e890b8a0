"""Which jobs start now, and on which devices."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.errors import Impossible, UserError
from dibs.model import devices
from dibs.model.jobs import JobId, Request
from dibs.scheduling import feasibility, planner, views
from dibs.scheduling.planner import Plan
from dibs.scheduling.views import Active, Collector, Occupant, Policy, View, WaitingJob

TYPES = ("NVIDIA A100", "Tesla T4")


def plan(view, inventory=None, cpu_slots=2):
    return planner.plan(view, inventory or build.inventory(4), Policy(cpu_slots), build.NOW)


def starts(view, inventory=None, cpu_slots=2):
    """Return the devices of each job that starts."""
    return {start.id: start.devices for start in plan(view, inventory, cpu_slots).starts}


def waits(view, inventory=None, cpu_slots=2):
    return [job.id for job in plan(view, inventory, cpu_slots).waits]


# -- random machines ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class World:
    """The whole input of a plan."""

    view: View
    inventory: devices.Inventory
    policy: Policy

    @property
    def plan(self):
        return planner.plan(self.view, self.inventory, self.policy, build.NOW)

    @property
    def free(self):
        return planner.free_devices(self.view, self.inventory)

    def request(self, job_id):
        return next(job.request for job in self.view.waiting if job.id == job_id)

    def without_later(self, job):
        """Return this world without the jobs that are served after `job`."""
        served = views.order(self.view.waiting)
        return dataclasses.replace(self, view=dataclasses.replace(self.view, waiting=served[: served.index(job) + 1]))


def world(dice, *, is_paused=False):
    """Make a machine of up to five devices, some in use, held or faulty, with tickets in the line and a queue."""
    uses = [dice.one("ffffahx") for _ in range(dice.number(0, 5))]
    inventory = build.inventory(
        len(uses),
        faulty=[n for n, use in enumerate(uses) if use == "x"],
        names={n: dice.one(TYPES) for n in range(len(uses))},
    )
    active = [Active(JobId(100 + n), build.ids(n)) for n, use in enumerate(uses) if use == "a"]
    active += [Active(JobId(200 + n)) for n in range(dice.number(0, 2))]
    held = {build.ids(n)[0]: Occupant("bob", 7) for n, use in enumerate(uses) if use == "h"}
    queue = [WaitingJob(JobId(n), request(dice, inventory), dice.number(-1, 1)) for n in range(dice.number(0, 5))]
    line = [
        Collector("bob", dice.number(1, 3), frozenset(dice.some(inventory.ids, high=3)))
        for _ in range(dice.number(0, 2))
    ]
    view = View(queue, active, held, line, dice.number(0, len(line)), is_paused)
    return World(view, inventory, Policy(dice.number(0, 3)))


def request(dice, inventory):
    """Make a request of any kind, possible on this machine or not."""
    match dice.one(["plain", "plain", "prefer", "type", "ids"]):
        case "prefer":
            return Request(dice.number(1, 3), prefer=tuple(dice.some(inventory.ids, high=3)))
        case "type":
            return Request(dice.number(1, 3), gpu_type=dice.one(["a100", "t4"]))
        case "ids" if inventory.ids:
            named = tuple(dice.some(inventory.ids, low=1, high=3))
            return Request(dice.number(1, len(named)), gpu_ids=named)
        case _:
            return Request(dice.number(0, 4))


WORLDS = build.drawn(world)
PAUSED_WORLDS = build.drawn(lambda dice: world(dice, is_paused=True))


# -- properties of every plan -------------------------------------------------------------------------------------


@given(WORLDS)
def test_no_device_is_given_that_is_in_use_held_or_faulty(world):
    taken = {device for job in world.view.active for device in job.devices} | set(world.view.held)
    well = {device.id for device in world.inventory.devices if device.fault is None}
    assert all(set(start.devices) <= well - taken for start in world.plan.starts)


@given(WORLDS)
def test_no_device_is_given_twice(world):
    given_out = [device for start in world.plan.starts for device in start.devices]
    assert len(given_out) == len(set(given_out))


@given(WORLDS)
def test_every_waiting_job_either_starts_or_waits(world):
    decided = world.plan
    assert sorted([start.id for start in decided.starts] + [job.id for job in decided.waits]) == sorted(
        job.id for job in world.view.waiting
    )


@given(WORLDS, st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_its_input(world, random):
    shuffled = random.sample(world.view.waiting, len(world.view.waiting))
    assert (
        planner.plan(dataclasses.replace(world.view, waiting=shuffled), world.inventory, world.policy, build.NOW)
        == world.plan
    )


@given(WORLDS)
def test_a_job_gets_the_requested_number_of_the_devices_it_allows(world):
    for start in world.plan.starts:
        request = world.request(start.id)
        assert len(start.devices) == request.gpus
        assert set(start.devices) <= set(views.eligible(world.inventory, request))


@given(WORLDS)
def test_a_job_with_named_devices_gets_all_or_the_requested_number_of_them(world):
    for start in world.plan.starts:
        request = world.request(start.id)
        assert not request.gpu_ids or set(start.devices) <= set(request.gpu_ids)
        assert not request.is_exact or set(start.devices) == set(request.gpu_ids)


@given(WORLDS)
def test_a_job_that_requests_a_type_gets_that_type(world):
    for start in world.plan.starts:
        wanted = world.request(start.id).gpu_type or ""
        assert all(wanted in world.inventory.by_id[device].name.lower() for device in start.devices)


@given(WORLDS)
def test_later_jobs_do_not_change_the_plan_for_earlier_ones(world):
    whole = world.plan
    for job in world.view.waiting:
        until = world.without_later(job)
        served = {other.id for other in until.view.waiting}
        assert until.plan.starts == tuple(start for start in whole.starts if start.id in served)


@given(WORLDS)
def test_later_jobs_take_nothing_from_the_first_waiting_job(world):
    """As many devices that it could use are free as if no later job had been submitted."""
    decided = world.plan
    left = world.free - {device for start in decided.starts for device in start.devices}
    for job in [decided.first] if decided.first else []:
        usable = set(views.eligible(world.inventory, job.request))
        alone = world.without_later(job)
        left_alone = world.free - {device for start in alone.plan.starts for device in start.devices}
        assert min(job.request.gpus, len(left & usable)) == min(job.request.gpus, len(left_alone & usable))


@given(WORLDS)
def test_tickets_ahead_of_ours_lose_nothing(world):
    ahead = [(other.count, other.devices) for other in world.view.line[: world.view.ahead]]
    left = world.free - {device for start in world.plan.starts for device in start.devices}
    assert build.most_held(ahead, left) == build.most_held(ahead, world.free)


@given(WORLDS)
def test_after_one_start_every_ticket_is_ahead_of_us(world):
    line = [(other.count, other.devices) for other in world.view.line]
    served = [set(start.devices) for start in world.plan.starts if start.devices]
    after_first, after_all = world.free.difference(*served[:1]), world.free.difference(*served)
    assert build.most_held(line, after_all) == build.most_held(line, after_first)


@given(WORLDS)
def test_free_cpu_slots_are_filled_with_jobs_without_devices(world):
    running = sum(not job.devices for job in world.view.active)
    waiting = sum(job.request.gpus == 0 for job in world.view.waiting)
    started = sum(not start.devices for start in world.plan.starts)
    assert started == min(waiting, max(0, world.policy.cpu_slots - running))


@given(WORLDS)
def test_the_first_job_starts_on_the_best_devices_when_enough_are_free(world):
    world = dataclasses.replace(world, view=dataclasses.replace(world.view, ahead=0))
    given_out = {start.id: start.devices for start in world.plan.starts}
    for job in [job for job in views.order(world.view.waiting) if job.request.gpus][:1]:
        best = [device for device in views.eligible(world.inventory, job.request) if device in world.free]
        enough = tuple(best[: job.request.gpus]) if len(best) >= job.request.gpus else None
        assert given_out.get(job.id) == enough


@given(WORLDS)
def test_our_ticket_is_for_the_first_job_that_waits_for_devices(world):
    """A job that needs a faulty device may wait for ever, and nothing is kept for it."""
    decided = world.plan
    waits = [job for job in decided.waits if 0 < job.request.gpus <= len(views.eligible(world.inventory, job.request))]
    assert decided.first == next(iter(waits), None)


@given(PAUSED_WORLDS)
def test_while_the_queue_is_paused_all_jobs_wait_and_there_is_no_ticket(world):
    assert world.plan == Plan((), tuple(views.order(world.view.waiting)), None)


# -- the order ----------------------------------------------------------------------------------------------------


def test_higher_priority_comes_first_then_the_older_job():
    queue = [
        build.waiting(1),
        build.waiting(3, priority=5),
        build.waiting(2, priority=5),
        build.waiting(4, priority=-1),
    ]
    assert [job.id for job in views.order(queue)] == [2, 3, 1, 4]


def test_a_job_that_fits_starts_on_the_first_free_devices():
    assert starts(View([build.waiting(gpus=2)])) == {1: build.ids(0, 1)}


def test_a_preferred_device_is_taken_before_a_lower_index():
    assert starts(View([build.waiting(gpus=2, prefer=build.ids(3))])) == {1: build.ids(3, 0)}


def test_a_job_does_not_wait_for_a_preferred_device():
    view = View([build.waiting(prefer=build.ids(3))], [Active(JobId(9), build.ids(3))])
    assert starts(view) == {1: build.ids(0)}


def test_a_small_job_does_not_overtake_a_large_one_that_collects():
    view = View([build.waiting(1, gpus=4), build.waiting(2)], [Active(JobId(9), build.ids(0))])
    assert waits(view) == [1, 2]


def test_a_small_job_overtakes_a_large_one_on_devices_it_does_not_need():
    view = View([build.waiting(1, gpu_ids=build.ids(0, 1)), build.waiting(2)], [Active(JobId(9), build.ids(0))])
    assert starts(view) == {2: build.ids(2)}


def test_a_job_without_devices_overtakes_one_that_waits_for_devices():
    view = View([build.waiting(1, gpus=4), build.waiting(2, gpus=0)], [Active(JobId(9), build.ids(0))])
    assert starts(view) == {2: ()}


def test_a_device_collected_by_a_ticket_ahead_is_left_for_it():
    view = View([build.waiting()], line=[Collector("bob", 2, frozenset(build.ids(0, 1)))], ahead=1)
    assert starts(view, build.inventory(3)) == {1: build.ids(2)}


def test_a_ticket_behind_ours_takes_nothing_from_our_first_job():
    view = View([build.waiting()], line=[Collector("bob", 2, frozenset(build.ids(0, 1)))], ahead=0)
    assert starts(view, build.inventory(2)) == {1: build.ids(0)}


def test_our_second_job_waits_behind_the_ticket_that_our_first_one_overtook():
    line = [Collector("bob", 1, frozenset(build.ids(0, 1)))]
    view = View([build.waiting(1), build.waiting(2)], line=line, ahead=0)
    assert waits(view, build.inventory(2)) == [2]


# -- requests that can never be satisfied -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "inventory", "message"),
    [
        (Request(1), build.inventory(0), "the job asks for 1 GPU; this machine has none."),
        (Request(3), build.inventory(2), "the job asks for 3 GPUs; this machine has 2."),
        (Request(1, gpu_type="h100"), build.inventory(2), 'no GPU matches --gpu-type "h100".'),
        (
            Request(2, gpu_type="t4"),
            build.inventory(2, names={0: "Tesla T4"}),
            'the job asks for 2 GPUs; this machine has 1 of type "t4".',
        ),
    ],
)
def test_a_request_that_can_never_be_satisfied_is_refused(request_, inventory, message):
    with pytest.raises(Impossible) as caught:
        feasibility.check_possible(request_, inventory, Policy())
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("request_", "inventory"),
    [
        (Request(0), build.inventory(0)),
        (Request(2), build.inventory(2, faulty=[0, 1])),
        (Request(9), devices.Inventory(is_known=False)),
    ],
)
def test_a_request_that_may_be_satisfied_later_is_accepted(request_, inventory):
    feasibility.check_possible(request_, inventory, Policy())


def test_the_error_about_an_unknown_device_names_the_option():
    with pytest.raises(UserError, match='--gpu-ids expected an index or UUID of a GPU: there is no GPU "7"'):
        feasibility.resolve(["0", "7"], "--gpu-ids", build.inventory(2))


def test_a_job_at_our_own_limit_keeps_no_idle_device_from_other_users():
    """Only our own jobs must end first, so a ticket in the machine-wide line would be for nothing."""
    active = [Active(JobId(9), build.ids(0))]
    view = View([WaitingJob(JobId(1), Request(gpus=1))], active)
    limited = planner.plan(view, build.inventory(4), Policy(2, max_gpus=1), build.NOW)
    assert [job.id for job in limited.waits] == [1]
    assert limited.first is None
    full = View([WaitingJob(JobId(1), Request(gpus=4))], active)
    assert planner.plan(full, build.inventory(4), Policy(2, max_gpus=5), build.NOW).first is not None
