"""How much of a device a job used, and how busy devices were: sums over readings."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.devices.usage import MOST_SAMPLES, Ledger, memory_of
from dibs.model.devices import Device, DeviceId, Inventory, Process
from dibs.model.jobs import JobId, State

A, B = DeviceId("GPU-a"), DeviceId("GPU-b")


def card(used=0, busy=0, processes=(), device_id=A):
    return Device(device_id, 0, "A100", 100, used, busy, processes=tuple(processes))


def running(job_id=1, *allocation, **more):
    return dataclasses.replace(build.job(JobId(job_id), **more), state=State.RUNNING, allocation=allocation, start=1)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=50))
def test_the_peak_is_the_maximum_and_the_mean_covers_all_readings(looks):
    ledger = Ledger()
    for at, (used, busy) in enumerate(looks):
        ledger.count(Inventory((card(used, busy),)), [running(1, A)], {}, at)
    use = ledger.uses[JobId(1), 1, A]
    assert (use.peak, use.looks) == (max(used for used, _ in looks), len(looks))
    assert use.mean == sum(busy for _, busy in looks) / len(looks)


def test_on_a_shared_card_only_the_jobs_own_processes_count():
    both = card(50, processes=[Process(5, "me", "x", 20), Process(6, "me", "y", 30)])
    first, second = running(1, A, vram=20), running(2, A, vram=30)
    job_of = {5: JobId(1), 6: JobId(2)}
    ledger = Ledger()
    ledger.count(Inventory((both,)), [first, second], job_of, 0)
    assert ledger.memory == {1: {A: 20}, 2: {A: 30}}
    assert memory_of(running(3, A, vram=9), both, job_of) is None
    # A job with exclusive use counts the whole card, whatever the driver says about processes.
    assert memory_of(running(3, A), both, {}) == 50


def test_values_a_card_does_not_report_are_not_counted():
    ledger = Ledger()
    ledger.count(Inventory((card(None, None),)), [running(1, A)], {}, 0)
    use = ledger.uses[JobId(1), 1, A]
    assert (use.peak, use.mean, use.looks) == (None, None, 1)


def test_the_usage_of_an_attempt_is_returned_once_after_it_ended():
    ledger = Ledger()
    job = running(1, A)
    ledger.count(Inventory((card(7),)), [job], {}, 0)
    assert ledger.ended([job]) == {}
    again = dataclasses.replace(job, attempt=2)
    assert list(ledger.ended([again])) == [(1, 1, A)]
    assert ledger.ended([]) == {}


def test_minutes_are_means_and_recent_readings_are_bounded():
    ledger = Ledger()
    for second in range(0, 4000, 5):
        ledger.count(Inventory((card(second // 60, 50),)), [], {}, second * 1000)
    assert len(ledger.recent[A]) == MOST_SAMPLES
    whole = ledger.whole_minutes(3999 * 1000)
    assert [minute for _, minute in whole] == list(range(66))
    assert [sample.memory for sample in whole.values()] == list(range(66))
    assert ledger.whole_minutes(3999 * 1000) == {}
    assert ledger.whole_minutes(4100 * 1000).keys() == {(A, 66)}
