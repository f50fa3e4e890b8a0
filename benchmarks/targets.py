"""What has to hold: ratios between series of one run, each with its bound.

A ratio is taken within each round and the median of those counts, so that a machine that slows down for a while does
not decide it; where two series differ in length it is the ratio of their medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.parts import engines, load, python_submit, submit, verbs
from benchmarks.series import Key, Series, find

DEEP, DEEPEST, SHALLOW = "100,000", "1,000,000", "1,000"


@dataclass(frozen=True, slots=True)
class Target:
    """One bound on a series, or on its ratio to another."""

    what: str
    of: Key
    to: Key | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bound(self) -> str:
        """Return the bound in words; empty if it is only worth knowing."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a target stands. No value: something of it was not measured."""

    target: Target
    value: float | None = None
    spread: tuple[float, float] | None = None

    @property
    def word(self) -> str:
        """Return ok, missed, not measured, or nothing where there is no bound."""
        if self.value is None:
            return "not measured"
        low, high = self.target.at_least, self.target.at_most
        if low is None and high is None:
            return ""
        is_met = (low is None or self.value >= low) and (high is None or self.value <= high)
        return "ok" if is_met else "missed"


def _noop(tool: str, measure: str = "jobs/s") -> Key:
    return Key("throughput", tool, measure)


def _gap(tool: str, measure: str) -> Key:
    return Key("gap", tool, measure)


def _page(depth: str, measure: str) -> Key:
    return Key("paging", depth, measure)


def _depth(depth: str, measure: str) -> Key:
    return Key("depth", depth, measure)


def _submit(command: str, measure: str = "wall") -> Key:
    return Key("submit", command, measure)


def _verb(verb: str, jobs: int, at_most: float) -> Target:
    bare = Key(verbs.NAME, f"{submit.PYTHON}, {jobs:,} jobs", "wall")
    return Target(
        f"dibs {verb} / {submit.PYTHON}, {jobs:,} jobs",
        Key(verbs.NAME, verbs.subject(verb, jobs), "wall"),
        bare,
        at_most=at_most,
    )


def _python_submit(subject: str) -> Key:
    return Key(python_submit.NAME, subject, "all")


def _restart(measure: str) -> Key:
    return Key("restart", "10,000 queued, 64 running", measure)


def _printed(program: str, order: str, measure: str = "wall") -> Key:
    return Key("expansion", f"{program}, {order}", measure)


def _printing(what: str, program: str, order: str, measure: str, at_most: float | None) -> Target:
    return Target(what, _printed(program, order, measure), _printed("original", order, measure), at_most=at_most)


def _schedule(measure: str) -> Key:
    return Key("schedule", "schedule", measure)


def _pipe(tool: str) -> Key:
    return Key("pipe", tool, "lines/s")


def _calls(executor: str, measure: str = "calls/s") -> Key:
    return Key("calls", executor, measure)


def _gpu_tasks(subject: str, measure: str = "all") -> Key:
    return Key("gpu-tasks", subject, measure)


def _load(measure: str, subject: str = load.CROWD) -> Key:
    return Key("load", subject, measure)


def _engine(subject: str, measure: str = "jobs/s") -> Key:
    return Key("engines", subject, measure)


SGS = "simple_gpu_scheduler"
PEASY = Key("peasy", "gpupeasy-server", "all")
EXECUTOR, SUBMITIT = "dibs.Executor", "submitit, local"

ALL = (
    Target("no-op jobs/s / simple_gpu_scheduler", _noop("dibs"), _noop(SGS), at_least=0.45),
    Target("no-op jobs/s / hyperqueue", _noop("dibs"), _noop("hyperqueue"), at_least=0.9),
    Target("no-op jobs/s / GNU parallel", _noop("dibs"), _noop("GNU parallel"), at_least=1.5),
    Target("CPU per job / simple_gpu_scheduler", _noop("dibs", "CPU per job"), _noop(SGS, "CPU per job")),
    Target("gap p50 / simple_gpu_scheduler", _gap("dibs", "p50"), _gap(SGS, "p50"), at_most=1.8),
    Target("gap p99 / simple_gpu_scheduler", _gap("dibs", "p99"), _gap(SGS, "p99"), at_most=2),
    Target("dibs add / python -c pass", _submit(submit.ADD), _submit(submit.PYTHON), at_most=1.3),
    Target("dibs add with options / plain", _submit(submit.OPTIONS_ADD), _submit(submit.ADD), at_most=1.1),
    Target("unwanted imports of dibs add", _submit(submit.ADD, "unwanted imports"), None, at_most=0),
    Target("submit of 100,000 / bare insert", _depth(DEEP, "submit"), _depth(DEEP, "bare insert"), at_most=12),
    Target("memory at 100,000, MiB", _depth(DEEP, "memory"), None, at_most=120),
    # A clock that counts nanoseconds never says 0; this much nobody notices.
    Target("idle CPU at 100,000, %", _depth(DEEP, "idle CPU"), None, at_most=0.2),
    Target("status, 100,000 / 1,000", _depth(DEEP, "status"), _depth(SHALLOW, "status"), at_most=1.5),
    Target("first page, 100,000 / 1,000", _depth(DEEP, "first page"), _depth(SHALLOW, "first page"), at_most=1.5),
    # Ratios below this are within the noise of the same tool measured twice.
    Target("next start, 1,000,000 / 1,000", _depth(DEEPEST, "next start"), _depth(SHALLOW, "next start"), at_most=1.25),
    *(_verb(verb, 10, 1.3 if verb == "add" else 2.0) for verb in verbs.VERBS),
    *(_verb(verb, 100_000, 1.3 if verb == "add" else 2.5) for verb in verbs.VERBS),
    Target(
        "10,000 jobs by dibs.submit_many / bare insert",
        _python_submit("dibs.submit_many"),
        _python_submit("bare insert"),
        at_most=8,
    ),
    Target("jobs not adopted after a restart", _restart("not adopted"), None, at_most=0),
    Target("first start after a restart, s", _restart("first start"), None, at_most=1),
    _printing("10^6 points in grid order / simple_hypersearch", "dibs-compat", "grid", "wall", 0.5),
    _printing("10^6 points shuffled / simple_hypersearch", "dibs-compat", "shuffled", "wall", 0.5),
    _printing("10^6 points by the core / simple_hypersearch", "dibs core", "grid", "wall", 0.5),
    _printing("10^6 points shuffled by the core / simple_hypersearch", "dibs core", "shuffled", "wall", None),
    _printing("memory in grid order / simple_hypersearch", "dibs-compat", "grid", "memory", 0.15),
    _printing("first line in grid order / simple_hypersearch", "dibs-compat", "grid", "first line", 0.05),
    Target("five tasks of 1 s on one GPU through schedule, s", _schedule("all"), None, at_most=5.6),
    Target("tasks of schedule out of order", _schedule("out of order"), None, at_most=0),
    Target("six jobs on two GPUs through gpupeasy-server, s", PEASY, None, at_most=1.8),
    Target(
        "100 tasks of GPUTaskScheduler / model of the original",
        _gpu_tasks("dibs-compat"),
        _gpu_tasks("model of the original"),
        at_most=0.8,
    ),
    Target("lines/s of dibs pipe / simple_gpu_scheduler", _pipe("dibs pipe"), _pipe(SGS), at_least=0.9),
    Target("lines/s of dibs pipe / GNU parallel", _pipe("dibs pipe"), _pipe("GNU parallel"), at_least=3),
    Target("lines/s of dibs-compat / simple_gpu_scheduler", _pipe("dibs-compat"), _pipe(SGS), at_least=1.3),
    Target("gap p99 of dibs-compat / simple_gpu_scheduler", _gap("dibs-compat", "p99"), _gap(SGS, "p99"), at_most=1),
    Target("lines/s of dibs-compat / GNU parallel", _pipe("dibs-compat"), _pipe("GNU parallel"), at_least=3),
    Target("calls/s of dibs.Executor / submitit", _calls(EXECUTOR), _calls(SUBMITIT), at_least=4),
    Target(
        "CPU per call of dibs.Executor / submitit",
        _calls(EXECUTOR, "CPU per call"),
        _calls(SUBMITIT, "CPU per call"),
        at_most=0.25,
    ),
    Target("calls/s of dibs.Executor / ProcessPoolExecutor", _calls(EXECUTOR), _calls("ProcessPoolExecutor")),
    Target("gap p50 while a crowd reads / alone", _load("gap p50"), _load("gap p50", load.ALONE)),
    Target("gap p99 while a crowd reads / alone", _load("gap p99"), _load("gap p99", load.ALONE)),
    Target("page by id, 1,000,000 / 1,000", _page(DEEPEST, "by id"), _page(SHALLOW, "by id"), at_most=1.5),
    Target("page halfway, 1,000,000 / 1,000", _page(DEEPEST, "halfway"), _page(SHALLOW, "halfway"), at_most=1.5),
    Target(
        "page of a state, 1,000,000 / 1,000", _page(DEEPEST, "of a state"), _page(SHALLOW, "of a state"), at_most=1.5
    ),
    Target("API p99 while jobs run, ms", _load("API p99"), None),
    Target("failed requests of the crowd", _load("failed requests"), None, at_most=0),
    Target("event streams of the crowd that were cut", _load("streams cut"), None, at_most=0),
    Target("memory with the crowd / before", _load("memory during"), _load("memory before"), at_most=2),
    Target("files after the crowd / before", _load("files after"), _load("files before"), at_most=1.2),
    Target(
        "1,000 no-ops as a sweep on Slurm / the same array by hand",
        _engine(engines.SWEEP, "all"),
        _engine(engines.ARRAY, "all"),
        at_most=1.3,
    ),
    Target("jobs/s on Ray / REST by hand", _engine(engines.JOBS), _engine(engines.REST), at_least=0.9),
    Target("jobs/s on Ray through a broker / without", _engine(engines.BROKER), _engine(engines.JOBS), at_least=10),
)


def judge(many: Sequence[Series], targets: Sequence[Target] = ALL) -> list[Verdict]:
    """Return how every target stands."""
    return [_verdict(target, many) for target in targets]


def _verdict(target: Target, many: Sequence[Series]) -> Verdict:
    of = find(many, target.of)
    to = find(many, target.to) if target.to else None
    if of is None or (target.to and to is None):
        return Verdict(target)
    values = of.values if to is None else _ratios(of, to)
    return Verdict(target, statistics.median(values), (min(values), max(values)))


def _ratios(of: Series, to: Series) -> tuple[float, ...]:
    if len(of.values) == len(to.values):
        return tuple(above / below for above, below in zip(of.values, to.values, strict=True))
    return (of.median / to.median,)
