"""What a simulation shows: completion and wait, slowdown, use, and fairness between tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from dibs.scheduling.simulation.clusters import Course
from dibs.scheduling.simulation.workloads import Workload

#: Jobs with at least this many GPUs are big.
BIG = 4
#: Run times below this count as this in a slowdown, or the shortest jobs would decide it.
SHORTEST_S = 60.0


class Measures(TypedDict):
    """The result of one policy."""

    mean_completion_s: float
    median_completion_s: float
    p99_completion_s: float
    mean_wait_s: float
    median_wait_s: float
    p99_wait_s: float
    max_wait_s: float
    mean_wait_big_s: float
    p99_wait_big_s: float
    max_wait_big_s: float
    slowdown: float
    utilisation: float
    makespan_s: float
    fairness: float
    evictions: int
    most_evictions: int
    jobs: int
    jobs_big: int


def measure(courses: Sequence[Course], workload: Workload) -> Measures:
    """Return the measures of all jobs of a simulation."""
    done = sorted(course.completion_s for course in courses)
    waits = sorted(course.wait_s for course in courses)
    big = sorted(course.wait_s for course in courses if course.job.gpus >= BIG)
    first_s, last_s = courses[0].job.submit_s, max(course.end_s for course in courses)
    work_s = sum(course.job.duration_s * course.job.gpus for course in courses)
    return Measures(
        mean_completion_s=_mean(done),
        median_completion_s=_quantile(done, 0.5),
        p99_completion_s=_quantile(done, 0.99),
        mean_wait_s=_mean(waits),
        median_wait_s=_quantile(waits, 0.5),
        p99_wait_s=_quantile(waits, 0.99),
        max_wait_s=waits[-1],
        mean_wait_big_s=_mean(big),
        p99_wait_big_s=_quantile(big, 0.99),
        max_wait_big_s=big[-1] if big else 0.0,
        slowdown=_mean([_slowdown(course) for course in courses]),
        utilisation=work_s / (workload.gpus * max(last_s - first_s, 1.0)),
        makespan_s=last_s - first_s,
        fairness=_fairness(courses),
        evictions=sum(course.evictions for course in courses),
        most_evictions=max(course.evictions for course in courses),
        jobs=len(courses),
        jobs_big=len(big),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def _slowdown(course: Course) -> float:
    return max(1.0, course.completion_s / max(course.job.duration_s, SHORTEST_S))


def _fairness(courses: Sequence[Course]) -> float:
    """Return Jain's index of the tenants' mean speed, which is 1 without waiting: 1 if all tenants fare alike."""
    speeds: dict[str, list[float]] = {}
    for course in courses:
        speeds.setdefault(course.job.tenant, []).append(1 / _slowdown(course))
    means = [_mean(values) for values in speeds.values()]
    return sum(means) ** 2 / (len(means) * sum(mean**2 for mean in means))
