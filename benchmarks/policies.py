"""The targets of the scheduling policy: ratios to other policies, over tenants of a trace, box counts, loads and seeds.

Each tenant is a cluster of its own, with one box (jobs are left out at random) and with as many boxes as it needs. The
parameters were chosen on some tenants of the Philly trace; `held out` shows the others.
"""

from __future__ import annotations

import argparse
import gzip
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dibs.scheduling.simulation import baselines, boxes, charts, clusters, comparisons, measures, traces, workloads
from dibs.scheduling.simulation.clusters import Factory
from dibs.scheduling.simulation.measures import Measures
from dibs.scheduling.simulation.traces import TraceJob
from dibs.scheduling.simulation.workloads import Workload

SIZE = 8
LOADS = (0.5, 0.7, 0.9)
SEEDS = (1, 2, 3, 4, 5)
#: The tenants on which parameters were chosen.
CHOSEN_ON = ("0e4a51", "11cb48", "6c71a0")
#: Tenants with fewer jobs are left out.
LEAST_JOBS = 1000
#: Jobs that a case has at most, about: a part of the trace in the middle is taken.
MOST_JOBS = 2000


@dataclass(frozen=True)
class Case:
    """One simulated cluster."""

    tenant: str
    boxes: int
    load: float
    seed: int


@dataclass(frozen=True)
class Mode:
    """What jobs say about themselves."""

    name: str
    has_limits: bool
    evictable: float = 0.0


MODES = (
    Mode("no limits", False),
    Mode("limits", True),
    Mode("no limits, 60 % evictable", False, 0.6),
    Mode("limits, 60 % evictable", True, 0.6),
)
MODE = {mode.name: mode for mode in MODES}
#: The policies that dibs is compared with. Jobs that may be evicted are ordinary ones to them.
OTHERS: dict[str, Factory] = {
    "fifo": baselines.fifo,
    "fifo+easy": baselines.fifo_easy,
    "greedy": baselines.greedy,
}
Results = dict[str, Measures]


@dataclass(frozen=True)
class Target:
    """A ratio of dibs to another policy, and what it should be at most."""

    mode: str
    key: str
    other: str
    most: float


TARGETS = (
    Target("no limits", "mean_completion_s", "greedy", 1.05),
    Target("no limits", "mean_completion_s", "fifo", 0.6),
    Target("no limits", "mean_completion_s", "fifo+easy", 1.0),
    Target("no limits", "p99_wait_big_s", "fifo+easy", 1.3),
    Target("limits", "mean_completion_s", "fifo+easy", 1.0),
    Target("limits", "p99_wait_big_s", "fifo+easy", 1.3),
    Target("no limits, 60 % evictable", "mean_completion_s", "fifo+easy", 1 / 1.7),
    Target("no limits, 60 % evictable", "p99_wait_big_s", "fifo+easy", 1.2),
    Target("limits, 60 % evictable", "mean_completion_s", "fifo+easy", 1 / 1.7),
    Target("limits, 60 % evictable", "p99_wait_big_s", "fifo+easy", 1.2),
)


def cases(jobs: Sequence[TraceJob], loads: Sequence[float], seeds: Sequence[int]) -> Iterator[Case]:
    """Yield one box and several boxes for each tenant, load and seed."""
    tenants = sorted({job.tenant for job in jobs})
    for tenant in tenants:
        own = [job for job in jobs if job.tenant == tenant]
        if len(own) < LEAST_JOBS or all(job.gpus < measures.BIG for job in own):
            continue
        many = max(2, math.ceil(workloads.offered_gpus(own) / SIZE))
        for load in loads:
            for seed in seeds:
                yield Case(tenant, 1, load, seed)
                yield Case(tenant, many, load, seed)


def halved(jobs: Sequence[TraceJob], half: str) -> list[TraceJob]:
    """Return the jobs of each tenant that came in the first or the second half of its submissions."""
    kept: list[TraceJob] = []
    for tenant in {job.tenant for job in jobs}:
        own = [job for job in jobs if job.tenant == tenant]
        middle = len(own) // 2
        kept += own[:middle] if half == "first" else own[middle:]
    return sorted(kept, key=lambda job: job.id)


def part(jobs: Sequence[TraceJob], case: Case, most_jobs: int) -> Sequence[TraceJob]:
    """Return the jobs of a tenant: from the middle of its trace, about `most_jobs` for a case."""
    own = [job for job in jobs if job.tenant == case.tenant]
    share = min(1.0, case.load * case.boxes * SIZE / workloads.offered_gpus(own))
    kept = min(len(own), int(most_jobs / share))
    start = (len(own) - kept) // 2
    return own[start : start + kept]


@dataclass
class Comparison:
    """The policies on the same jobs; those of others are simulated once, with and without limits."""

    jobs: Sequence[TraceJob]
    most_jobs: int
    _others: dict[tuple[Case, bool], Results] = field(default_factory=dict)

    def results(self, case: Case, mode: Mode) -> Results:
        """Simulate dibs in a mode, and the policies that are compared with it."""
        own = part(self.jobs, case, self.most_jobs)
        work = workloads.make(
            own, case.boxes, SIZE, seed=case.seed, load=case.load, has_limits=mode.has_limits, evictable=mode.evictable
        )
        known = case, mode.has_limits
        if known not in self._others:
            wanted = {target.other for target in TARGETS if MODE[target.mode].has_limits == mode.has_limits}
            self._others[known] = {name: _simulate(work, OTHERS[name]) for name in sorted(wanted)}
        return {"dibs": _simulate(work, boxes.BoxScheduler), **self._others[known]}


def _simulate(work: Workload, make: Factory) -> Measures:
    return measures.measure(clusters.simulate(work, make), work)


def ratio(results: Results, target: Target) -> float:
    """Return dibs divided by the other policy; an hour is added to waits, which may be zero."""
    more = 3600.0 if "wait" in target.key else 0.0
    own, other = (float(results[name][target.key]) + more for name in ("dibs", target.other))  # type: ignore[literal-required]
    return own / other


def summary(ratios: Mapping[Case, float]) -> str:
    """Return the geometric mean, that of the worst tenant, box count and load over its seeds, and the worst case."""
    if not ratios:
        return "- | - | -"
    cells: dict[Case, list[float]] = {}
    for case, value in ratios.items():
        cells.setdefault(replace(case, seed=0), []).append(value)
    worst = max(map(_mean, cells.values()))
    return f"{_mean(ratios.values()):.2f} | {worst:.2f} | {max(ratios.values()):.2f}"


def _mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(max(value, 1e-6)) for value in ratios]
    return math.exp(sum(logarithms) / len(logarithms))


def table(found: dict[str, list[tuple[Case, Results]]]) -> Iterator[str]:
    """Yield the lines of the table, for the tenants that were used to choose and for the others."""
    parts = " | ".join(f"{tenants}: mean | worst over seeds | worst" for tenants in ("chosen on", "held out"))
    yield f"| jobs | measure | compared with | at most | {parts} |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for target in TARGETS:
        rows = found.get(target.mode, ())
        ratios = {case: ratio(results, target) for case, results in rows}
        chosen = {case: value for case, value in ratios.items() if case.tenant in CHOSEN_ON}
        held_out = {case: value for case, value in ratios.items() if case.tenant not in CHOSEN_ON}
        what = "mean completion" if "completion" in target.key else "p99 wait, 4 GPUs and more"
        cells = f"{target.mode} | {what} | {target.other} | {target.most:.2f}"
        yield f"| {cells} | {summary(chosen)} | {summary(held_out)} |"


def main(words: Sequence[str], say: Callable[[str], object] = print) -> None:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--quick", action="store_true", help="two seeds and one load")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--most-jobs", type=int, default=MOST_JOBS, help="jobs that a case has at most, about")
    parser.add_argument("--half", choices=("first", "second"), help="only this half of the jobs of each tenant")
    parser.add_argument("--svg", type=Path, help="write a picture of one case")
    args = parser.parse_args(words)
    with gzip.open(args.trace, "rt") if args.trace.suffix == ".gz" else args.trace.open() as lines:
        jobs = traces.read(lines)
    jobs = jobs if args.half is None else halved(jobs, args.half)
    seeds, loads = ((1, 3), (0.7,)) if args.quick else (args.seeds, args.loads)
    found: dict[str, list[tuple[Case, Results]]] = {}
    comparison = Comparison(jobs, args.most_jobs)
    for case in cases(jobs, loads, seeds):
        for mode in MODES:
            results = comparison.results(case, mode)
            found.setdefault(mode.name, []).append((case, results))
            ratios = [f"{ratio(results, target):.2f}" for target in TARGETS if target.mode == mode.name]
            print(case, mode.name, *ratios, file=sys.stderr)
    for line in table(found):
        say(line)
    if args.svg is not None:
        work = workloads.make(jobs, 16, SIZE, seed=1, load=0.8, has_limits=False)
        title = f"{len(work.jobs)} jobs without limits on 16 × 8 GPUs, load 0.8"
        args.svg.write_text(charts.draw(dict(comparisons.compare(work)), title))


if __name__ == "__main__":
    main(sys.argv[1:])
