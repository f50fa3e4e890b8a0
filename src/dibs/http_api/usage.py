"""`GET /v1/usage`: GPU time per day, project, sweep, group and user, and how long jobs waited."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from dibs.daemon.service import Daemon
from dibs.http_api.schemas import machine_answers
from dibs.jobqueue.thread import now_ms
from dibs.model import serialization
from dibs.store.writer import Reader
from dibs.system import users

#: The most days in one request; utilization is kept for 28 days only.
MOST_DAYS = 366
#: A GPU is idle in a minute if its utilization is below this percentage.
IDLE_BELOW = 5
#: The ordinal of 1970-01-01.
EPOCH = date(1970, 1, 1).toordinal()
#: The most sums, and the most jobs with the longest waits, in one answer.
MOST_SUMS, MOST_WAITS = 5000, 10


class UsageQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The days to report."""

    days: Annotated[int, Meta(ge=1, le=MOST_DAYS, description="Number of days, including today.")] = 7


def days(today: date, many: int) -> list[tuple[date, int, int]]:
    """Return the last `many` days with their bounds in milliseconds; a day with a clock change has 23 or 25 hours."""
    found = [today - timedelta(days=back) for back in range(many)][::-1]
    return [(day, _midnight(day), _midnight(day + timedelta(days=1))) for day in found]


def _midnight(day: date) -> int:
    return int(datetime.combine(day, time.min).timestamp() * 1000)


def get_usage(daemon: Daemon, reader: Reader, query: UsageQuery) -> machine_answers.Usage:
    """Return for each day how long jobs held GPUs and how long these were idle, and how long jobs waited."""
    bounds = days(date.today(), query.days)
    spans = [(since, until) for _, since, until in bounds]
    found = reader.usage(spans, now_ms(), IDLE_BELOW, MOST_SUMS)
    waits = reader.waits(spans[0][0], spans[-1][1], MOST_WAITS)
    return machine_answers.Usage(
        days=[
            machine_answers.Day(day.isoformat(), serialization.moment(since), serialization.moment(until))
            for day, since, until in bounds
        ],
        sums=[
            machine_answers.Sum(
                day=bounds[one.day][0].isoformat(),
                project=one.project,
                sweep=one.sweep,
                gpu_s=one.held_ms / 1000,
                watched_s=one.watched * 60,
                idle_s=one.idle * 60,
                group=one.group,
                used_s=one.busy * 60,
                jobs=one.jobs,
                waited_s=one.waited_ms / 1000,
            )
            for one in found
        ],
        more=len(found) == MOST_SUMS,
        idle_below=IDLE_BELOW,
        waits=machine_answers.Waits(
            count=waits.count,
            median_s=None if waits.median_ms is None else waits.median_ms / 1000,
            longest=[machine_answers.JobWait(one.job, one.name, one.wait_ms / 1000) for one in waits.longest],
        ),
        people=_people(daemon, reader, bounds[0][0]),
    )


def _people(daemon: Daemon, reader: Reader, since: date) -> list[machine_answers.PersonDay]:
    """Return the GPU time of all users: what was stored, and what the lease folder shows now."""
    first = since.toordinal() - EPOCH
    found = {(day, uid): ms for day, uid, ms in reader.people_days(first)}
    for day, uid, ms in daemon.people_days():
        found[day, uid] = max(ms, found.get((day, uid), 0.0))
    names = {uid: users.name(uid) for _, uid in found}
    return [
        machine_answers.PersonDay(date.fromordinal(day + EPOCH).isoformat(), names[uid], ms / 1000)
        for (day, uid), ms in sorted(found.items())
        if day >= first and ms >= 1
    ]
