"""What a reading of the GPUs means: foreign use, strays, settling, health. Values in, values out."""

import dataclasses

import pytest

import build
from dibs.devices import assessment, foreign, health
from dibs.devices.assessment import RECLAIMED, Assessment, Finding, Reading, assess
from dibs.devices.foreign import Limits
from dibs.devices.idle_leases import LeaseHolder
from dibs.model import devices
from dibs.model.devices import Device, DeviceId, Inventory, Process
from dibs.model.jobs import YES, JobId, State

GIB = 2**30
LIMITS = Limits()
A, B = DeviceId("GPU-a"), DeviceId("GPU-b")


def card(device_id=A, index=0, used=0, processes=(), **more):
    return Device(device_id, index, "A100", 24 * GIB, used, processes=tuple(processes), **more)


def process(pid=7, user="bob", memory=3 * GIB):
    return Process(pid, user, "python", memory)


def reading(*cards, at=0.0, users=None, jobs=(), job_of=None, problem=None):
    raw = Inventory(cards, problem=problem)
    return Reading(raw, at, users or {}, jobs, job_of or {}, "alice")


def running(job_id=1, *allocation, **more):
    return dataclasses.replace(build.job(JobId(job_id), **more), state=State.RUNNING, allocation=allocation, start=1)


# --- foreign use ---


def test_on_a_shared_gpu_a_process_outside_every_share_is_foreign():
    both = card(used=5 * GIB, processes=[process(7), process(8, memory=2 * GIB)])
    seen, found = assess(Assessment(), dataclasses.replace(reading(both, users={A: ["bob"]}), outside={A: {8}}), LIMITS)
    (device,) = seen.inventory.devices
    assert (device.foreign, device.foreign_memory) == ("used without a lease by bob's python (pid 8, 2G)", 2 * GIB)
    assert found == []


def test_a_job_that_shares_a_gpu_gets_an_event_about_other_processes_of_its_owner():
    job = running(1, A, vram=4 * GIB)
    beside = reading(card(processes=[process(8, "alice")]), users={A: ["alice"]}, jobs=[job])
    _, found = assess(Assessment(), dataclasses.replace(beside, outside={A: {8}}), LIMITS)
    assert [(each.kind, each.job) for each in found] == [("Foreign", 1)]


@pytest.mark.parametrize(
    ("processes", "used", "users", "foreign_memory", "is_used"),
    [
        ([], 0, [], 0, False),
        ([], GIB, [], 0, False),
        ([], GIB + 1, [], GIB + 1, True),
        ([process()], 3 * GIB, [], 3 * GIB, True),
        ([process(memory=None)], 0, [], 0, True),
        ([process(memory=5)], 5, [], 0, False),
        # A process that we cannot see is known by its memory.
        ([process(user=None)], 3 * GIB, [], 3 * GIB, True),
        ([process(user=None, memory=5)], 5, [], 0, False),
        # A holder of a lease may use the device with any process.
        ([process()], 3 * GIB, ["bob"], 0, False),
        ([process(), process(8, "carol", 2 * GIB)], 5 * GIB, ["bob"], 2 * GIB, True),
        ([process(user=None)], 3 * GIB, ["bob"], 0, False),
        # The holder cannot be seen: the process may be theirs.
        ([process()], 3 * GIB, [None], 0, False),
        ([], 20 * GIB, ["bob"], 0, False),
    ],
)
def test_a_gpu_used_without_a_lease_is_not_usable(processes, used, users, foreign_memory, is_used):
    found = foreign.with_foreign_use(card(used=used, processes=processes), users, LIMITS)
    assert (found.foreign_memory, found.foreign is not None) == (foreign_memory, is_used)
    assert (found.obstacle is not None) is is_used


def test_foreign_use_is_reported_with_pid_user_and_memory():
    found = foreign.with_foreign_use(card(used=3 * GIB, processes=[process()]), (), LIMITS)
    assert found.foreign == "used without a lease by bob's python (pid 7, 3G)"
    many = foreign.with_foreign_use(card(processes=[process(n) for n in range(5)]), (), LIMITS)
    assert many.foreign.endswith("and 2 more")
    hidden = foreign.with_foreign_use(card(used=3 * GIB), (), LIMITS)
    assert hidden.foreign == "3G of its memory are used without a lease, by a process that is not visible here"


@pytest.mark.parametrize(
    ("words", "ignored"), [(("0",), True), (("gpu-A",), True), (("1", "GPU-b"), False), ((), False), (("",), False)]
)
def test_foreign_use_is_ignored_on_the_gpus_of_the_setting(words, ignored):
    found = foreign.with_foreign_use(card(used=3 * GIB, processes=[process()]), (), Limits(ignored=words))
    assert (found.foreign is None) is ignored
    # The memory that is left for others is smaller all the same.
    assert found.foreign_memory == 3 * GIB


def test_foreign_use_of_a_leased_gpu_is_one_event_and_marks_the_gpu_while_it_lasts():
    job = running(1, A)
    alone = reading(card(), users={A: ["alice"]}, jobs=[job])
    joined = reading(card(processes=[process()]), users={A: ["alice"]}, jobs=[job])
    seen, findings = assess(Assessment(), alone, LIMITS)
    assert (findings, seen.marks) == ([], {})
    seen, findings = assess(seen, joined, LIMITS)
    assert [(f.kind, f.job) for f in findings] == [("Foreign", 1)]
    assert seen.marks == {1: ("GPU 0 is used without a lease by bob's python (pid 7, 3G)",)}
    seen, findings = assess(seen, joined, LIMITS)
    assert (findings, len(seen.marks)) == ([], 1)
    seen, findings = assess(seen, alone, LIMITS)
    assert (findings, seen.marks) == ([], {})
    # A process that comes and goes does not fill the list of events.
    assert assess(seen, joined, LIMITS)[1] == []


# --- strays ---


def test_a_job_on_a_gpu_outside_its_allocation_is_a_stray():
    job = running(4, A)
    seen, findings = assess(
        Assessment(),
        reading(
            card(A, 0, processes=[process(50, "alice")]),
            card(B, 1, processes=[process(50, "alice")]),
            users={A: ["alice"]},
            jobs=[job],
            job_of={50: JobId(4)},
        ),
        LIMITS,
    )
    assert [(f.kind, f.job, f.device) for f in findings] == [("Stray", 4, B)]
    assert seen.marks[4] == ("uses GPU 1, which was not assigned to it (pid 50)",)
    assert seen.inventory.by_id[A].foreign is None
    # Nobody leases that GPU: others are kept away from it.
    assert "alice's python" in seen.inventory.by_id[B].foreign


def test_a_stray_on_the_gpu_of_another_of_our_jobs_is_found_too():
    jobs = [running(4, A), running(5, B)]
    cards = card(A, 0), card(B, 1, processes=[process(50, "alice"), process(51, "alice")])
    users = {A: ["alice"], B: ["alice"]}
    job_of = {50: JobId(4), 51: JobId(5)}
    _, findings = assess(Assessment(), reading(*cards, users=users, jobs=jobs, job_of=job_of), LIMITS)
    assert [(f.kind, f.job) for f in findings] == [("Stray", 4)]


@pytest.mark.parametrize(
    ("memory", "is_too_much"), [(6 * GIB, False), (int(6.6 * GIB), False), (7 * GIB, True), (None, False)]
)
def test_a_job_that_uses_ten_percent_more_than_declared_gets_one_event(memory, is_too_much):
    job = running(4, A, vram=6 * GIB)
    cards = card(A, 0, used=9 * GIB, processes=[process(50, "alice", memory), process(51, "alice", 3 * GIB)])
    seen, findings = assess(
        Assessment(), reading(cards, users={A: ["alice"]}, jobs=[job], job_of={50: JobId(4)}), LIMITS
    )
    assert [(f.kind, f.text) for f in findings] == (
        [("Exceeds", "uses 7G of GPU 0, but declared 6G")] if is_too_much else []
    )
    _, again = assess(seen, reading(cards, users={A: ["alice"]}, jobs=[job], job_of={50: JobId(4)}), LIMITS)
    assert again == []


# --- settling ---


def test_a_gpu_is_free_when_its_memory_was_released():
    job = running(1, A)
    seen, _ = assess(Assessment(), reading(card(used=9 * GIB), users={A: ["alice"]}, jobs=[job]), LIMITS)
    assert seen.unsettled == {A}
    seen, _ = assess(seen, reading(card(used=9 * GIB), at=1.0), LIMITS)
    (device,) = seen.inventory.devices
    assert device.obstacle == device.settling == "9G of memory of its last job is not freed yet"
    # Not foreign, and nobody gets the hint to ignore it.
    assert device.obstacle_to(ignores_foreign=True) == device.settling
    seen, findings = assess(seen, reading(card(used=GIB), at=2.0), LIMITS)
    assert (seen.inventory.devices[0].obstacle, seen.unsettled, findings) == (None, frozenset(), [])


@pytest.mark.parametrize(("after_s", "is_out"), [(0.0, False), (59.9, False), (60.0, True), (600.0, True)])
def test_memory_that_is_not_released_within_a_minute_marks_the_gpu_as_faulty(after_s, is_out):
    seen, _ = assess(Assessment(), reading(card(used=9 * GIB), users={A: ["bob"]}), LIMITS)
    seen, _ = assess(seen, reading(card(used=9 * GIB), at=100.0), LIMITS)
    seen, findings = assess(seen, reading(card(used=9 * GIB), at=100.0 + after_s), LIMITS)
    assert [f.kind for f in findings] == (["Unwell"] if is_out else [])
    assert (seen.inventory.devices[0].fault is not None) is is_out
    if is_out:
        assert "9G of its memory were not freed within 60 s" in seen.inventory.devices[0].fault
        # It stays faulty, even if the memory is released later, until a user accepts it.
        seen, findings = assess(seen, reading(card(), at=999.0), LIMITS)
        assert (seen.inventory.devices[0].fault is not None, findings) == (True, [])
        seen, _ = assess(assessment.accept(seen, A), reading(card(), at=1000.0), LIMITS)
        assert seen.inventory.devices[0].obstacle is None


def test_a_gpu_used_by_another_user_after_our_job_is_foreign_and_not_faulty():
    seen, _ = assess(Assessment(), reading(card(), users={A: ["alice"]}), LIMITS)
    seen, _ = assess(seen, reading(card(used=3 * GIB, processes=[process()]), at=1.0), LIMITS)
    (device,) = seen.inventory.devices
    assert (device.settling, device.fault, device.foreign is not None) == (None, None, True)


def test_a_new_lease_restarts_the_minute_for_settling():
    seen, _ = assess(Assessment(), reading(card(used=9 * GIB), users={A: ["bob"]}), LIMITS)
    seen, _ = assess(seen, reading(card(used=9 * GIB), at=1.0), LIMITS)
    seen, _ = assess(seen, reading(card(used=9 * GIB), at=30.0, users={A: ["bob"]}), LIMITS)
    seen, findings = assess(seen, reading(card(used=9 * GIB), at=70.0), LIMITS)
    assert findings == []


def test_a_gpu_that_does_not_report_memory_is_free_at_once():
    seen, _ = assess(Assessment(), reading(card(used=None), users={A: ["bob"]}), LIMITS)
    seen, _ = assess(seen, reading(card(used=None), at=1.0), LIMITS)
    assert (seen.unsettled, seen.inventory.devices[0].obstacle) == (frozenset(), None)


# --- health ---


@pytest.mark.parametrize("xid", range(1, 150))
def test_xids_caused_by_programs_are_no_fault_and_all_others_are(xid):
    seen, _ = assess(Assessment(), reading(card(A, 0), card(B, 1), jobs=[running(1, A)]), LIMITS)
    seen, findings = assessment.assess_xid(seen, A, xid)
    is_fault = xid not in {13, 31, 43, 45, 68, 109}
    assert [(f.kind, f.device) for f in findings] == ([("Unwell", A)] if is_fault else [])
    assert (seen.inventory.by_id[A].obstacle is not None) is is_fault
    assert seen.inventory.by_id[B].obstacle is None
    seen, findings = assess(seen, reading(card(A, 0), card(B, 1), jobs=[running(1, A)]), LIMITS)
    assert (seen.inventory.by_id[A].obstacle is not None) is is_fault
    assert [(f.kind, f.job) for f in findings] == ([("Unwell", 1)] if is_fault else [])
    seen, _ = assess(assessment.accept(seen, A), reading(card(A, 0), card(B, 1)), LIMITS)
    assert seen.inventory.by_id[A].obstacle is None


def test_an_xid_of_a_card_marks_all_its_slices_and_one_of_an_unknown_card_nothing():
    slices = card(DeviceId("MIG-1"), 0, parent="GPU-p"), card(DeviceId("MIG-2"), 1, parent="GPU-p"), card(B, 2)
    seen, _ = assess(Assessment(), reading(*slices), LIMITS)
    seen, findings = assessment.assess_xid(seen, "GPU-p", 79)
    assert [f.device for f in findings] == ["MIG-1", "MIG-2"]
    assert seen.inventory.usable() == (B,)
    assert assessment.assess_xid(seen, "GPU-nobody", 79) == (seen, [])


@pytest.mark.parametrize("trouble", [{"ecc_errors": 3}, {"worry": "a row is to be replaced"}])
def test_an_accepted_fault_is_ignored_until_it_gets_worse(trouble):
    seen, _ = assess(Assessment(), reading(card(**trouble)), LIMITS)
    assert seen.inventory.devices[0].fault == health.concern(card(**trouble))
    seen, _ = assess(assessment.accept(seen, A), reading(card(**trouble)), LIMITS)
    assert seen.inventory.devices[0].fault is None
    worse = {"ecc_errors": 4} if "ecc_errors" in trouble else {"worry": "a row could not be replaced"}
    seen, _ = assess(seen, reading(card(**worse)), LIMITS)
    assert seen.inventory.devices[0].fault is not None


def test_a_lost_card_that_returns_is_usable_again():
    seen, findings = assess(Assessment(), reading(card(fault="lost"), card(B, 1), jobs=[running(1, A)]), LIMITS)
    assert (seen.inventory.usable(), [f.kind for f in findings]) == ((B,), ["Unwell"])
    seen, _ = assess(seen, reading(card(), card(B, 1)), LIMITS)
    assert seen.inventory.by_id[A].fault is None


def test_while_the_driver_does_not_answer_nothing_changes():
    seen, _ = assess(Assessment(), reading(card(used=9 * GIB), users={A: ["alice"]}, jobs=[running(1, A)]), LIMITS)
    silent, findings = assess(seen, reading(problem="the driver is silent", at=1e6), LIMITS)
    assert (findings, silent.unsettled, silent.inventory.problem) == ([], {A}, "the driver is silent")
    assert (silent.inventory.ids, silent.inventory.usable()) == ((A,), ())


def test_the_state_of_a_removed_card_is_dropped_and_it_returns_without_fault():
    seen, _ = assess(Assessment(), reading(card(), card(B, 1), users={B: ["bob"]}), LIMITS)
    seen, _ = assess(seen, reading(card()), LIMITS)
    assert (seen.inventory.ids, seen.unsettled) == ((A,), frozenset())


def test_pretend_gpus_are_healthy():
    seen, findings = assess(Assessment(), reading(*devices.pretend(4, GIB)), LIMITS)
    assert (len(seen.inventory.usable()), findings) == (4, [])


# --- loans ---

ANN, EVE = LeaseHolder(1001, 70, "lease"), LeaseHolder(1003, 90, "lease")


def lent(*, holders=(ANN,), beside=()):
    """Return a reading of a card that is lent to our job 1."""
    return Reading(
        Inventory((card(),)),
        0.0,
        {A: ["ann", "alice"]},
        [running(1, A, evictable=YES)],
        {},
        "alice",
        holders={A: holders} if holders else {},
        loans={A: beside},
    )


def test_a_lent_gpu_marks_the_job_that_borrows_it():
    after, findings = assess(Assessment(), lent(), LIMITS)
    assert after.marks == {1: ("GPU 0 is an idle lease of ann, lent to it",)}
    assert findings == []


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (lent(holders=()), "GPU 0 was lent from an idle lease, which has ended"),
        (lent(beside=(8, 9)), "GPU 0, lent from an idle lease, is used by its holder again (pid 8, 9)"),
        (lent(holders=(EVE,)), "GPU 0, lent from an idle lease, has a new holder"),
    ],
)
def test_a_lent_gpu_is_reclaimed_at_every_reading_until_the_job_has_left(now, text):
    before, _ = assess(Assessment(), lent(), LIMITS)
    wanted = [Finding(RECLAIMED, text, JobId(1), A, 1001)]
    after, findings = assess(before, now, LIMITS)
    assert findings == wanted
    if now.loans[A]:
        assert assess(after, now, LIMITS)[1] == wanted


def test_an_ordinary_job_whose_gpu_is_lent_to_others_is_left_alone():
    mine = dataclasses.replace(lent(beside=(8,)), jobs=[running(1, A)])
    assert assess(Assessment(), mine, LIMITS)[1] == []
