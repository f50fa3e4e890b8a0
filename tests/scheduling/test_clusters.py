"""Simulated time on boxes: every policy on small cases that can be worked out by hand, and facts that hold for all."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from xml.etree import ElementTree

import pytest

from dibs.scheduling.simulation import baselines, boxes, charts, clusters, comparisons, measures, workloads
from dibs.scheduling.simulation.clusters import LOAD_S, SAVE_S, Course, Decision, Factory, Placement
from dibs.scheduling.simulation.traces import TraceJob
from dibs.scheduling.simulation.workloads import Workload

HOUR = 3600.0


def work(*jobs: tuple[float, float, int] | TraceJob, count: int = 1, size: int = 2) -> Workload:
    """Return jobs (submitted, duration in hours, GPUs) on boxes."""
    made = [
        job if isinstance(job, TraceJob) else TraceJob(n, job[0] * HOUR, job[1] * HOUR, job[2])
        for n, job in enumerate(jobs, 1)
    ]
    return Workload(tuple(made), count, size)


def ends(workload: Workload, policy: Factory) -> list[float]:
    """Return when each job ended, in hours."""
    return [course.end_s / HOUR for course in clusters.simulate(workload, policy)]


#: One runs for 4 h on one of two GPUs; a job for both waits, then come a long one and a short one with one GPU.
QUEUE = [(0, 4, 1), (1, 2, 2), (1, 8, 1), (1, 2, 1)]


def limited(jobs: Sequence[tuple[float, float, int]]) -> list[TraceJob]:
    return [TraceJob(n, job[0] * HOUR, job[1] * HOUR, job[2], limit_s=job[1] * HOUR) for n, job in enumerate(jobs, 1)]


@pytest.mark.parametrize(
    ("policy", "ended"),
    [
        (baselines.fifo, [4, 6, 14, 8]),
        (baselines.greedy, [4, 11, 9, 6]),
        (baselines.fifo_easy, [4, 6, 14, 3]),
        (baselines.sjf, [4, 13, 11, 3]),
        (boxes.BoxScheduler, [4, 6, 14, 3]),
    ],
)
def test_policies_on_a_queue_with_limits(policy: Factory, ended: list[float]) -> None:
    assert ends(work(*limited(QUEUE)), policy) == ended


def test_without_limits_and_history_nobody_passes() -> None:
    assert ends(work(*QUEUE), boxes.BoxScheduler) == ends(work(*QUEUE), baselines.fifo)


def test_short_jobs_pass_as_soon_as_jobs_like_them_are_known() -> None:
    """Three jobs of bob took a minute: his next ones pass a job for both GPUs, which waits for a long one."""
    short = [TraceJob(n, n * 10.0, 60, 1, "bob") for n in range(1, 4)]
    long = [TraceJob(n, 200 + n, 6 * HOUR, 1, "ada") for n in range(4, 7)]
    old = [TraceJob(n, 100 * HOUR + n, 6 * HOUR, 1, "ada") for n in (7,)]
    big = TraceJob(8, 101 * HOUR, HOUR, 2, "ada")
    new = TraceJob(9, 102 * HOUR, 60, 1, "bob")
    courses = clusters.simulate(Workload((*short, *long, *old, big, new), 1, 2), boxes.BoxScheduler)
    assert courses[-1].wait_s == 0
    assert courses[-2].first_start_s == pytest.approx(106 * HOUR, abs=10)


def test_a_job_larger_than_a_box_takes_whole_boxes() -> None:
    for policy in comparisons.POLICIES.values():
        assert ends(work((0, 1, 1), (0, 2, 3), count=2), policy) == [1, 3]
    assert ends(work((0, 2, 1), (0, 1, 3), (0, 1, 1), count=3), boxes.BoxScheduler) == [2, 1, 1]


def test_a_job_larger_than_a_box_starts_as_soon_as_any_boxes_are_empty() -> None:
    """By its limit the job on the third box would have run for 9 h; it ends before that on the first."""
    jobs = [
        TraceJob(1, 0, 4 * HOUR, 2, limit_s=4 * HOUR),
        TraceJob(2, 0, 2 * HOUR, 2, limit_s=2 * HOUR),
        TraceJob(3, 0, 1 * HOUR, 2, limit_s=9 * HOUR),
        TraceJob(4, HOUR / 2, 1 * HOUR, 4, limit_s=1 * HOUR),
    ]
    assert ends(work(*jobs, count=3), boxes.BoxScheduler) == [4, 2, 1, 3]


def test_boxes_for_which_an_evictable_job_waits_are_not_kept_from_ordinary_ones() -> None:
    jobs = [
        TraceJob(1, 0, 2 * HOUR, 2),
        TraceJob(2, 0, 2 * HOUR, 2),
        TraceJob(3, HOUR / 2, 5 * HOUR, 4, is_evictable=True),
        TraceJob(4, HOUR, 1 * HOUR, 4),
    ]
    assert ends(work(*jobs, count=2), boxes.BoxScheduler) == [2, 2, 8, 3]


def test_a_job_takes_the_fullest_box_that_fits() -> None:
    queue = work((0, 9, 1), (1, 9, 1), (2, 9, 2), count=2)
    for policy in comparisons.POLICIES.values():
        assert ends(queue, policy) == [9, 10, 11]


def test_an_evictable_job_yields_saves_and_comes_back() -> None:
    """It has run for an hour when an ordinary job comes, saves, waits for it, loads, and runs for the rest."""
    jobs = [TraceJob(1, 0, 10 * HOUR, 2, is_evictable=True), TraceJob(2, HOUR, 2 * HOUR, 2)]
    first, second = clusters.simulate(Workload(tuple(jobs), 1, 2), boxes.BoxScheduler)
    assert (first.evictions, second.evictions) == (1, 0)
    assert second.end_s == HOUR + SAVE_S + 2 * HOUR
    assert first.end_s == second.end_s + LOAD_S + 9 * HOUR
    assert first.wait_s == SAVE_S + 2 * HOUR + LOAD_S


def test_a_job_is_not_evicted_before_its_minimum_run_time() -> None:
    jobs = [TraceJob(1, 0, 10 * HOUR, 2, is_evictable=True), TraceJob(2, 1, HOUR, 2)]
    _, second = clusters.simulate(Workload(tuple(jobs), 1, 2), boxes.BoxScheduler)
    assert second.first_start_s == boxes.POLICY.evict_min_run_s + SAVE_S


def test_a_large_evictable_job_does_not_wait_for_ever() -> None:
    """There is always a one-GPU job that wants a GPU of the box."""
    large = [TraceJob(n, n, 20 * HOUR, 2, is_evictable=True, limit_s=24 * HOUR) for n in (1, 2)]
    stream = [TraceJob(3 + n, (1 + n) * HOUR, 1.5 * HOUR, 1, limit_s=2 * HOUR) for n in range(40 * 24)]
    courses = clusters.simulate(Workload((*large, *stream), 1, 2), boxes.BoxScheduler)
    day_s = 24 * HOUR
    assert all(course.wait_s < boxes.POLICY.evictable_wait_s + 2 * day_s for course in courses[:2])
    assert all(course.wait_s < 2 * day_s for course in courses[2:])


def random_work(seed: int, count: int, evictable: float) -> Workload:
    """Return a loaded cluster with jobs of all sizes."""
    dice = Random(seed)
    at, jobs = 0.0, []
    for number in range(1, 401):
        at += dice.expovariate(1 / 600)
        gpus = dice.choice((1, 1, 1, 2, 4, 8, 16 if count > 1 else 8))
        jobs.append(TraceJob(number, at, dice.lognormvariate(8, 1.5), gpus, dice.choice("abc")))
    return workloads.make(jobs, count, 8, load=0.9, seed=seed, has_limits=dice.random() < 0.5, evictable=evictable)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("evictable", [0.0, 0.6])
def test_every_job_runs_once_and_no_policy_beats_the_lower_bound(seed: int, evictable: float) -> None:
    """No box is over-filled and no job left: `clusters.simulate` raises otherwise."""
    workload = random_work(seed, (1, 3)[seed % 2], evictable)
    results = dict(comparisons.compare(workload))
    bound_s = results.pop(comparisons.LOWER_BOUND)["mean_completion_s"]
    assert all(found["mean_completion_s"] >= bound_s * (1 - 1e-9) for found in results.values())
    assert all(found["jobs"] == len(workload.jobs) for found in results.values())
    assert results[comparisons.DIBS]["most_evictions"] <= boxes.MOST_EVICTIONS


@pytest.mark.parametrize("seed", range(3))
def test_a_simulation_repeats(seed: int) -> None:
    workload = random_work(seed, 2, 0.6)
    first, second = (clusters.simulate(workload, boxes.BoxScheduler) for _ in range(2))
    assert first == second


def test_a_policy_that_overfills_a_box_is_caught() -> None:
    class Careless(baselines.ListScheduler):
        def decide(self, now: float) -> Decision:
            return Decision((Placement(1, ((0, 1),)), Placement(2, ((0, 2),)))) if now == 0 else Decision()

    with pytest.raises(AssertionError, match="over-filled"):
        clusters.simulate(work((0, 1, 1), (0, 1, 2)), lambda count, size: Careless(count, size, baselines.Rule.ALL))


def test_measures_of_two_tenants() -> None:
    jobs = [TraceJob(1, 0, 100, 4, "a"), TraceJob(2, 0, 100, 1, "b")]
    courses = [Course(jobs[0], 0, 100), Course(jobs[1], 100, 200)]
    found = measures.measure(courses, Workload(tuple(jobs), 1, 4))
    assert (found["mean_completion_s"], found["mean_wait_s"], found["p99_wait_big_s"]) == (150, 50, 0)
    assert (found["slowdown"], found["utilisation"], found["makespan_s"]) == (1.5, 0.625, 200)
    assert found["fairness"] == pytest.approx(0.9)


def test_the_picture_is_well_formed_and_names_all_policies() -> None:
    picture = charts.draw(dict(comparisons.compare(work(*QUEUE))), "1 × 2 <GPUs>")
    texts = [each.text for each in ElementTree.fromstring(picture).iter() if each.text]
    assert "1 × 2 <GPUs>" in texts
    assert set(comparisons.POLICIES) <= set(texts)
