"""Read jobs: the overview and lists, one job in full, its events, and why it does not run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, cast

import msgspec
from aiohttp import web
from msgspec import Meta

from dibs.daemon.service import Daemon
from dibs.errors import Conflict
from dibs.http_api import exchange, gpus, job_lists, job_numbers
from dibs.http_api.exchange import Seconds
from dibs.http_api.schemas import job_answers, machine_answers, wire
from dibs.jobqueue import outlook, turns
from dibs.jobqueue.outlook import QueueOutlook
from dibs.jobqueue.thread import now_ms
from dibs.logs.reports import Numbers
from dibs.model import selectors, serialization
from dibs.model.devices import Inventory, indices
from dibs.model.jobs import Job, JobId
from dibs.scheduling import views
from dibs.scheduling.forecasts import Forecast
from dibs.store import groups, pages
from dibs.store.writer import Reader
from dibs.version import __version__

#: Rows of the overview; `select=all` returns every job.
UNFINISHED_SHOWN, FINISHED_SHOWN = 1000, 20
#: Submissions and sweeps of which the overview has at least one finished job, if there are as many.
GROUPS_SHOWN = 12
#: Milliseconds for which a failure is recent: a day.
LATELY_MS = 86_400_000
#: Seconds for which one job, and a list, wait for metrics that are being read.
READING_FOR_S, LIST_READING_FOR_S = 10.0, 1.0
#: Jobs that a list checks for such metrics.
UNREAD_LOOKED_AT = 1000
#: Jobs in the cache; a kilobyte each.
MOST_TEXTS = 2000


class JobQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """When to return a job."""

    until: Annotated[
        str, Meta(description="Wait until the job has started or finished.", pattern="^(started|finished)?$")
    ] = ""
    wait_s: Seconds = 0.0


async def get_jobs(daemon: Daemon, texts: Texts, query: job_lists.PageQuery) -> web.Response:
    """Return the overview, the jobs that match `select`, or a page of a list."""
    if query.is_paged:
        return await _page(daemon, query, texts)
    chosen = selectors.parse(query.select)

    def found(reader: Reader, seen: QueueOutlook) -> list[Job]:
        if query.select:
            now = now_ms()
            return turns.require(reader.select(chosen, now), chosen, reader, now)
        return _overview(reader, seen, query.per_group)

    def has_unread(reader: Reader) -> bool:
        unread = {job_id for job_id, _ in reader.unread_results(UNREAD_LOOKED_AT)}
        return bool(unread) and any(job.id in unread for job in found(reader, daemon.outlook(reader)))

    def answer(reader: Reader) -> job_answers.Jobs:
        seen = daemon.outlook(reader)
        jobs = found(reader, seen)
        listed = _list(daemon, reader, seen, jobs, texts)
        if not query.select:
            listed.groups = [_group(job, group) for job, group in groups.groups_of_jobs(reader, jobs)]
        return listed

    await job_numbers.are_read(daemon, has_unread, LIST_READING_FOR_S)
    return await exchange.answer(daemon, answer)


async def _page(daemon: Daemon, told: job_lists.PageQuery, texts: Texts) -> web.Response:
    """Answer with one page, without waiting for metrics that are being read."""
    wanted = job_lists.wanted(told, daemon.inventory, datetime.now())
    after = pages.read_cursor(wanted.sort, told.cursor) if told.cursor else None

    def answer(reader: Reader) -> job_answers.Jobs:
        jobs, place = pages.page(reader, wanted, after, told.limit or job_lists.USUAL, now_ms())
        following = None if place is None else pages.write_cursor(wanted.sort, place)
        page = _list(daemon, reader, daemon.outlook(reader), jobs, texts)
        page.next = following
        return page

    return await exchange.answer(daemon, answer)


def _list(daemon: Daemon, reader: Reader, seen: QueueOutlook, jobs: list[Job], texts: Texts) -> job_answers.Jobs:
    return job_answers.Jobs(
        # Raw JSON stands for the Structs it was encoded from.
        jobs=cast("list[job_answers.Job]", [texts.of(daemon, Shown.of(daemon, reader, seen, job)) for job in jobs]),
        queue=job_answers.PauseState(bool(reader.fact(turns.PAUSED))),
        counts=reader.counts(),
        failed_lately=reader.failed_since(now_ms() - LATELY_MS),
        machine=gpus.machine(daemon, seen),
        daemon=job_answers.Answerer(__version__, daemon.identity.pid),
    )


def _overview(reader: Reader, seen: QueueOutlook, per_group: int) -> list[Job]:
    """Return unfinished and recent jobs; if these are too many, always include those that run or start next."""
    ids = groups.unfinished(reader, UNFINISHED_SHOWN, per_group)
    ids += groups.latest(reader, FINISHED_SHOWN, GROUPS_SHOWN)
    jobs = {job.id: job for job in reader.jobs(ids)}
    jobs |= {job.id: job for job in reader.active()}
    for waiting in views.order(seen.view.waiting)[:FINISHED_SHOWN]:
        if waiting.id not in jobs:
            jobs[waiting.id] = reader.job(waiting.id)
    return sorted(jobs.values(), key=lambda job: job.id)


def _group(job: Job, group: groups.Group) -> job_answers.Group:
    own = {"sweep": job.spec.sweep, "project": job.spec.project, "batch": job.spec.batch or None}
    return wire.fill(job_answers.Group, group, submitted_at=serialization.moment(job.submitted_at), **own)


@dataclass(frozen=True, slots=True)
class Shown:
    """A job as lists show it, with the parts that are not in its database row."""

    job: Job
    reason: str | None
    #: Its last metrics.
    report: Numbers | None
    #: Warnings about its GPUs, or about GPUs that it uses but should not.
    marks: list[str]
    inventory: Inventory

    @classmethod
    def of(cls, daemon: Daemon, reader: Reader, seen: QueueOutlook, job: Job) -> Shown:
        """Collect the current facts about a job."""
        reader.pause()
        reason = seen.reason(job).text if job.is_waiting else seen.active_reason(job) if job.is_active else None
        marks = list(daemon.devices.last.marks.get(job.id, ()))
        return cls(job, reason, job_numbers.numbers_of_job(daemon, reader, job), marks, seen.inventory)

    def is_same(self, other: Shown) -> bool:
        """Return whether another has the same JSON."""
        # Identity is enough: the reader returns the same object while a row has not changed.
        return self.job is other.job and self._beside() == other._beside()

    def _beside(self) -> tuple[object, ...]:
        return self.reason, self.report, self.marks, indices(self.inventory, self.job.allocation)

    def fields(self, daemon: Daemon) -> dict[str, Any]:
        """Return the fields of `job_answers.Job`. A notification has all of them except the last two."""
        return serialization.job_to_json(
            self.job,
            self.inventory,
            user=daemon.identity.user,
            log=daemon.files.log(self.job),
            stderr=daemon.files.stderr(self.job),
            reason=self.reason,
        ) | {"report": self.report, "marks": self.marks}


class Texts:
    """A cache of the JSON of jobs: most rows of a reloaded list have not changed. Used from any thread."""

    def __init__(self) -> None:
        self._kept: dict[JobId, tuple[Shown, msgspec.Raw]] = {}

    def of(self, daemon: Daemon, shown: Shown) -> msgspec.Raw:
        kept = self._kept.get(shown.job.id)
        if kept is None or not kept[0].is_same(shown):
            if len(self._kept) >= MOST_TEXTS:
                self._kept.clear()
            text = msgspec.json.encode(job_answers.Job(**shown.fields(daemon)))
            kept = self._kept[shown.job.id] = shown, msgspec.Raw(text)
        return kept[1]


async def get_job(daemon: Daemon, id: JobId, query: JobQuery) -> web.Response:
    """Return one job; with `until` and `wait_s`, wait until it has started or finished."""

    def is_reached(job: Job) -> bool:
        return job.is_finished or not query.until or (query.until == "started" and job.started_at is not None)

    await daemon.ask_until(lambda reader: reader.job(id), is_reached, exchange.wait_for(query.wait_s))
    if not query.until:
        await job_numbers.are_read(daemon, lambda reader: reader.is_unread(id), READING_FOR_S)
    return await exchange.answer(daemon, lambda reader: _whole(daemon, reader, reader.job(id)))


def _whole(daemon: Daemon, reader: Reader, job: Job) -> job_answers.WholeJob:
    # Imported late: it loads the options of the command line, which nothing else here needs.
    from dibs.submission import command_line

    attempts = [
        wire.fill(
            job_answers.Attempt,
            past,
            outcome=past.outcome,
            cause=past.cause.value if past.cause else None,
            gpu_ids=list(past.allocation),
            gpu_indices=list(indices(daemon.inventory, past.allocation)),
            started_at=serialization.moment(past.started_at),
            finished_at=serialization.moment(past.finished_at),
            log=daemon.files.log(job, past.attempt),
        )
        for past in reader.attempts(job.id)
    ]
    seen = daemon.outlook(reader)
    forecast = seen.expected(job) if job.is_waiting else Forecast()
    return job_answers.WholeJob(
        **Shown.of(daemon, reader, seen, job).fields(daemon),
        cli=command_line.line(job.spec, now_ms()),
        hint=seen.reason(job).hint if job.is_waiting else "",
        attempts=attempts,
        env=serialization.mask_environ(job.spec.env),
        environment=job.spec.environ_from or None,
        expected_start=expected_start(forecast, seen.inventory),
        unknown=unknown_start(forecast),
        use=gpus.use(daemon, reader, job),
    )


def get_events(reader: Reader, id: JobId) -> job_answers.Events:
    """Return all events of a job."""
    reader.job(id)
    found = reader.events(id)
    return job_answers.Events([job_answers.Event(serialization.moment(e.at), e.kind, e.detail) for e in found])


async def get_script(daemon: Daemon, id: JobId) -> machine_answers.StartScript:
    """Return what the engine of a job gets to start it."""
    job = await daemon.ask(lambda reader: reader.job(id))
    if job.is_local:
        raise Conflict(f"job {id} runs on this machine, without a script.", "Choose a cluster with --engine NAME.")
    remote = daemon.remotes.get(job.engine)
    if remote is None:
        raise Conflict(f"job {id}: its engine {job.engine} is not in the settings of the daemon.")
    text = await asyncio.to_thread(lambda: remote.engine.script(remote.packer.start(job)))
    return machine_answers.StartScript(job.engine, text)


def get_why(daemon: Daemon, reader: Reader, id: JobId) -> job_answers.Why:
    """Return why a job is not running, or its current state."""
    job = reader.job(id)
    reason = outlook.explain_state(job, daemon.lease_folder, daemon.remotes)
    forecast, inventory = Forecast(), daemon.inventory
    if job.is_waiting:
        seen = daemon.outlook(reader)
        reason, forecast, inventory = seen.reason(job), seen.expected(job), seen.inventory
    return job_answers.Why(
        id=job.id,
        state=job.word,
        reason=reason.text,
        hint=reason.hint,
        expected_start=expected_start(forecast, inventory),
        unknown=unknown_start(forecast),
    )


def expected_start(forecast: Forecast, inventory: Inventory) -> job_answers.ExpectedStart | None:
    """Return when and where a job is expected to start; None if that is unknown."""
    if forecast.range is None:
        return None
    earliest, latest = forecast.range
    return job_answers.ExpectedStart(
        earliest=serialization.moment(earliest),
        latest=serialization.moment(latest),
        gpu_ids=list(forecast.devices),
        gpu_indices=list(indices(inventory, forecast.devices)),
    )


def unknown_start(forecast: Forecast) -> job_answers.Unknown | None:
    """Return why the start cannot be forecast; None if it can."""
    return job_answers.Unknown(forecast.unknown, forecast.hint) if forecast.unknown else None
