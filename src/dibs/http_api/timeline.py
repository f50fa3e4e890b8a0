"""`GET /v1/timeline`: past, running and planned jobs on each GPU over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from dibs.daemon.service import Daemon
from dibs.http_api import job_lists, reservations
from dibs.http_api.schemas.machine_answers import Bar, Lane, Timeline
from dibs.jobqueue.thread import now_ms
from dibs.model.devices import DeviceId
from dibs.model.jobs import Job
from dibs.model.serialization import moment
from dibs.store.writer import Reader

#: The most bars of the past and of the plan: more than the page can show.
MOST_PAST, MOST_PLANNED = 5000, 200
#: Milliseconds for which reservations are returned at least, like planned jobs.
RESERVED_FOR_MS = 24 * 3600 * 1000


class TimelineQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The time range; running and planned jobs are always included."""

    since: Annotated[str, Meta(description="Start of the timeline: 2d (ago), 08:00, or a date and time.")] = "6h"
    until: Annotated[str, Meta(description="End of the timeline. Default: now.")] = ""


def get_timeline(daemon: Daemon, reader: Reader, query: TimelineQuery) -> Timeline:
    """Return which jobs used which GPUs and when, which use them now, and which are planned next."""
    now, here = now_ms(), datetime.now()
    since = job_lists.moment("since", query.since, here)
    until = job_lists.moment("until", query.until, here) if query.until else now
    past = reader.attempts_between(since, until, MOST_PAST)
    bars = [
        Bar(s.job, s.name, s.attempt, list(s.devices), moment(s.started_at), moment(s.finished_at), s.word, False, None)
        for s in reversed(past)
    ]
    ahead = daemon.outlook(reader).plan_ahead(MOST_PLANNED)
    for job in reader.active():
        if job.allocation:
            # A job that is starting has no start time yet.
            bar = _bar(job, job.allocation, job.started_at or now, None)
            bar.expected_end = moment(ahead.ends.get(job.id))
            bars.append(bar)
    bars += [_bar(reader.job(p.id), p.devices, p.at, p.until, is_plan=True) for p in ahead.planned if p.devices]
    kept = reservations.until(daemon, max(until, now + RESERVED_FOR_MS) / 1000)
    return Timeline(_lanes(daemon, bars), bars, len(past) == MOST_PAST, moment(now), kept)


def _bar(job: Job, devices: Sequence[DeviceId], began: int, ended: int | None, *, is_plan: bool = False) -> Bar:
    name, begin, end = job.spec.name, moment(began), moment(ended)
    return Bar(job.id, name, job.attempt, list(devices), begin, end, job.word, is_plan, None, job.spec.sweep)


def _lanes(daemon: Daemon, bars: list[Bar]) -> list[Lane]:
    """Return a lane for each GPU, including GPUs that were used but are gone."""
    lanes = [Lane(each.id, each.index, each.name) for each in daemon.inventory.devices]
    gone = dict.fromkeys(device for bar in bars for device in bar.gpu_ids if device not in daemon.inventory.by_id)
    return lanes + [Lane(device, None, device) for device in gone]
