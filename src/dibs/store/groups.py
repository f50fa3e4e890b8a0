"""Jobs that belong together: the runs of a sweep, a batch, or one submission; how many of them are in which state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dibs.model.jobs import Job, JobId
from dibs.store.reader import Reader

#: A sweep and its id, else a batch and the time of submission, which tells jobs without a batch apart.
Key = tuple[int | None, int, int]
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


def of(reader: Reader, jobs: Iterable[Job]) -> list[tuple[Job, Group]]:
    """Return the groups of these jobs, each with one of its jobs; a job that is alone is left out."""
    members: dict[Key, list[Job]] = {}
    for job in jobs:
        members.setdefault(key_of(job.spec.sweep_id, job.spec.batch, job.submitted_at), []).append(job)
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
    for word, count, first, last in reader.tally_group(known[0], group.first, group.last):
        group.counts[word] = count
        group.first, group.last = min(group.first, first), max(group.last, last)
    return group
