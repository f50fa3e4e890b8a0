"""Run the policies on the same work and compare them.

Apart: It is the simulation's only way in; the verb prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dibs.scheduling.simulation import baselines, boxes, clusters, measures
from dibs.scheduling.simulation.clusters import Course, Factory
from dibs.scheduling.simulation.measures import Measures
from dibs.scheduling.simulation.workloads import Workload

DIBS, LOWER_BOUND = "dibs", "lower-bound"
#: The policy of dibs on the same jobs, none of which is evictable.
ORDINARY = "dibs, none evictable"
#: The policies by name, in the order of the table.
POLICIES: dict[str, Factory] = {
    DIBS: boxes.BoxScheduler,
    "fifo": baselines.fifo,
    "fifo+easy": baselines.fifo_easy,
    "greedy": baselines.greedy,
    "sjf": baselines.sjf,
}


def compare(workload: Workload) -> Iterator[tuple[str, Measures]]:
    """Yield the measures of each policy, each when it is known; the lower bound comes last."""
    for name, factory in POLICIES.items():
        yield name, measures.measure(clusters.simulate(workload, factory), workload)
        if name == DIBS and any(job.is_evictable for job in workload.jobs):
            plain = replace(workload, jobs=tuple(replace(job, is_evictable=False) for job in workload.jobs))
            yield ORDINARY, measures.measure(clusters.simulate(plain, factory), plain)
    yield LOWER_BOUND, _lower_bound(workload)


def _lower_bound(workload: Workload) -> Measures:
    """Return the measures of a machine on which nobody waits, with the mean completion that no policy can beat."""
    ideal = [Course(job, job.submit_s, job.submit_s + job.duration_s) for job in workload.jobs]
    bound_s = baselines.lower_bound_s(workload.jobs, workload.gpus)
    found = measures.measure(ideal, workload)
    found["mean_completion_s"] = bound_s
    found["mean_wait_s"] += bound_s - sum(job.duration_s for job in workload.jobs) / len(workload.jobs)
    # More than all GPUs may be busy at once there, and the last end says nothing.
    found["utilisation"] = min(1.0, found["utilisation"])
    return found
