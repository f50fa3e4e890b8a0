"""The parts of the benchmark, one module each: a name, a title, and `measure`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.parts import (
    calls,
    depth,
    engines,
    expansion,
    gap,
    gpu_tasks,
    load,
    pages,
    peasy,
    pipe,
    python_submit,
    restart,
    schedule,
    submit,
    throughput,
    verbs,
)
from benchmarks.plans import Plan
from benchmarks.series import Book


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the benchmark."""

    name: str
    title: str
    measure: Callable[[Plan, Book], None]


PARTS = (
    *(throughput, gap, submit, verbs, python_submit, depth, restart, pipe, expansion),
    *(schedule, calls, gpu_tasks, load, pages, peasy, engines),
)
ALL = tuple(Part(part.NAME, part.TITLE, part.measure) for part in PARTS)
