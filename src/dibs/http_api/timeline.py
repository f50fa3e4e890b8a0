"""What ran where and when, what runs, and what would start next: the picture of the devices over time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from dibs.daemon.service import Daemon
from dibs.http_api import exchange, job_lists
from dibs.http_api.schemas.machine_answers import Bar, Lane, Timeline
from dibs.jobqueue.thread import now_ms
from dibs.model import serialization
from dibs.model.devices import DeviceId
from dibs.model.jobs import Job
from dibs.scheduling.forecasts import Planned
from dibs.store.writer import Reader

#: Bars of the past, and of the plan: more than a picture can show.
MOST_PAST, MOST_PLANNED = 5000, 200


class TimelineQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which stretch of time; what runs and what is planned is always there."""

    since: Annotated[str, Meta(description="From then on: 2d (ago), 08:00, or a date and time.")] = "6h"
    until: Annotated[str, Meta(description="Before that; now if it is left out.")] = ""


async def get_timeline(request: web.Request) -> web.Response:
    """Return which jobs had which GPUs when, which have them now, and which would get them next."""
    daemon = request.app[exchange.DAEMON]
    told, here = exchange.query(request, TimelineQuery), datetime.now()
    since = job_lists.moment("since", told.since, here)
    until = job_lists.moment("until", told.until, here) if told.until else now_ms()
    return await exchange.answer(daemon, lambda reader: _timeline(daemon, reader, since, until))


def _timeline(daemon: Daemon, reader: Reader, since: int, until: int) -> Timeline:
    now = now_ms()
    past = reader.attempts_between(since, until, MOST_PAST)
    bars = [_bar(s.job, s.name, s.attempt, s.devices, s.started_at, s.finished_at, s.word) for s in reversed(past)]
    ahead = daemon.outlook(reader).plan_ahead(MOST_PLANNED)
    # What is just starting has no moment yet.
    bars += [_running(job, job.started_at or now, ahead.ends.get(job.id)) for job in reader.active() if job.allocation]
    bars += [_planned(reader.job(plan.id), plan) for plan in ahead.planned if plan.devices]
    return Timeline(_lanes(daemon, bars), bars, len(past) == MOST_PAST, serialization.moment(now))


def _running(job: Job, began: int, end: int | None) -> Bar:
    bar = _bar(job.id, job.spec.name, job.attempt, job.allocation, began, None, job.word)
    bar.expected_end = serialization.moment(end)
    return bar


def _planned(job: Job, plan: Planned) -> Bar:
    bar = _bar(job.id, job.spec.name, job.attempt, plan.devices, plan.at, plan.until, job.word)
    bar.is_plan = True
    return bar


def _bar(
    job: int, name: str, attempt: int, devices: tuple[DeviceId, ...], began: int, ended: int | None, word: str
) -> Bar:
    return Bar(
        job=job,
        name=name,
        attempt=attempt,
        gpu_ids=list(devices),
        begin=serialization.moment(began),
        end=serialization.moment(ended),
        state=word,
        is_plan=False,
        # Only of a job that runs.
        expected_end=None,
    )


def _lanes(daemon: Daemon, bars: list[Bar]) -> list[Lane]:
    """Return a lane for each device, also for those that are gone but were used."""
    lanes = [Lane(each.id, each.index, each.name) for each in daemon.inventory.devices]
    gone = dict.fromkeys(device for bar in bars for device in bar.gpu_ids if device not in daemon.inventory.by_id)
    return lanes + [Lane(device, None, device) for device in gone]
