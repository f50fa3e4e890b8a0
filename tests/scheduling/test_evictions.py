"""Which evictable jobs give up their devices, and for whom."""

import dataclasses

from hypothesis import given

import build
from dibs.model.jobs import AUTO, NO, YES, JobId, Request
from dibs.scheduling import evictions, planner
from dibs.scheduling.views import Active, Collector, Occupant, Policy, View

MINUTE = 60_000
POLICY = Policy(cpu_slots=4, evict_min_run_s=600, evict_grace_s=30)


def running(number, *indices, minutes=60, **more):
    """Return an evictable job of ours that has run for some minutes."""
    started_at = build.NOW - minutes * MINUTE
    return Active(JobId(number), build.ids(*indices), started_at=started_at, **{"is_evictable": True} | more)


def bobs(*, minutes=60, pid=7, user="bob", **more):
    """Return another user's evictable job."""
    return Occupant(user, pid, is_evictable=True, started_at=build.NOW - minutes * MINUTE, **more)


def decide(view, count=4, policy=POLICY):
    return evictions.decide(dataclasses.replace(view, user="ann"), build.inventory(count), policy, build.NOW)


def evicted(view, count=4, policy=POLICY):
    return [each.id for each in decide(view, count, policy).ours]


def test_an_ordinary_job_evicts_the_job_that_has_run_for_the_shortest_time():
    view = View([build.waiting(9)], [running(1, 0, minutes=90), running(2, 1, minutes=20)])
    assert decide(view, 2).evictions == (evictions.Eviction(JobId(2), build.ids(1), "ann", JobId(9)),)


def test_an_evictable_job_evicts_nobody():
    assert evicted(View([build.waiting(9, evictable=YES)], [running(1, 0)]), 1) == []


def test_an_evictable_job_with_several_gpus_evicts_newer_ones_with_fewer():
    """It could not collect its GPUs otherwise: newer jobs would follow one another on each of them."""
    view = View([build.waiting(3, 2, evictable=YES)], [running(5, 0), running(6, 1)])
    assert sorted(evicted(view, 2)) == [5, 6]
    assert {each.waiter for each in decide(view, 2).evictions} == {3}
    assert sorted(evicted(view, 2, dataclasses.replace(POLICY, max_gpus=1))) == [5, 6], "a share does not count it"


def test_an_evictable_job_evicts_neither_older_nor_larger_ones_nor_those_of_others():
    queue = [build.waiting(3, 2, evictable=YES)]
    assert evicted(View(queue, [running(1, 0), running(2, 1)]), 2) == []
    assert evicted(View(queue, [running(5, 0, 1)]), 2) == []
    assert evicted(View(queue, [running(5, 0)], {build.ids(1)[0]: bobs()}), 2) == []
    assert evicted(View(queue, [running(5, 0), Active(JobId(6), build.ids(1))]), 2) == []


def test_an_evictable_job_evicts_nobody_for_whom_an_ordinary_job_would_start_instead():
    view = View([build.waiting(3, 2, evictable=YES), build.waiting(9, 1)], [running(5, 0), running(6, 1)])
    assert [each.waiter for each in decide(view, 2).evictions] == [9]


def test_nothing_is_evicted_while_a_device_is_free():
    assert evicted(View([build.waiting(9)], [running(1, 0)]), 2) == []


def test_nothing_is_evicted_if_the_waiting_job_could_not_start_anyway():
    """It needs two devices, and only one of them can be had."""
    assert evicted(View([build.waiting(9, 2)], [running(1, 0), Active(JobId(2), build.ids(1))]), 2) == []


def test_nothing_is_evicted_for_a_job_that_waits_for_memory():
    view = View([build.waiting(9, mem=10)], [running(1, 0), Active(JobId(2), mem=10)])
    assert evicted(view, 1, dataclasses.replace(POLICY, mem_total=10)) == []


def test_a_job_is_not_evicted_before_its_minimum_run_time():
    decision = decide(View([build.waiting(9)], [running(1, 0, minutes=4)]), 1)
    assert decision.evictions == ()
    assert decision.again_at == build.NOW + 6 * MINUTE


def test_no_more_is_evicted_than_needed():
    """Job 2 alone frees enough, so the shorter job 1 keeps its device."""
    view = View([build.waiting(9, 3)], [running(1, 0, minutes=15), running(2, 1, 2, 3, minutes=30)])
    assert evicted(view) == [2]


def test_a_large_job_keeps_its_devices_if_a_smaller_one_can_yield():
    """It would lose all of them for one, and would have to collect them again."""
    view = View([build.waiting(9)], [running(1, 0, 1, 2, minutes=15), running(2, 3, minutes=90)])
    assert evicted(view) == [2]
    assert evicted(dataclasses.replace(view, waiting=[build.waiting(9, 2)])) == [1], "the small one is not enough"


def test_free_devices_are_used_first():
    view = View([build.waiting(9, 3)], [running(1, 0), running(2, 1)], {build.ids(3)[0]: Occupant("bob")})
    assert evicted(view) == [1, 2]
    assert evicted(dataclasses.replace(view, active=[running(1, 0)])) == [1]


def test_a_job_that_is_being_evicted_serves_the_first_who_waits():
    leaving = running(1, 0, leaves_at=build.NOW + 1000)
    view = View([build.waiting(8), build.waiting(9)], [leaving, running(2, 1)])
    assert evicted(view, 2) == [2], "for the second one"
    assert evicted(dataclasses.replace(view, waiting=view.waiting[:1]), 2) == []


def test_another_yields_before_one_that_was_evicted_for_the_same_user():
    view = View([build.waiting(9)], [running(1, 0, minutes=20, evicted_by="ann"), running(2, 1, minutes=99)])
    assert evicted(view, 2) == [2]
    assert evicted(dataclasses.replace(view, active=view.active[:1]), 1) == [1], "nobody else could yield"


def test_jobs_are_served_in_order_and_each_evicts_its_own():
    view = View([build.waiting(8, 2), build.waiting(9)], [running(n, n, minutes=20 + n) for n in range(4)])
    found = decide(view).evictions
    assert [(each.id, each.waiter) for each in found] == [(0, 8), (1, 8), (2, 9)]


def test_nothing_is_evicted_beyond_our_own_share():
    view = View([build.waiting(9)], [Active(JobId(1), build.ids(0)), running(2, 1)])
    assert evicted(view, 2, dataclasses.replace(POLICY, max_gpus=1)) == []
    assert evicted(view, 2, dataclasses.replace(POLICY, max_gpus=2)) == [2]


def test_evictable_use_does_not_count_as_our_share():
    view = View([build.waiting(9)], [running(2, 1)])
    started = planner.plan(view, build.inventory(2), dataclasses.replace(POLICY, max_gpus=1), build.NOW).starts
    assert [start.devices for start in started] == [build.ids(0)]


def test_an_evictable_job_starts_beyond_the_share_of_its_user():
    view = View([build.waiting(9, evictable=YES)], [Active(JobId(1), build.ids(0))])
    policy = dataclasses.replace(POLICY, max_gpus=1, keep_free=1)
    assert [s.id for s in planner.plan(view, build.inventory(2), policy, build.NOW).starts] == [9]


def test_nothing_is_evicted_for_own_jobs_while_the_queue_is_paused():
    assert evicted(View([build.waiting(9)], [running(1, 0)], is_paused=True), 1) == []


def test_a_shared_device_is_free_when_all_who_share_it_are_evicted():
    sharing = [running(1, 0, mib=100), running(2, 0, mib=100, minutes=20)]
    assert sorted(evicted(View([build.waiting(9)], sharing), 1)) == [1, 2]
    stays = dataclasses.replace(sharing[0], is_evictable=False)
    assert evicted(View([build.waiting(9)], [stays, sharing[1]]), 1) == []


def test_a_sharing_job_evicts_only_as_much_memory_as_it_needs():
    sharing = [running(n, 0, mib=8000, minutes=20 + n) for n in range(3)]
    assert evicted(View([build.waiting(9, vram=6 * 2**30)], sharing), 1) == [0]


# -- other users ----------------------------------------------------------------------------------------------------


def ticket(count=1, *indices, user="bob", **more):
    return Collector(user, count, build.ids(*(indices or range(4))), **more)


def test_a_job_yields_to_the_ticket_of_another_user():
    view = View((), [running(1, 0), running(2, 1, minutes=20)], line=[ticket(1, 0, 1)], ahead=1)
    assert decide(view, 2).evictions == (evictions.Eviction(JobId(2), build.ids(1), "bob", None),)


def test_a_ticket_behind_ours_is_served_too():
    """Evictable jobs use what nobody else wants, regardless of whose turn it is."""
    assert evicted(View((), [running(1, 0)], line=[ticket(1, 0)], ahead=0), 1) == [1]


def test_nothing_yields_to_a_ticket_of_an_evictable_job():
    assert evicted(View((), [running(1, 0)], line=[ticket(1, 0, is_evictable=True)], ahead=1), 1) == []


def test_a_ticket_that_free_devices_can_serve_evicts_nobody():
    assert evicted(View((), [running(1, 0)], line=[ticket(1, 0, 1)], ahead=1), 2) == []


def test_a_ticket_that_cannot_be_filled_evicts_nobody():
    held = {build.ids(1)[0]: Occupant("eve")}
    assert evicted(View((), [running(1, 0)], held, line=[ticket(2, 0, 1)], ahead=1), 2) == []


def test_a_device_that_is_coming_free_serves_one_ticket_only():
    leaving = running(1, 0, leaves_at=build.NOW + 1000)
    line = [ticket(1), ticket(1, user="eve")]
    assert evicted(View((), [leaving, running(2, 1)], line=line[:1], ahead=1), 2) == []
    assert evicted(View((), [leaving, running(2, 1)], line=line, ahead=2), 2) == [2]


def test_the_daemons_of_two_users_choose_the_same_job():
    """Of two evictable jobs of two users, exactly one yields to a third user."""
    line = [ticket(1, 0, 1, user="eve")]
    anns = View((), [running(1, 0, minutes=30)], {build.ids(1)[0]: bobs(minutes=20)}, line, 1, user="ann")
    bob = View((), [running(5, 1, minutes=20)], {build.ids(0)[0]: bobs(user="ann", minutes=30)}, line, 1, user="bob")
    inventory = build.inventory(2)
    decisions = [evictions.decide(view, inventory, POLICY, build.NOW) for view in (anns, bob)]
    assert [each.id for each in decisions[0].evictions] == [None]
    assert [each.id for each in decisions[1].evictions] == [5]


def test_a_user_takes_from_the_own_evictable_jobs_first():
    held = {build.ids(1)[0]: bobs(minutes=15)}
    assert evicted(View([build.waiting(9)], [running(1, 0)], held), 2) == [1]
    line = [ticket(1, 0, 1, user="bob")]
    assert evicted(View((), [running(1, 0, minutes=12)], held, line, 1), 2) == [], "bob's own job yields to bob"


def test_a_job_evicted_too_often_becomes_an_ordinary_one():
    request = Request(evictable=YES)
    assert evictions.after(request, 2, 3) == request
    assert evictions.after(request, 3, 3).evictable == NO
    assert evictions.after(Request(evictable=AUTO), 1, 3) == request, "it has shown that it writes checkpoints"


def test_a_large_job_is_evicted_as_often_as_a_small_one():
    """It would soon be an ordinary job otherwise, and keep half of a machine from many short ones for days."""
    for gpus in (1, 4, 8):
        evicted_often = [evictions.after(Request(gpus, evictable=YES), count, 10).is_evictable for count in (9, 10)]
        assert evicted_often == [True, False]


# -- jobs that are overdue ------------------------------------------------------------------------------------------


def overdue(number, gpus=1, days=29, **more):
    """Return an evictable job that was submitted long ago."""
    job = build.waiting(number, gpus, evictable=YES, **more)
    return dataclasses.replace(job, since=build.NOW - days * 86400 * 1000)


def test_an_overdue_job_comes_before_newer_ordinary_ones():
    queue = [build.waiting(9), overdue(3)]
    assert starts(View(queue), 1) == [3]
    assert starts(View([build.waiting(9), overdue(3, days=27)]), 1) == [9]
    assert starts(View(queue), 1, dataclasses.replace(POLICY, evictable_wait_s=30 * 86400)) == [9]


def test_an_overdue_job_gets_a_reservation_that_ordinary_ones_respect():
    """The job with a GPU each would otherwise follow one another for ever."""
    busy = Active(JobId(1), build.ids(0), limit_s=600, started_at=build.NOW)
    assert starts(View([overdue(3, 2), build.waiting(9, limit_s=7200)], [busy])) == []
    assert starts(View([overdue(3, 2, days=1), build.waiting(9, limit_s=7200)], [busy])) == [9]


def test_an_overdue_job_evicts_others():
    assert evicted(View([overdue(3)], [running(7, 0)]), 1) == [7]


def test_an_overdue_job_beyond_the_share_of_its_user_stays_evictable():
    """As an ordinary one it could never start."""
    policy = dataclasses.replace(POLICY, max_gpus=1)
    assert starts(View([overdue(3, 2)]), 2, policy) == [3]
    assert starts(View([overdue(3, 1)], [Active(JobId(1), build.ids(0))]), 2, policy) == [], "its turn comes"


# -- the plan ---------------------------------------------------------------------------------------------------------


def starts(view, count=2, policy=POLICY):
    return [start.id for start in planner.plan(view, build.inventory(count), policy, build.NOW).starts]


def test_an_evictable_job_passes_an_older_larger_one_if_it_can_be_evicted_in_time():
    def passing(gpus, minutes):
        busy = Active(JobId(1), build.ids(0), limit_s=minutes * 60, started_at=build.NOW)
        return starts(View([build.waiting(3, gpus, evictable=YES), build.waiting(9, 1, evictable=YES)], [busy]))

    assert passing(2, 60) == [9]
    assert passing(2, 9) == [], "within the minimum run time it could not be evicted"


def test_evictable_jobs_come_after_all_others_whatever_their_priority():
    assert starts(View([build.waiting(1, priority=100, evictable=YES), build.waiting(2)]), 1) == [2]


def test_an_evictable_job_leaves_a_device_to_every_ticket_of_an_ordinary_job():
    view = View([build.waiting(1, evictable=YES)], line=[ticket(1, 0)], ahead=0)
    assert starts(view, 1) == []
    assert starts(dataclasses.replace(view, waiting=[build.waiting(1)]), 1) == [1], "an ordinary one is ahead"


def test_the_ticket_of_an_evictable_job_keeps_nothing_from_an_ordinary_one():
    view = View([build.waiting(1)], line=[ticket(1, 0, is_evictable=True)], ahead=1)
    assert starts(view, 1) == [1]
    assert starts(dataclasses.replace(view, waiting=[build.waiting(1, evictable=YES)]), 1) == []


def test_an_evictable_job_uses_reserved_devices_if_it_can_be_evicted_in_time():
    long, short = (Active(JobId(1), build.ids(0), limit_s=s, started_at=build.NOW) for s in (7200, 300))
    queue = [build.waiting(2, 2), build.waiting(3, evictable=YES)]
    assert starts(View(queue, [long])) == [3]
    assert starts(View(queue, [short])) == [], "it could not be evicted before the reserved time"


def test_a_reservation_counts_on_the_devices_of_evictable_jobs():
    for active in (running(1, 0), running(1, 0, leaves_at=build.NOW + 30_000)):
        plan = planner.plan(View([build.waiting(2)], [active]), build.inventory(1), POLICY, build.NOW)
        assert [kept.at for kept in plan.reserved] == [build.NOW + 30_000]


# -- random machines ----------------------------------------------------------------------------------------------


def world(dice):
    """Make a machine of up to six devices with ordinary and evictable jobs, other users, tickets and a queue."""
    count = dice.number(1, 6)
    active, held, left = [], {}, list(range(count))
    while left:
        taken = [left.pop() for _ in range(min(len(left), dice.number(1, 2)))]
        kind = dice.one("feeoh")
        if kind == "h":
            held |= dict.fromkeys(build.ids(*taken), bobs(minutes=dice.number(1, 30), pid=taken[0]))
        elif kind != "f":
            by = dice.one(("", "ann", "bob"))
            active.append(running(100 + len(active), *taken, minutes=dice.number(1, 30), evicted_by=by))
            if kind == "o":
                active[-1] = dataclasses.replace(active[-1], is_evictable=False)
    queue = [
        build.waiting(n, dice.number(0, 3), dice.number(-1, 1), evictable=dice.one((NO, YES)))
        for n in range(dice.number(0, 5))
    ]
    line = [
        Collector(dice.one(("bob", "eve")), dice.number(1, 2), build.ids(*range(count)), is_evictable=dice.one((0, 1)))
        for _ in range(dice.number(0, 3))
    ]
    line = [one for one in line if one.count <= count]
    return View(queue, active, held, line, dice.number(0, len(line)), user="ann"), build.inventory(count)


@given(build.drawn(world))
def test_every_eviction_obeys_the_rules(made):
    view, inventory = made
    decision = evictions.decide(view, inventory, POLICY, build.NOW)
    by_id = {job.id: job for job in view.active}
    for each in decision.ours:
        job = by_id[each.id]
        assert job.is_evictable
        assert job.devices == each.devices
        assert build.NOW - job.started_at >= 600_000
    assert len({each.devices for each in decision.evictions}) == len(decision.evictions)


@given(build.drawn(world))
def test_nobody_is_evicted_twice_for_one_user_while_another_would_do(made):
    """For one device and one job that waits, the rule needs no exception."""
    view, inventory = made
    view = dataclasses.replace(view, waiting=[build.waiting(9)], line=[], ahead=0)
    found = evictions.decide(view, inventory, POLICY, build.NOW).ours
    able = [job for job in view.active if job.is_evictable and build.NOW - job.started_at >= 600_000]
    again = {job.id for job in able if job.evicted_by == "ann"}
    assert not any(each.id in again for each in found) or len(again) == len(able)


@given(build.drawn(world))
def test_every_eviction_for_a_job_of_ours_lets_it_start_and_none_is_needless(made):
    view, inventory = made
    decision = evictions.decide(view, inventory, POLICY, build.NOW)
    waiters = {each.waiter for each in decision.evictions if each.waiter is not None}
    own = [each for each in decision.evictions if each.waiter is not None]

    def started(gone):
        given = {device for each in gone for device in each.devices}
        ids = {each.id for each in gone}
        rest = dataclasses.replace(
            view,
            active=[job for job in view.active if job.id not in ids],
            held={device: who for device, who in view.held.items() if device not in given},
        )
        return {start.id for start in planner.plan(rest, inventory, POLICY, build.NOW).starts}

    assert waiters <= started(own)
    for each in own:
        assert not waiters <= started([other for other in own if other is not each])


# -- idle leases of others, which are lent --------------------------------------------------------------------------

IDLE = {"held": {build.ids(0)[0]: Occupant("bob", 7)}, "lendable": frozenset(build.ids(0))}


def plan_of(view, count=1):
    return planner.plan(view, build.inventory(count), POLICY, build.NOW).starts


def test_an_idle_lease_is_lent_to_one_evictable_job_and_to_no_ordinary_one():
    assert plan_of(View([build.waiting(9)], **IDLE)) == ()
    both = View([build.waiting(8, evictable=YES), build.waiting(9, evictable=YES)], **IDLE)
    assert plan_of(both) == (planner.Start(JobId(8), build.ids(0), is_loan=True),)


def test_a_free_device_is_taken_before_one_is_lent():
    both = View([build.waiting(8, evictable=YES), build.waiting(9, evictable=YES)], **IDLE)
    assert [(each.devices, each.is_loan) for each in plan_of(both, 2)] == [(build.ids(1), False), (build.ids(0), True)]


def test_a_job_that_shares_borrows_nothing():
    assert plan_of(View([build.waiting(8, evictable=YES, vram=2**30)], **IDLE)) == ()


def test_ordinary_tickets_have_no_claim_on_an_idle_lease_and_evictable_ones_do():
    ahead = View([build.waiting(8, evictable=YES)], line=[ticket(1, 0)], ahead=1, **IDLE)
    assert [each.is_loan for each in plan_of(ahead)] == [True]
    rival = dataclasses.replace(ahead, line=[ticket(1, 0, is_evictable=True)])
    assert plan_of(rival) == ()


def test_a_borrower_is_not_evicted_for_a_job_that_waits():
    borrower = running(1, 0).apart()
    assert evicted(View([build.waiting(9)], [borrower], held=IDLE["held"]), 1) == []
    assert planner.used_by(borrower).cpus == 0
