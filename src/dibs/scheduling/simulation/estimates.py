"""What a scheduler knows about run times in a simulation: how long finished jobs like a job took.

Alike are, as far as a trace tells, jobs of the same tenant with the same number of GPUs, else all with that number. The
newest ones count, as many as the database of a queue keeps.
"""

from __future__ import annotations

import bisect
from collections import deque

from dibs.scheduling import durations
from dibs.scheduling.durations import History
from dibs.scheduling.simulation.traces import TraceJob

#: Finished jobs that are kept of each kind.
KEPT = 31


class _Kind:
    """The newest run times of one kind of job."""

    __slots__ = ("history", "newest", "ordered")

    def __init__(self) -> None:
        self.newest: deque[float] = deque()
        self.ordered: list[float] = []
        self.history: History | None = ()

    def add(self, took_s: float) -> None:
        self.newest.append(took_s)
        bisect.insort(self.ordered, took_s)
        if len(self.newest) > KEPT:
            del self.ordered[bisect.bisect_left(self.ordered, self.newest.popleft())]
        self.history = None

    def known(self) -> History:
        if self.history is None:
            self.history = tuple(self.ordered)
        return self.history


class Histories:
    """Run times of finished jobs by kind."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, int] | int, _Kind] = {}

    def add(self, job: TraceJob, took_s: float) -> None:
        """Note how long a job took."""
        for kind in ((job.tenant, job.gpus), job.gpus):
            self._kinds.setdefault(kind, _Kind()).add(took_s)

    def of(self, job: TraceJob) -> History:
        """Return the run times of the kind of a job, those of the closest kind that is known well enough."""
        for kind in ((job.tenant, job.gpus), job.gpus):
            known = self._kinds.get(kind)
            if known is not None and len(known.ordered) >= durations.LEAST_ENDS:
                return known.known()
        return ()
