"""The curves of the runs of sweeps whose rule stops runs early, as far as they were reported or printed.

A file is read again only when it has grown. What a finished run reported is read once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dibs.engines.job_files import JobFiles
from dibs.logs import numbers_child, reports, tails
from dibs.model.jobs import Cause, Job, Outcome, State
from dibs.sweeps.search.early_stop import Curve

#: Seconds between two searches of logs, which need a process each.
LOGS_EVERY_S = 4.0

Points = list[tuple[float, float]]


@dataclass
class _Seen:
    """What was read of one attempt."""

    size: int = -1
    reported: Points = field(default_factory=list)
    #: Of the log: where to continue, the values, and the last step it named.
    position: int = 0
    printed: Points = field(default_factory=list)
    step: float | None = None


class RunCurves:
    """Reads and remembers curves. Used by one thread, which may block."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        #: By sweep, then by job and attempt.
        self._seen: dict[int, dict[tuple[int, int], _Seen]] = {}
        self._searched_at: dict[int, float] = {}

    def keep_only(self, sweep_ids: set[int]) -> None:
        """Forget the curves of other sweeps."""
        for known in (self._seen, self._searched_at):
            for sweep_id in known.keys() - sweep_ids:
                del known[sweep_id]

    def read(self, sweep_id: int, jobs: Sequence[Job], metric: str) -> list[Curve]:
        """Return the curves of runs, read as far as they are written."""
        seen = self._seen.setdefault(sweep_id, {})
        for job in jobs:
            self._read_report(seen.setdefault((job.id, job.attempt), _Seen()), job, metric)
        if time.monotonic() - self._searched_at.get(sweep_id, -LOGS_EVERY_S) >= LOGS_EVERY_S:
            self._searched_at[sweep_id] = time.monotonic()
            self._search_logs(seen, jobs, metric)
        return [_curve(job, seen[job.id, job.attempt]) for job in jobs]

    def _read_report(self, seen: _Seen, job: Job, metric: str) -> None:
        path = self._files.report(job)
        size = _size(path)
        if size != seen.size:
            seen.size = size
            seen.reported = [
                (step, value) for step, value in reports.curve(tails.read(path, reports.COURSE_BYTES), metric)
            ]

    def _search_logs(self, seen: dict[tuple[int, int], _Seen], jobs: Sequence[Job], metric: str) -> None:
        """Search the new lines of logs for a metric that is printed and not reported."""
        by_metrics: dict[tuple[tuple[str, str], ...], dict[str, _Seen]] = {}
        for job in jobs:
            own, path = seen[job.id, job.attempt], self._files.log(job)
            if metric in dict(job.spec.metrics or ()) and not own.reported and _size(path) > own.position:
                by_metrics.setdefault(job.spec.metrics, {})[path] = own
        for metrics, logs in by_metrics.items():
            asked = {path: own.position for path, own in logs.items()}
            for path, (position, lines) in numbers_child.follow(asked, dict(metrics)).items():
                own = logs[path]
                own.position = position
                own.step = reports.extend_curve(own.printed, lines, metric, own.step)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _curve(job: Job, seen: _Seen) -> Curve:
    points = sorted(seen.reported or seen.printed, key=lambda point: point[0])
    is_complete = job.outcome is Outcome.DONE
    is_running = job.state is State.RUNNING and job.cause is not Cause.EARLY
    return Curve(job.id, job.spec.index or 0, points, is_running, is_complete)
