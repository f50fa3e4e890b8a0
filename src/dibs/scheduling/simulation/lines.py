"""The queue and the free GPUs of a simulated cluster, kept so that a decision looks at few of them."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator

from dibs.scheduling.simulation.clusters import Placement
from dibs.scheduling.simulation.traces import TraceJob

#: Jobs of one line are equal to a scheduler: GPUs, tenant, limit, evictable or not.
Line = tuple[int, str, float | None, bool]


class Lines:
    """Waiting jobs in lines. Only the first jobs of a line need be looked at, as in the database of a queue."""

    def __init__(self, rank: Callable[[TraceJob], float] | None = None) -> None:
        self._rank = rank
        self._lines: dict[Line, list[tuple[tuple[float, int], TraceJob]]] = {}
        self._jobs: dict[int, TraceJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._jobs

    def job(self, job_id: int) -> TraceJob:
        """Return a waiting job."""
        return self._jobs[job_id]

    def add(self, job: TraceJob) -> None:
        """Add a job, which may be older than others: evicted jobs come back."""
        self._jobs[job.id] = job
        bisect.insort(self._lines.setdefault(_line(job), []), self._entry(job))

    def remove(self, job: TraceJob) -> None:
        """Remove a job that starts."""
        del self._jobs[job.id]
        line = self._lines[_line(job)]
        del line[bisect.bisect_left(line, self._entry(job))]
        if not line:
            del self._lines[_line(job)]

    def _entry(self, job: TraceJob) -> tuple[tuple[float, int], TraceJob]:
        return (0.0 if self._rank is None else self._rank(job), job.id), job

    def heads(self, most: int, most_gpus: int) -> Iterator[TraceJob]:
        """Yield the first jobs of each line whose jobs have at most this many GPUs."""
        for line, jobs in self._lines.items():
            if line[0] <= most_gpus:
                yield from (job for _, job in jobs[:most])

    def in_order(self, most_gpus: int) -> list[TraceJob]:
        """Return the first job of each line, those that come first at the front."""
        firsts = sorted(jobs[0] for line, jobs in self._lines.items() if line[0] <= most_gpus)
        return [job for _, job in firsts]

    def next_after(self, job: TraceJob) -> TraceJob | None:
        """Return the first job of the line of a job that has just been removed."""
        line = self._lines.get(_line(job))
        return line[0][1] if line else None


def _line(job: TraceJob) -> Line:
    return job.gpus, job.tenant, job.limit_s, job.is_evictable


class Boxes:
    """The free GPUs of each box, and the boxes by free GPUs."""

    def __init__(self, boxes: int, size: int) -> None:
        self.size = size
        self.free = [size] * boxes
        self._with_free: list[set[int]] = [set() for _ in range(size + 1)]
        self._with_free[size].update(range(boxes))

    def change(self, box: int, by: int) -> None:
        """Note that GPUs of a box were released, or taken."""
        self._with_free[self.free[box]].discard(box)
        self.free[box] += by
        self._with_free[self.free[box]].add(box)

    @property
    def largest(self) -> int:
        """Return the most GPUs that one job could get now."""
        empty = len(self._with_free[self.size]) * self.size
        return empty or next(count for count in range(self.size - 1, -1, -1) if count == 0 or self._with_free[count])

    def place(self, job: TraceJob, avoid: frozenset[int] = frozenset()) -> Placement | None:
        """Return where a job fits now, on boxes in `avoid` only if it must; None if it does not fit."""
        if job.gpus > self.size:
            return self._place_large(job, avoid)
        for is_free in (lambda box: box not in avoid, lambda box: box in avoid) if avoid else (lambda _: True,):
            for count in range(job.gpus, self.size + 1):
                box = min(filter(is_free, self._with_free[count]), default=None)
                if box is not None:
                    return Placement(job.id, ((box, job.gpus),))
        return None

    def _place_large(self, job: TraceJob, avoid: frozenset[int]) -> Placement | None:
        sizes = parts(job.gpus, self.size)
        empty = sorted(self._with_free[self.size], key=lambda box: (box in avoid, box))
        return Placement(job.id, tuple(zip(empty, sizes, strict=False))) if len(empty) >= len(sizes) else None


def parts(gpus: int, size: int) -> list[int]:
    """Return how many GPUs a job takes of each of its boxes, full boxes first."""
    whole, rest = divmod(gpus, size)
    return [size] * whole + [rest] * bool(rest)
