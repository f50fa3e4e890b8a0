"""Lists of jobs: filters, sort orders, pages, and the ids of a whole list for scrolling tables."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, cast

import msgspec
from msgspec import Meta

from dibs.daemon.service import Daemon
from dibs.errors import NotFound, UserError
from dibs.http_api.schemas import job_answers
from dibs.jobqueue.thread import now_ms
from dibs.model import devices, selectors
from dibs.model.devices import Inventory
from dibs.model.jobs import Job
from dibs.model.selectors import Atom
from dibs.store import pages
from dibs.store.pages import JobQuery
from dibs.store.writer import Reader
from dibs.submission import times

#: The most jobs on a page, and the default.
MOST, USUAL = 1000, 100
#: Times before and after all jobs, in wall-clock milliseconds.
NEVER, FOR_EVER = 0, 2**53
Id = Annotated[int, Meta(ge=0, lt=2**62)]
Limit = Annotated[int, Meta(ge=1, le=MOST)]


class ListQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The filters and the order of a list."""

    select: Annotated[list[str], Meta(description="Selectors as on the command line; several are a union.")] = []
    state: Annotated[
        str, Meta(description="States such as failed,timeout, or the groups unfinished, finished, active, bad.")
    ] = ""
    project: Annotated[str, Meta(description="Jobs of this project.")] = ""
    tag: Annotated[str, Meta(description="Jobs with this tag.")] = ""
    sweep: Annotated[Id | None, Meta(description="Runs of the sweep with this id.")] = None
    gpu: Annotated[
        str, Meta(description="Jobs whose latest attempt ran on this GPU: its index, its id or a part of the id.")
    ] = ""
    name: Annotated[str, Meta(max_length=selectors.LONGEST_PATTERN, description="A glob for the name.")] = ""
    text: Annotated[str, Meta(max_length=1000, description="A part of the name or the command; case is ignored.")] = ""
    since: Annotated[str, Meta(description="Submitted at or after this time: 2d (ago), 08:00, or a date and time.")] = (
        ""
    )
    until: Annotated[str, Meta(description="Submitted before this time; same format as `since`.")] = ""
    sort: Annotated[str, Meta(description=f"One of {', '.join(pages.SORTS)}; a leading - reverses the order.")] = "-id"


class PageQuery(ListQuery, forbid_unknown_fields=True, kw_only=True):
    """A page of a list. Without parameters, or with `select` alone, the answer is not paged."""

    limit: Annotated[Limit | None, Meta(description="Jobs per page. Default with other page parameters: 100.")] = None
    cursor: Annotated[str, Meta(description="`next` of the previous page.")] = ""
    per_group: Annotated[
        Limit, Meta(description="Waiting jobs of one submission, batch or sweep in the overview; `groups` counts all.")
    ] = MOST

    @property
    def is_paged(self) -> bool:
        """Return whether the query asks for a page."""
        return self != PageQuery(select=self.select, per_group=self.per_group)


def wanted(told: ListQuery, inventory: Inventory, now: datetime) -> JobQuery:
    """Return the filters and the order of a list."""
    chosen = selectors.parse(told.select) if told.select else ((selectors.Everything(),),)
    words = selectors.states(told.state) if told.state else None
    return JobQuery(selectors.narrowed(chosen, _also(told, inventory, now)), words, pages.sort(told.sort))


def _also(told: ListQuery, inventory: Inventory, now: datetime) -> list[Atom]:
    gpu = _gpu(told.gpu, inventory) if told.gpu else ""
    equal = {"project": told.project, "tag": told.tag, "sweep": told.sweep, "gpu": gpu}
    found: list[Atom] = [selectors.Is(name, value) for name, value in equal.items() if value not in ("", None)]
    if told.name:
        found.append(selectors.Like("name", told.name))
    if told.text:
        found.append(selectors.Text(told.text))
    if told.since or told.until:
        since = moment("since", told.since, now) if told.since else NEVER
        found.append(selectors.Between(since, moment("until", told.until, now) if told.until else FOR_EVER))
    return found


def _gpu(word: str, inventory: Inventory) -> str:
    try:
        return devices.find(inventory, word)
    except devices.UnknownDevice as error:
        raise NotFound(f"gpu expected an index or UUID: {error}.", "See `dibs gpus`.") from None


def moment(name: str, text: str, now: datetime) -> int:
    """Return a time in a query as wall-clock milliseconds."""
    try:
        return round(times.past(text, now).timestamp() * 1000)
    except UserError as error:
        raise UserError(f"{name} {error.message}", error.hint) from None
    except (OverflowError, ValueError):
        raise UserError(f'{name} expected a time, got "{text[:80]}", which is too far away.') from None


def get_bundles(daemon: Daemon, reader: Reader, query: ListQuery) -> job_answers.Bundles:
    """Return the sweeps and batches with several jobs in a list, with their ids and the number of jobs per state."""
    found = pages.bundles(reader, wanted(query, daemon.inventory, datetime.now()), now_ms())
    first = {job.id: job for job in reader.jobs(job_id for job_id, _ in found)}
    return job_answers.Bundles([_bundle(first[job_id], bundle) for job_id, bundle in found if job_id in first])


def _bundle(job: Job, bundle: pages.Bundle) -> job_answers.Bundle:
    name = job.spec.sweep if job.spec.sweep is not None else job.spec.name
    batch = None if bundle.sweep_id is not None else bundle.batch
    return job_answers.Bundle(
        bundle.sweep_id, batch, name or "", len(bundle.ids), bundle.counts, pages.written(bundle.ids)
    )


def get_index(daemon: Daemon, reader: Reader, query: ListQuery) -> job_answers.Index:
    """Return the number of jobs in a list and their ids; as ranges if it is sorted by id."""
    what = wanted(query, daemon.inventory, datetime.now())
    if what.sort.by == "id":
        total, ranges, is_cut = pages.runs(reader, what, now_ms())
        return job_answers.Index(total=total, ranges=ranges, more=is_cut)
    total, ids, is_cut = pages.ids(reader, what, now_ms())
    # SQLite already encoded the list as JSON; it may have a million ids.
    return job_answers.Index(total=total, ids=cast("list[int]", msgspec.Raw(ids.encode())), more=is_cut)
