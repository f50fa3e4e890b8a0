"""Counters since the daemon started, for metrics. Plain sums.

The queue thread counts while other threads read; a sum that is one behind another is harmless.

Pure.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from dibs.model.devices import DeviceId
from dibs.model.jobs import Job

#: Upper bounds of the buckets, in seconds.
WAITS_S = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 24 * 3600.0)
GAPS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 60.0)
TURNS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)


@dataclass(slots=True)
class Histogram:
    """The number of values per bucket; the last bucket has no upper bound."""

    ends: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.ends) + 1)

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.ends, value)] += 1
        self.total += value


@dataclass(slots=True)
class Tally:
    """The counters of one daemon."""

    #: Ended attempts by outcome and cause.
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    waits: Histogram = field(default_factory=lambda: Histogram(WAITS_S))
    gaps: Histogram = field(default_factory=lambda: Histogram(GAPS_S))
    turns: Histogram = field(default_factory=lambda: Histogram(TURNS_S))
    #: When the last job on a device ended, in wall-clock milliseconds.
    _free_since: dict[DeviceId, int] = field(default_factory=dict)

    def count(self, starting: Iterable[Job], ended: Iterable[Job], now: int) -> None:
        """Count the starts and ends of one turn."""
        for job in starting:
            # A later attempt waited for another reason.
            if job.attempt == 1 and job.start == 1:
                self.waits.add(max(0, now - max(job.submitted_at, job.spec.begin_at or 0)) / 1000)
        for job in ended:
            self._ended(job)

    def _ended(self, job: Job) -> None:
        """Count an end, and how long its devices were free before its start while it was already waiting."""
        if job.outcome is None or job.finished_at is None or not job.start:
            return
        self.ends[job.outcome.value, job.cause.value if job.cause else ""] += 1
        if job.started_at is None or job.spec.request.vram:
            return
        for device in job.allocation:
            free_since = self._free_since.get(device)
            # A job that was submitted later found the device free: no delay.
            if free_since is not None and job.submitted_at <= free_since <= job.started_at:
                self.gaps.add((job.started_at - free_since) / 1000)
            self._free_since[device] = job.finished_at
