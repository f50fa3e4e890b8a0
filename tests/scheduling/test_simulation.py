"""Properties of simulated days, and small queues against a second implementation of the rule.

A world is its kind and its seed, and both are in the name of the test: `pytest -k "kept-7"` simulates it again.
`DIBS_PROVE=1` simulates thousands of days.
"""

import dataclasses
import itertools
import os
from random import Random

import pytest

import build
import simulation
from dibs.errors import Impossible
from dibs.model.jobs import JobId, Request
from dibs.scheduling import explanation, feasibility, planner, views
from dibs.scheduling.explanation import Reason
from dibs.scheduling.planner import Plan
from dibs.scheduling.views import Active, Collector, Occupant, Policy, View, WaitingJob

PROVING = bool(os.environ.get("DIBS_PROVE"))
SEEDS = range(500 if PROVING else 12)
KINDS = {
    "kept": {},
    "overrun": {"estimates_hold": False},
    "unlimited": {"has_limits": False, "estimates_hold": False},
    "others": {"has_others": True, "estimates_hold": False},
    "shared": {"has_sharing": True},
    "crowded": {"has_sharing": True, "has_others": True, "estimates_hold": False},
}
#: Each kind with some seeds; days with shared devices take longer to simulate.
LIVES = [
    f"{kind}-{seed}" for seed in SEEDS for kind in KINDS if PROVING or seed < 5 or "has_sharing" not in KINDS[kind]
]
#: Days that once showed a bug.
ONCE_WRONG = ("shared-20", *(f"crowded-{seed}" for seed in (58, 78, 147, 285, 324, 495)))
LIVES += [life for life in ONCE_WRONG if life not in LIVES]
#: Days with other users on the machine.
BUSY = ("others", "crowded")


@dataclasses.dataclass(frozen=True)
class Days:
    """A world and all plans made in it."""

    kind: str
    world: simulation.World
    steps: list

    @property
    def jobs(self):
        return {job.id: job for job in self.world.jobs}

    def under_way(self):
        """Yield each step with the jobs that run after it and their devices."""
        for step in self.steps:
            yield step, [(self.jobs[active.id], active.devices) for active in step.after().active]


def lived(kind, seed):
    world = simulation.world(seed, **KINDS[kind])
    return Days(kind, world, list(simulation.run(world)))


# A module-scoped fixture: pytest then runs all tests of one world before it makes the next.
@pytest.fixture(scope="module", params=LIVES)
def days(request):
    kind, seed = request.param.split("-")
    return lived(kind, int(seed))


@pytest.fixture(scope="module", params=[life for life in LIVES if life.split("-")[0] not in BUSY])
def quiet_days(request):
    """Days without other users and without faulty devices."""
    kind, seed = request.param.split("-")
    return lived(kind, int(seed))


# -- limits -------------------------------------------------------------------------------------------------------


def test_an_exclusively_used_device_has_one_job(days):
    for step, running in days.under_way():
        alone = [device for job, devices in running if not job.request.vram for device in devices]
        alone += step.view.held
        shared = {device for job, devices in running if job.request.vram for device in devices}
        assert len(alone) == len({*alone})
        assert {*alone}.isdisjoint(shared.union(step.view.sharers))


def test_shares_fit_into_their_device_and_respect_the_maximum(days):
    for step, running in days.under_way():
        for device in step.inventory.devices:
            shares = [job.request.vram for job, devices in running if job.request.vram and device.id in devices]
            shares += [other.mib * 2**20 for other in step.view.sharers.get(device.id, ())]
            assert sum(shares) <= device.memory_total
            assert len(shares) <= step.policy.most_sharers


def test_nothing_starts_where_it_does_not_fit_beside_foreign_use(days):
    for step, running in days.under_way():
        started = {device for start in step.plan.starts for device in start.devices}
        for device in step.inventory.devices:
            shares = [job.request.vram for job, devices in running if job.request.vram and device.id in devices]
            shares += [other.mib * 2**20 for other in step.view.sharers.get(device.id, ())]
            if device.id in started and shares:
                assert sum(shares) + device.foreign_memory <= device.memory_total
            if device.id in started and device.foreign:
                assert shares, "one who wants a device alone does not get one that strangers use"


def test_nothing_starts_on_a_faulty_device(days):
    for step in days.steps:
        well = {device.id for device in step.inventory.devices if device.fault is None}
        assert all(set(start.devices) <= well for start in step.plan.starts)


def test_every_job_gets_what_it_requested(days):
    for step in days.steps:
        for start in step.plan.starts:
            request = days.jobs[start.id].request
            names = [step.inventory.by_id[device].name.lower() for device in start.devices]
            assert len(start.devices) == request.gpus
            assert not request.gpu_ids or set(start.devices) == set(request.gpu_ids)
            assert all((request.gpu_type or "") in name for name in names)


def test_cpu_and_memory_limits_are_never_exceeded(days):
    policy = days.world.policy
    for _, running in days.under_way():
        requests = [job.request for job, _ in running]
        assert sum(request.cpus or request.gpus == 0 for request in requests) <= policy.cpu_slots
        assert policy.mem_total is None or sum(request.mem for request in requests) <= policy.mem_total


def test_jobs_never_use_more_devices_than_the_etiquette_allows(days):
    policy = days.world.policy
    for step, running in days.under_way():
        mine = {device for _, devices in running for device in devices}
        assert policy.max_gpus is None or len(mine) <= policy.max_gpus
        # Other users may take what we leave; we may not. Devices that are already shared or used do not count.
        free = planner.free_devices(step.view, step.inventory)
        taken = free.intersection(device for start in step.plan.starts for device in start.devices)
        assert not taken or len(free - taken) >= policy.keep_free


def test_no_batch_exceeds_its_limit(days):
    for _, running in days.under_way():
        for batch, most in days.world.at_once.items():
            assert sum(job.batch == batch for job, _ in running) <= most


# -- no starvation ------------------------------------------------------------------------------------------------


def test_every_job_starts_once(days):
    started = [start.id for step in days.steps for start in step.plan.starts]
    assert sorted(started) == sorted(days.jobs)


@dataclasses.dataclass
class Promise:
    """The times reserved for a job while it was the first to wait, and when it started."""

    id: JobId
    times: list
    started_at: int | None = None
    is_lost: bool = False


def promises(steps):
    """Follow the first reservation from plan to plan.

    A promise ends when its job starts. It is void as soon as some job outlives its estimate, or when a job that is
    served before comes into the line or back into it: from its begin time, or because its batch has room again.
    """
    found, current, before = [], None, None
    for step in steps:
        if current and (outlived(before, step) or overtaken(current.id, before, step)):
            current = None
        if current and current.id in {start.id for start in step.plan.starts}:
            current.started_at = step.now
            current = None
        first = next(iter(step.plan.reserved), None)
        if current and (first is None or first.id != current.id):
            current.is_lost = True
            current = None
        if first and current is None:
            current = Promise(first.id, [])
            found.append(current)
        if first:
            current.times.append(first.at)
        before = step
    return found


def outlived(before, step):
    """Return whether a job still ran when it was expected to have ended."""

    def expected_end(job):
        return job.started_at + (job.limit_s or step.policy.assumed_s) * 1000

    # Had it ended in time, there would have been a step at that moment.
    return any(expected_end(job) < step.now for job in before.after().active) or any(
        expected_end(job) <= step.now for job in step.view.active
    )


def overtaken(job_id, before, step):
    known = {job.id for job in before.after().waiting if job.room is None or job.room > 0}
    served = [job.id for job in views.order(step.view.waiting)]
    return not known.issuperset(served[: served.index(job_id)])


def test_the_reservation_of_the_first_waiting_job_never_moves_later(quiet_days):
    for promise in promises(quiet_days.steps):
        assert promise.times == sorted(promise.times, reverse=True), promise


def test_the_first_waiting_job_keeps_its_reservation_until_it_starts(quiet_days):
    assert not [promise for promise in promises(quiet_days.steps) if promise.is_lost]


def test_the_first_waiting_job_starts_no_later_than_first_promised(quiet_days):
    for promise in promises(quiet_days.steps):
        assert promise.started_at is None or promise.started_at <= promise.times[0], promise


def test_a_job_that_can_never_start_takes_nothing_from_the_others():
    """Settings may change after it was accepted."""
    policy = Policy(4, 64, max_gpus=3, keep_free=1)
    never = [Request(1, cpus=5), Request(1, mem=65), Request(4), Request(0, cpus=5)]
    for request in never:
        queue = [WaitingJob(JobId(1), request), build.waiting(2, gpus=3), build.waiting(3, gpus=0)]
        decided = planner.plan(View(queue), build.inventory(4), policy, build.NOW)
        assert [start.id for start in decided.starts] == [2, 3]
        assert (decided.first, decided.reserved) == (None, ())


# -- no needless idling -------------------------------------------------------------------------------------------


def starts_alone(job, view, step):
    """Return whether a job would start now if no other job waited."""
    alone = dataclasses.replace(view, waiting=[dataclasses.replace(job, room=None)])
    return bool(planner.plan(alone, step.inventory, step.policy, step.now).starts)


def has_place(job, view, step):
    """Return whether the batch of a job has room beside its running jobs and its reservations."""
    reserved = {reserved.id for reserved in step.plan.reserved} - {job.id}
    kept = sum(other.batch == job.batch and other.id in reserved for other in view.waiting)
    return job.room is None or job.room > kept


def test_a_plan_leaves_no_job_waiting_that_could_also_start(days):
    """A job left waiting by one plan is left by the next one too, if nothing happened in between.

    With one exception: a job without a limit may not backfill because it would end just in time, but once it runs it
    is expected to.
    """
    for step in days.steps:
        if step.now + step.policy.assumed_s * 1000 not in [reserved.at for reserved in step.plan.reserved]:
            assert not planner.plan(step.after(), step.inventory, step.policy, step.now).starts


def test_the_first_job_never_waits_for_free_devices(days):
    for step in days.steps:
        view = step.after()
        first = [job for job in views.order(view.waiting) if job.room is None or job.room > 0][:1]
        assert not any(starts_alone(job, view, step) for job in first)


def test_a_job_that_fits_waits_only_if_it_might_outlast_a_reservation(days):
    """EASY backfill leaves nothing else idle: a job that fits and would end before every reserved time has started."""
    for step in days.steps:
        view = step.after()
        for job in view.waiting:
            limit_s = job.request.limit_s
            end = step.now + (limit_s or step.policy.assumed_s) * 1000
            times = [reserved.at for reserved in step.plan.reserved if reserved.id != job.id]
            is_harmless = all(end <= at if limit_s else end < at for at in times)
            if is_harmless and has_place(job, view, step):
                assert not starts_alone(job, view, step), (step.now, job)


# -- backfill helps -----------------------------------------------------------------------------------------------


def strictly(view, inventory, policy, now):
    """Plan without backfill: no job overtakes one that waits for anything but its batch."""
    step = simulation.Step(now, dataclasses.replace(view, waiting=[]), inventory, policy, Plan((), (), None))
    starts = []
    for job in views.order(view.waiting):
        left = step.after()
        under_way = sum(other.batch == job.batch for other in view.waiting if other.id in {s.id for s in starts})
        if job.room is not None and job.room <= under_way:
            continue
        alone = dataclasses.replace(left, waiting=[dataclasses.replace(job, room=None)])
        decided = planner.plan(alone, inventory, policy, now)
        if not decided.starts:
            return Plan(tuple(starts), (), decided.first)
        starts += decided.starts
        step = dataclasses.replace(step, view=alone, plan=decided)
    return Plan(tuple(starts), (), None)


def mean_completion_s(world, decide):
    ends = {start.id: step.now / 1000 for step in simulation.run(world, decide) for start in step.plan.starts}
    return sum(ends[job.id] + job.takes_s - job.joins_at / 1000 for job in world.jobs) / len(world.jobs)


@pytest.mark.parametrize("kind", KINDS)
def test_with_backfill_jobs_finish_sooner_on_average(kind):
    worlds = [simulation.world(seed, **KINDS[kind]) for seed in SEEDS]
    ratios = [mean_completion_s(world, planner.plan) / mean_completion_s(world, strictly) for world in worlds]
    assert sum(ratios) / len(ratios) < 1


@pytest.mark.parametrize("seed", SEEDS)
def test_without_limits_jobs_start_strictly_in_order(seed):
    """If any device would do and nothing else is counted, however much longer than assumed they run."""
    world = simulation.world(seed, has_limits=False, estimates_hold=False, is_plain=True)
    for step in simulation.run(world):
        started = {start.id for start in step.plan.starts}
        served = [job.id in started for job in views.order(step.view.waiting)]
        assert served == sorted(served, reverse=True)


def test_a_job_without_a_limit_does_not_backfill_after_repeated_overruns():
    policy = Policy(assumed_s=3600)
    endless = Active(JobId(9), build.ids(0), started_at=build.NOW - int(2.5 * 3600_000))
    view = View([build.waiting(1, gpus=2), build.waiting(2)], [endless])
    assert not planner.plan(view, build.inventory(2), policy, build.NOW).starts


def test_a_short_job_does_not_take_the_batch_place_reserved_for_a_waiting_one():
    long = Active(JobId(9), build.ids(0), limit_s=3600, started_at=build.NOW)
    queue = [
        WaitingJob(JobId(1), Request(2, limit_s=3600), batch=1, room=1),
        WaitingJob(JobId(2), Request(1, limit_s=60), batch=1, room=1),
        WaitingJob(JobId(3), Request(1, limit_s=60)),
    ]
    decided = planner.plan(View(queue, [long]), build.inventory(2), Policy(), build.NOW)
    assert [start.id for start in decided.starts] == [3]


# -- reasons are correct ------------------------------------------------------------------------------------------


def reasons(days):
    """Yield every fifth step with the reason of each job that waits after it."""
    for step in days.steps[::5]:
        for job in step.plan.waits:
            yield step, job, explanation.explain(job, step.view, step.inventory, step.policy, step.now, step.plan)


def test_a_job_without_devices_never_waits_for_devices(days):
    assert not [reason for _, job, reason in reasons(days) if job.request.gpus == 0 and "GPU" in reason.text]


def test_the_hint_that_fewer_devices_would_start_now_is_correct(days):
    for step, job, reason in reasons(days):
        if reason.hint.startswith("It would start now with -g "):
            fewer = dataclasses.replace(job.request, gpus=int(reason.hint.split()[-1].rstrip(".")))
            queue = [dataclasses.replace(j, request=fewer) if j is job else j for j in step.view.waiting]
            edited = dataclasses.replace(step.view, waiting=queue)
            decided = planner.plan(edited, step.inventory, step.policy, step.now)
            assert job.id in [start.id for start in decided.starts]


def test_a_job_behind_a_reservation_names_the_job_it_is_for():
    running = Active(JobId(9), build.ids(0), cpus=2, limit_s=3600, started_at=build.NOW)
    queue = [build.waiting(1, cpus=4), build.waiting(2, gpus=0, cpus=2)]
    view, policy = View(queue, [running]), Policy(4)
    reason = explanation.explain(queue[1], view, build.inventory(1), policy, build.NOW)
    assert reason == Reason("reserved for job 1, which is ahead", explanation.PASSING)


def test_a_job_whose_batch_place_is_reserved_names_the_job_it_is_for():
    long = Active(JobId(9), build.ids(0), limit_s=3600, started_at=build.NOW)
    queue = [WaitingJob(JobId(n), Request(gpus, limit_s=60), batch=1, room=1) for n, gpus in ((1, 2), (2, 1))]
    reason = explanation.explain(queue[1], View(queue, [long]), build.inventory(2), Policy(), build.NOW)
    assert reason == Reason(
        "its place in the batch (-j) is reserved for job 1, which is ahead",
        "A higher -j would let both run; a higher --priority would let it start first.",
    )


# -- the rule, implemented a second time --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """A small queue on a small machine."""

    view: View
    inventory: planner.Inventory
    policy: Policy


def small_case(seed):
    """Make up to three devices, some in use, held or faulty, up to four waiting jobs, and up to two tickets."""
    dice = Random(seed)
    uses = dice.choices("fffaahx", k=dice.choice((1, 2, 3, 3)))
    inventory = build.inventory(len(uses), faulty=[n for n, use in enumerate(uses) if use == "x"])
    in_use = [build.ids(n) for n, use in enumerate(uses) if use == "a"]
    # One job with several devices, or several jobs; and perhaps one without devices.
    users = dice.choice([in_use, [sum(in_use, ())] if in_use else []]) + [()] * dice.randint(0, 1)
    held = {build.ids(n)[0]: Occupant("bob") for n, use in enumerate(uses) if use == "h"}
    room = {1: dice.randint(0, 2)}
    line = [
        Collector("eve", dice.randint(1, 2), frozenset(dice.sample(inventory.ids, dice.randint(1, len(uses)))))
        for _ in range(dice.choice((0, 0, 1, 2)))
    ]
    view = View(
        [small_job(dice, number, inventory, room) for number in range(1, dice.choice((2, 3, 4, 4)) + 1)],
        [small_use(dice, 10 + n, devices) for n, devices in enumerate(users)],
        held,
        line,
        dice.randint(0, len(line)),
    )
    policy = Policy(
        cpu_slots=dice.randint(1, 4),
        mem_total=dice.choice((None, 8)),
        assumed_s=dice.choice((20, 40)),
        max_gpus=dice.choice((None, None, 1, 2)),
        keep_free=dice.choice((0, 0, 1)),
    )
    return Case(view, inventory, policy)


def small_job(dice, number, inventory, room):
    gpus, kind = dice.choice((0, 1, 1, 2, 3)), {}
    if gpus and dice.random() < 0.2:
        kind = {"prefer": tuple(dice.sample(inventory.ids, 1))}
    elif gpus and dice.random() < 0.2:
        kind = {"gpu_ids": tuple(dice.sample(inventory.ids, dice.randint(1, len(inventory.ids))))}
        gpus = dice.choice((len(kind["gpu_ids"]), 1))
    request = Request(
        gpus,
        **kind,
        cpus=dice.choice((0, 0, 0, 1, 2)),
        mem=dice.choice((0, 0, 0, 4, 8)),
        limit_s=dice.choice((None, 10, 20, 30, 60)),
    )
    batch = dice.choice((0, 0, 1))
    return WaitingJob(JobId(number), request, dice.choice((0, 0, 1)), batch, room.get(batch))


def small_use(dice, number, devices):
    started_at = build.NOW - dice.choice((0, 5, 10, 30, 90)) * 1000
    limit_s = dice.choice((None, 10, 20, 60))
    return Active(JobId(number), devices, dice.choice((0, 1, 2)), dice.choice((0, 4)), limit_s, started_at)


@dataclasses.dataclass(frozen=True)
class Use:
    """What a job uses, and until when."""

    asked: Active | Request
    devices: tuple
    until: float


@dataclasses.dataclass
class Kept:
    """What is reserved for a waiting job, and what will run beside it at that time."""

    at: float
    devices: list
    beside: list
    free: int


class Rule:
    """The rule of `scheduling` in plain steps, where everything is recounted for every question.

    Priority, then id; one reservation for the first job with devices that has to wait and one for the first without;
    no job delays a reservation; tickets ahead lose nothing.
    """

    def __init__(self, case):
        self.case, self.policy = case, case.policy
        self.well = [device.id for device in case.inventory.devices if device.fault is None]
        self.uses = [Use(active, active.devices, self.expected_end(active)) for active in case.view.active]
        self.kept = {}
        self.ahead = case.view.line[: case.view.ahead]
        self.room = {job.batch: job.room for job in case.view.waiting if job.room is not None}

    def expected_end(self, active):
        span = (active.limit_s or self.policy.assumed_s) * 1000
        return next(end for n in itertools.count(1) if (end := active.started_at + n * span) > build.NOW)

    def free(self):
        used = {device for use in self.uses for device in use.devices}
        return [device for device in self.well if device not in used and device not in self.case.view.held]

    def wanted(self, request):
        """Return the usable devices, in order of preference."""
        if request.gpu_ids and len(request.gpu_ids) > request.gpus:
            return [device for device in self.well if device in request.gpu_ids]
        first, rest = (request.gpu_ids, ()) if request.gpu_ids else (request.prefer, self.well)
        return [device for device in dict.fromkeys([*first, *rest]) if device in self.well]

    def fits(self, request, uses, free):
        """Return whether a request fits beside the other jobs, with the given number of free devices."""
        cpus = sum(use.asked.cpus or not use.devices for use in uses)
        counted = [
            (request.cpus or request.gpus == 0, self.policy.cpu_slots - cpus),
            (request.mem, (self.policy.mem_total or 10**9) - sum(use.asked.mem for use in uses)),
            (request.gpus, (self.policy.max_gpus or 10**9) - sum(len(use.devices) for use in uses)),
            (request.gpus, free - self.policy.keep_free if self.policy.keep_free else 10**9),
        ]
        return all(needed <= left for needed, left in counted if needed)

    def is_first_of_its_kind(self, request):
        """Return whether it gets a reservation: not if it could not start even on an empty machine."""
        is_possible = len(self.wanted(request)) >= request.gpus and self.fits(request, [], len(self.well))
        return is_possible and (request.gpus > 0) not in self.kept

    def keep(self, job):
        """Find the first moment at which a job could start; devices held by others may be freed at any moment."""
        request, wanted = job.request, self.wanted(job.request)
        back = dict.fromkeys(wanted, build.NOW) | {device: use.until for use in self.uses for device in use.devices}
        for at in sorted({build.NOW, *(use.until for use in self.uses)}):
            beside = [use for use in self.uses if use.until > at]
            free = len(self.well) - sum(len(use.devices) for use in beside)
            is_back = sum(back[device] <= at for device in wanted) >= request.gpus
            if is_back and self.fits(request, beside, free):
                break
        free_now = self.free()
        devices = sorted(wanted, key=lambda device: (back[device], device not in free_now))[: request.gpus]
        itself = Use(request, tuple(devices), at)
        self.kept[request.gpus > 0] = Kept(at, devices, [*beside, itself], free - request.gpus)
        self.room[job.batch] = self.room.get(job.batch, 10**9) - 1

    def may_outlast(self, request, kept):
        if request.limit_s is None:
            return build.NOW + self.policy.assumed_s * 1000 >= kept.at
        return build.NOW + request.limit_s * 1000 > kept.at

    def ways(self, job):
        """Return every set of devices on which a job may start now, best first."""
        request, free = job.request, self.free()
        in_the_way = [kept for kept in self.kept.values() if self.may_outlast(request, kept)]
        is_room = self.fits(request, self.uses, len(free))
        if not is_room or not all(self.fits(request, kept.beside, kept.free) for kept in in_the_way):
            return []
        taken = {device for kept in in_the_way for device in kept.devices}
        mine = [device for device in self.wanted(request) if device in free and device not in taken]
        line = [(other.count, other.devices) for other in self.ahead] if request.gpus else []
        loses_nothing = build.most_held(line, free)
        return [
            way
            for way in itertools.combinations(mine, request.gpus)
            if build.most_held(line, set(free) - set(way)) == loses_nothing
        ]

    def start(self, job, devices):
        span_s = job.request.limit_s or self.policy.assumed_s
        use = Use(job.request, devices, build.NOW + span_s * 1000)
        for kept in self.kept.values():
            if self.may_outlast(job.request, kept):
                kept.beside.append(use)
                kept.free -= len(devices)
        self.uses.append(use)
        self.room[job.batch] = self.room.get(job.batch, 10**9) - 1
        if devices:
            self.ahead = self.case.view.line

    def judge(self, plan):
        """Walk through the queue; return for each job whether it starts, and on which devices it might."""
        given_out = {start.id: start.devices for start in plan.starts}
        for job in sorted(self.case.view.waiting, key=lambda job: (-job.priority, job.id)):
            ways = self.ways(job) if self.room.get(job.batch, 1) > 0 else []
            yield job, ways, given_out.get(job.id)
            if job.id in given_out:
                self.start(job, given_out[job.id])
            elif self.room.get(job.batch, 1) > 0 and self.is_first_of_its_kind(job.request):
                self.keep(job)


@pytest.fixture(scope="module", params=range(200 if PROVING else 8))
def small_cases(request):
    """Make a thousand cases; the number in a failure is the seed of `small_case`."""
    return {seed: small_case(seed) for seed in range(1000 * request.param, 1000 * (request.param + 1))}


def test_exactly_the_jobs_that_the_rule_allows_start(small_cases):
    for seed, case in small_cases.items():
        decided = planner.plan(case.view, case.inventory, case.policy, build.NOW)
        for job, ways, devices in Rule(case).judge(decided):
            assert (devices is not None) is bool(ways), (seed, job)
            assert devices is None or set(devices) in [set(way) for way in ways], (seed, job)


def test_with_an_empty_line_the_best_devices_are_given(small_cases):
    for seed, case in small_cases.items():
        case = dataclasses.replace(case, view=dataclasses.replace(case.view, line=()))
        decided = planner.plan(case.view, case.inventory, case.policy, build.NOW)
        for job, ways, devices in Rule(case).judge(decided):
            assert devices == (ways[0] if ways else None), (seed, job)


def test_reservations_equal_those_of_the_rule(small_cases):
    for seed, case in small_cases.items():
        decided = planner.plan(case.view, case.inventory, case.policy, build.NOW)
        rule = Rule(case)
        list(rule.judge(decided))
        kept = [(kept.at, set(kept.devices)) for kept in rule.kept.values()]
        assert [(reserved.at, set(reserved.devices)) for reserved in decided.reserved] == kept, seed


def test_an_accepted_job_starts_on_an_idle_machine_and_a_refused_one_does_not(small_cases):
    for seed, case in small_cases.items():
        idle = build.inventory(len(case.inventory.devices))
        for job in case.view.waiting:
            alone = planner.plan(View([dataclasses.replace(job, room=None)]), idle, case.policy, build.NOW)
            assert is_accepted(job.request, idle, case.policy) is bool(alone.starts), (seed, job)


def is_accepted(request, inventory, policy):
    try:
        feasibility.check_possible(request, inventory, policy)
    except Impossible:
        return False
    return True
