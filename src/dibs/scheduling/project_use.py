"""The GPU time of each project: for the order of one user's jobs (`fair_projects`), and for quotas of hours."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from dibs.model.jobs import Job
from dibs.scheduling.views import Active

DAY_MS = 86_400_000
#: Half-lives after which time no longer counts.
MOST_HALF_LIVES = 6
WEEK_MS = 7 * DAY_MS
HOUR_MS = 3_600_000


class ProjectUse:
    """GPU milliseconds of finished attempts, as of one moment."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_ms = half_life_s * 1000
        self._used_ms: dict[str, float] = {}
        self._at: int | None = None

    def since(self, now: int) -> int:
        """Return the time before which nothing counts."""
        return now - int(MOST_HALF_LIVES * self._half_life_ms)

    def begin(self, times: Iterable[tuple[str, int, int, int]], now: int) -> None:
        """Begin with earlier attempts: project, number of devices, start and end of each."""
        self._at = now
        for project, gpus, began, ended in times:
            self._add(project, gpus * (ended - began), ended)

    def add(self, finished: Iterable[Job], now: int) -> None:
        """Add the attempts that have just ended."""
        for job in finished:
            if job.started_at is not None and self._at is not None:
                self._add(job.spec.project, len(job.allocation) * max(0, now - job.started_at), now)

    def _add(self, project: str, ms: float, at: int) -> None:
        assert self._at is not None
        self._used_ms[project] = self._used_ms.get(project, 0.0) + ms * 2.0 ** ((at - self._at) / self._half_life_ms)

    def now_s(self, active: Iterable[Active], now: int) -> Mapping[str, float]:
        """Return the GPU seconds of each project, with those of running jobs."""
        age = 2.0 ** (((self._at or now) - now) / self._half_life_ms)
        found = {project: ms * age / 1000 for project, ms in self._used_ms.items()}
        for job in active:
            if job.started_at is not None:
                ran_s = len(job.devices) * max(0, now - job.started_at) / 1000
                found[job.project] = found.get(job.project, 0.0) + ran_s
        return found


class WeekUse:
    """GPU milliseconds of ordinary jobs that ended in the last seven days, and of those that run."""

    def __init__(self, times: Iterable[tuple[str, int, int, int]] = ()) -> None:
        #: The end of each attempt, its project, and milliseconds; the first to end first.
        self._ended: deque[tuple[int, str, int]] = deque()
        self._used_ms: dict[str, int] = {}
        for project, gpus, began, ended in times:
            self._add(project, gpus * max(0, ended - began), ended)

    def add(self, finished: Iterable[Job], now: int) -> None:
        """Add the attempts that have just ended."""
        for job in finished:
            if job.started_at is not None and job.allocation and not job.spec.request.is_evictable:
                self._add(job.spec.project, len(job.allocation) * max(0, now - job.started_at), now)

    def _add(self, project: str, ms: int, at: int) -> None:
        self._ended.append((at, project, ms))
        self._used_ms[project] = self._used_ms.get(project, 0) + ms

    def hours(self, active: Iterable[Active], now: int) -> dict[str, float]:
        """Return the GPU-hours of each project; an attempt counts as a whole until seven days after its end."""
        while self._ended and self._ended[0][0] < now - WEEK_MS:
            _, project, ms = self._ended.popleft()
            self._used_ms[project] -= ms
        found = {project: ms / HOUR_MS for project, ms in self._used_ms.items()}
        for job in active:
            if job.started_at is not None and job.devices and not job.is_evictable:
                ran_ms = len(job.devices) * max(0, now - job.started_at)
                found[job.project] = found.get(job.project, 0.0) + ran_ms / HOUR_MS
        return found
