"""Jobs that belong together: the runs of a sweep, a batch, or one submission; how many of them are in which state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from dibs.model.jobs import Job, JobId
from dibs.store.reader import Reader

#: A sweep and its id, else a batch and the time of submission, which tells jobs without a batch apart.
Key = tuple[int | None, int, int]
#: Jobs from which on it is remembered where a group is, and the most groups for which it is.
LARGE, MOST_LARGE = 500, 256
#: Events since a group was counted from which on it is counted again without looking at them.
MOST_NEWS = 1000
#: Above all ids.
NO_END = 1 << 62
#: The latest finished jobs among which other groups are searched for.
MOST_LOOKED_AT = 5000


@dataclass(slots=True)
class Group:
    """All jobs of a group: the first, the last, and the number of jobs per displayed state."""

    first: int
    last: int
    counts: dict[str, int] = field(default_factory=dict)


def key_of(sweep_id: int | None, batch: int, submitted_at: int) -> Key:
    """Return a key that is equal for jobs of one group."""
    return (sweep_id, 0, 0) if sweep_id is not None else (None, batch, 0 if batch else submitted_at)


def latest(reader: Reader, most_jobs: int, most_groups: int) -> list[JobId]:
    """Return the latest finished jobs, and one of each group that finished last even if newer jobs are many."""
    found: list[JobId] = []
    groups: set[Key] = set()
    for job_id, sweep_id, batch, submitted_at in reader.lately_finished(MOST_LOOKED_AT):
        key = key_of(sweep_id, batch, submitted_at)
        if len(found) < most_jobs or key not in groups:
            found.append(JobId(job_id))
        groups.add(key)
        if len(found) >= most_jobs and len(groups) >= most_groups:
            break
    return found


def unfinished(reader: Reader, most_jobs: int, per_group: int) -> list[JobId]:
    """Return the first `per_group` jobs of each group among the oldest unfinished jobs."""
    found: list[JobId] = []
    listed: Counter[Key] = Counter()
    for job_id, sweep_id, batch, submitted_at in reader.first_unfinished(most_jobs):
        key = key_of(sweep_id, batch, submitted_at)
        listed[key] += 1
        if listed[key] <= per_group:
            found.append(JobId(job_id))
    return found


def groups_of_jobs(reader: Reader, jobs: Iterable[Job]) -> list[tuple[Job, Group]]:
    """Return the groups of these jobs, each with one of its jobs; a job that is alone is left out."""
    members: dict[Key, list[Job]] = {}
    for job in jobs:
        members.setdefault(_key(job), []).append(job)
    found = []
    for own in members.values():
        reader.pause()
        group = _counted(reader, own)
        if sum(group.counts.values()) > 1:
            found.append((own[0], group))
    return found


def _counted(reader: Reader, known: list[Job]) -> Group:
    """Count all jobs of a group of which some are known."""
    ids = [job.id for job in known]
    group = Group(min(ids), max(ids))
    span = _span(reader, known[0], group)
    if span is not None:
        return _counted_between(reader, span)
    for word, count, first, last in reader.tally_group(known[0], group.first, group.last):
        group.counts[word] = count
        group.first, group.last = min(group.first, first), max(group.last, last)
    if sum(group.counts.values()) >= LARGE:
        while len(reader.spans) >= MOST_LARGE:
            del reader.spans[next(iter(reader.spans))]
        reader.spans[_key(known[0])] = _Span(group.first, group.first)
    return group


@dataclass(slots=True)
class _Span:
    """The ids between which a group is, without a job of another: those of the next other jobs."""

    first: int
    #: Up to this id all jobs from `first` on belong to it.
    known_to: int
    low: int = 0
    #: NO_END: no other job has come after it yet.
    high: int = NO_END
    #: Its jobs as last counted: after which event, and after how many deletions.
    counted: Group | None = None
    at_event: int = 0
    deleted: int = 0


def _key(job: Job) -> Key:
    return key_of(job.spec.sweep_id, job.spec.batch, job.submitted_at)


def _span(reader: Reader, job: Job, shown: Group) -> _Span | None:
    """Return where a large group is; None if that is not known, or other jobs are between its own."""
    span: _Span | None = reader.spans.get(_key(job))
    if span is None:
        return None
    if span.high == NO_END:
        # Ids only grow: what was looked at before need not be looked at again.
        span.low, high, last = reader.strangers(job, span.first, span.known_to)
        span.high, span.known_to = (NO_END, last) if high is None else (high, high)
    return span if span.low < shown.first and shown.last < span.high else None


def _counted_between(reader: Reader, span: _Span) -> Group:
    # First, so that what changes while we count is counted again.
    event, deleted = reader.last_event(), reader.last_id() - sum(reader.counts().values())
    # Not beyond what was looked at: a job may have been added since.
    high = min(span.high, span.known_to + 1)
    if span.counted is None or deleted != span.deleted or _has_changed(reader, span, event, high):
        first, last = reader.ends_of_span(span.low, high)
        counts = {word: count for word, count in reader.tally_span(span.low, high) if count}
        span.counted = Group(first or span.first, last or span.first, counts)
        span.deleted = deleted
    span.at_event = event
    return span.counted


def _has_changed(reader: Reader, span: _Span, event: int, high: int) -> bool:
    """Return whether a job of a group may have changed since it was counted."""
    if event - span.at_event > MOST_NEWS:
        return True
    return any(span.low < job.id < high for job in reader.changes(span.at_event, event))
