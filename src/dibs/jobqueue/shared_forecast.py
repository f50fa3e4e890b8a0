"""Read the input of a forecast from the store, within limits, and share one forecast among all readers.

Only the head of every line is read; the prospect marks the lines that are longer.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dibs.model import dependencies, ranks
from dibs.model.jobs import Job, JobId, State
from dibs.scheduling import durations, views
from dibs.scheduling.durations import Span
from dibs.scheduling.forecasts import FutureJob, Line, Prospect, StartForecaster
from dibs.scheduling.views import Policy, View, WaitingJob
from dibs.store.writer import Reader

#: Jobs of all lines together. Each line gets at least what one plan needs, up to four times this limit in total.
MOST_JOBS = 500
#: Jobs that wait for their begin time or for other jobs.
MOST_COMING = 200
#: Milliseconds for which a forecast is valid while nothing changes: running jobs may take longer than expected.
HOLDS_FOR_MS = 1000


#: A policy whose projects have no quotas.
NO_QUOTAS = Policy()


class SharedForecast:
    """The latest forecast, for any thread. Only one thread at a time computes it; the others reuse the result."""

    def __init__(self, holds_for_ms: int = HOLDS_FOR_MS) -> None:
        self._holds_for_ms = holds_for_ms
        self._lock = threading.Lock()
        self._state: object = None
        self._made_at = 0
        self._foreseen: StartForecaster | None = None

    @contextlib.contextmanager
    def for_state(self, state: object, now: int, make: Callable[[], StartForecaster]) -> Iterator[StartForecaster]:
        """Yield the forecast for a state of the queue, computed only if the state is new; hold the lock until exit."""
        with self._lock:
            # A forecast from the future means that the clock was set back.
            is_old = not 0 <= now - self._made_at < self._holds_for_ms
            if self._foreseen is None or is_old or state != self._state:
                self._foreseen = make()
                self._state, self._made_at = state, now
            yield self._foreseen


def gather(
    reader: Reader,
    view: View,
    window: int,
    grace_s: float,
    now: int,
    asked_for: Job | None = None,
    policy: Policy = NO_QUOTAS,
) -> Prospect:
    """Return the prospect of `view`, in which each line has up to `window` jobs.

    It includes `asked_for`, even if that job is not submitted yet or waits for others.
    """
    waiting, cut_lines = _deeper(reader, view, policy, window)
    known = _ForecastJobs(reader, {job.id: job for job in reader.active()}, {job.id for job in waiting})
    if asked_for is not None and _is_ready(asked_for, reader, now):
        waiting += views.bounded(_joined(asked_for, waiting, cut_lines, reader), view.active, policy)
    elif asked_for is not None:
        known.add_with_needs(replace(asked_for, is_ready=False))
    known_until = known.add_beginners(now)
    known.add_dependants()
    jobs = [*known.active.values(), *known.coming_jobs, *reader.jobs(job.id for job in waiting)]
    spans = _spans([*jobs, asked_for] if asked_for is not None else jobs, reader, grace_s, now)
    expected, _ = reader.histories.in_plan(waiting, [])
    whole = replace(view, waiting=expected)
    return Prospect(whole, window, spans, list(known.coming.values()), cut_lines, known.cut_needs, known_until)


def _deeper(reader: Reader, view: View, policy: Policy, window: int) -> tuple[list[WaitingJob], set[Line]]:
    """Return more jobs of each line than `view` has, and the lines that are still cut."""
    kinds = {job.line for job in view.waiting}
    reach = max(window, MOST_JOBS // max(1, len(kinds)))
    found = views.order(views.bounded(reader.head(reach), view.active, policy))
    count = Counter(job.line for job in found)
    left_out = found[4 * MOST_JOBS :]
    cut = {line for line, many in count.items() if many >= reach} | {job.line for job in left_out}
    return found[: 4 * MOST_JOBS], cut


def _is_ready(job: Job, reader: Reader, now: int) -> bool:
    """Tell whether a job is in its line, or would be if it were submitted now."""
    if job.id <= reader.last_id():
        return job.is_ready
    return not job.spec.after and (job.spec.begin_at is None or job.spec.begin_at <= now)


def _joined(job: Job, waiting: list[WaitingJob], cut_lines: set[Line], reader: Reader) -> list[WaitingJob]:
    """Return a job as it would wait after submission; nothing if its place is beyond the cut or it is in `waiting`."""
    new = _waiting(job, reader)
    in_line = [other for other in waiting if other.line == new.line]
    is_last = views.order([*in_line, new])[-1] is new
    is_unseen = new.line in cut_lines and is_last
    return [] if is_unseen or any(other.id == new.id for other in waiting) else [new]


def _waiting(job: Job, reader: Reader) -> WaitingJob:
    rank = job.rank or ranks.rank_of_id(job.id)
    return reader.waiting(replace(job, rank=rank))


@dataclass
class _ForecastJobs:
    """The jobs of a forecast: active, in a line, or coming."""

    reader: Reader
    active: dict[JobId, Job]
    in_line: set[JobId]
    coming: dict[JobId, FutureJob] = field(default_factory=dict)
    coming_jobs: list[Job] = field(default_factory=list)
    cut_needs: set[JobId] = field(default_factory=set)

    def add(self, job: Job) -> None:
        if job.id in self.coming or job.state is not State.QUEUED or job.is_ready:
            return
        stored = self.reader.outcomes(job.id)
        outcomes = stored or [(need.id, need.when, self.reader.job(need.id).outcome) for need in job.spec.after]
        self.coming[job.id] = FutureJob(_waiting(job, self.reader), job.spec.begin_at, outcomes)
        self.coming_jobs.append(job)

    def add_with_needs(self, job: Job) -> None:
        """Add a job and its dependencies, transitively."""
        left = [job]
        while left and len(self.coming) < MOST_COMING:
            each = left.pop()
            self.add(each)
            verdict = (
                dependencies.judge(self.coming[each.id].outcomes) if each.id in self.coming else dependencies.Met()
            )
            ids = verdict.ids[:MOST_COMING] if isinstance(verdict, dependencies.Open) else ()
            left += [self.reader.job(need) for need in ids if not self._is_known(need)]

    def add_beginners(self, now: int) -> float:
        """Add the jobs with the next begin times; return the time up to which they are complete."""
        found = self.reader.to_begin(now, MOST_COMING)
        for job_id, _ in found:
            self.add(self.reader.job(job_id))
        return found[-1][1] if len(found) == MOST_COMING else math.inf

    def add_dependants(self) -> None:
        """Add the dependents of all known jobs, transitively, up to a limit."""
        left = [*self.active, *self.in_line, *self.coming]
        while left:
            need = left.pop()
            room = max(0, 2 * MOST_COMING - len(self.coming))
            found = self.reader.first_dependants(need, room + 1)
            if len(found) > room:
                self.cut_needs.add(need)
            new = [job_id for job_id in found[:room] if not self._is_known(job_id)]
            for job in map(self.reader.job, new):
                self.add(job)
            left += [job_id for job_id in new if job_id in self.coming]

    def _is_known(self, job_id: JobId) -> bool:
        return job_id in self.active or job_id in self.in_line or job_id in self.coming


def _spans(jobs: Sequence[Job], reader: Reader, grace_s: float, now: int) -> dict[JobId, Span]:
    histories = reader.histories.of(jobs)
    return {job.id: span_of(job, histories[job.id], grace_s, now) for job in jobs}


def span_of(job: Job, ends_s: Sequence[float], grace_s: float, now: int) -> Span:
    """Return how long a job may still take if similar jobs took `ends_s`."""
    limit_s = job.spec.time_limit_s
    ran_s = 0.0 if job.started_at is None else max(0, now - job.started_at) / 1000
    if job.state is State.PAUSED:
        return Span(why="is paused", hint=f"`dibs resume {job.id}` resumes it.")
    if job.state is State.STOPPING or (limit_s is not None and ran_s >= limit_s):
        return Span(0.0, grace_s)
    return durations.span(limit_s, ends_s, ran_s)
