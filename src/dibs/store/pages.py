"""Lists of jobs in pages: the next rows, and the ids of the whole list.

A page continues after the last row of the previous page (keyset), never by counting rows, so the thousandth page costs
as much as the first. Sorting by id, name and end and filtering by state use indexes; other sorts read every job once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dibs.errors import UserError
from dibs.model import selectors
from dibs.model.jobs import Job, JobId
from dibs.store.reader import Reader

SORTS = ("id", "submitted", "started", "finished", "priority", "duration", "name")
#: Maximum number of ids in one list.
MOST_IDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Sort:
    """The order of a list of jobs; ties are ordered by id in the same direction."""

    by: str = "id"
    is_descending: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """The last row of a page: its sort value, its id, and the time for which durations were computed."""

    value: int | str
    id: int
    now: int


@dataclass(frozen=True, slots=True)
class JobQuery:
    """The content and order of a list."""

    chosen: selectors.Selection
    #: The displayed states; None: any.
    words: tuple[str, ...] | None
    sort: Sort


@dataclass(slots=True)
class Bundle:
    """The jobs of one sweep or batch in a list, and how many of them are in which state."""

    sweep_id: int | None
    batch: int
    ids: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def sort(text: str) -> Sort:
    """Parse an order such as `-id` or `name`."""
    by = text.removeprefix("-")
    if by not in SORTS:
        raise UserError(f'sort expected one of {", ".join(SORTS)}, or one with "-" in front, got "{text[:80]}".')
    return Sort(by, text.startswith("-"))


def write_cursor(order: Sort, place: Place) -> str:
    """Return the end of a page as the cursor for the next one."""
    told = json.dumps([order.by, order.is_descending, place.value, place.id, place.now])
    return base64.urlsafe_b64encode(told.encode()).decode().rstrip("=")


def read_cursor(order: Sort, text: str) -> Place:
    """Return the end of the previous page."""
    try:
        told = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        by, is_descending, value, job_id, now = told
        # A lone surrogate cannot be part of a name.
        str(value).encode()
    except (ValueError, TypeError, RecursionError):
        raise _unread(text) from None
    kind = str if order.by == "name" else int
    if (by, is_descending) != (order.by, order.is_descending):
        raise UserError("cursor expected the sort of the page it came with, got another.", "Begin without a cursor.")
    numbers = [job_id, now] if kind is str else [job_id, now, value]
    if type(value) is not kind or not all(type(n) is int and abs(n) < 2**62 for n in numbers):
        raise _unread(text)
    return Place(value, job_id, now)


def _unread(text: str) -> UserError:
    return UserError(f'cursor expected what `next` said, got "{text[:80]}".', "Begin without a cursor.")


def page(reader: Reader, wanted: JobQuery, after: Place | None, most: int, now: int) -> tuple[list[Job], Place | None]:
    """Return at most `most` jobs, and the place where the next page continues; None: there is no next page."""
    moment = after.now if after else now
    query, values = _query(reader, wanted, after, moment)
    found = reader.connection.execute(query, [*values, most + 1]).fetchall()
    jobs = reader.jobs(JobId(job_id) for _, job_id in found[:most])
    if len(found) <= most:
        return jobs, None
    value, job_id = found[most - 1]
    return jobs, Place(value, job_id, moment)


def runs(reader: Reader, wanted: JobQuery, now: int, most: int = MOST_IDS) -> tuple[int, str, bool]:
    """Return the number of jobs in a list by id, their ids as `900-1000,1-20` in its order, and whether it was cut."""
    if wanted.chosen == ((selectors.Everything(),),):
        total, ends = _counted(reader, wanted.words), _ends(reader, wanted, now)
        if 0 < total <= most and ends[-1] - ends[0] + 1 == total:
            # Usually no id in between is missing; then a million rows need not be read.
            return total, _written([(ends[0], ends[-1])]), False
    query, values = _query(reader, wanted, None, now)
    cursor = reader.connection.execute(query, [*values, most + 1])
    found = list(_runs((row[1] for row in cursor), -1 if wanted.sort.is_descending else 1))
    total = sum(abs(last - first) + 1 for first, last in found)
    if total > most:
        first, last = found.pop()
        if first != last:
            found.append((first, last + (1 if wanted.sort.is_descending else -1)))
    return min(total, most), _written(found), total > most


def _counted(reader: Reader, words: tuple[str, ...] | None) -> int:
    """Return the stored number of jobs in these states; None: any state."""
    return sum(count for word, count in reader.counts().items() if words is None or word in words)


def _ends(reader: Reader, wanted: JobQuery, now: int) -> list[int]:
    """Return the first and the last id of a list; nothing if it is empty."""
    found = []
    for is_descending in (False, True):
        query, values = _query(reader, replace(wanted, sort=Sort("id", is_descending)), None, now)
        found += [job_id for _, job_id in reader.connection.execute(query, [*values, 1])]
    return found


def ids(reader: Reader, wanted: JobQuery, now: int, most: int = MOST_IDS) -> tuple[int, str, bool]:
    """Return the number of jobs in a list, their ids in its order as JSON text, and whether it was cut."""
    query, values = _query(reader, wanted, None, now)
    whole = reader.queries["page_ids"].replace("{page}", query)
    total, text = reader.connection.execute(whole, [*values, most + 1]).fetchone()
    if total > most:
        return most, text[: text.rindex(",")] + "]", True
    return total, text, False


def bundles(reader: Reader, wanted: JobQuery, now: int, most: int = MOST_IDS) -> list[tuple[JobId, Bundle]]:
    """Return the sweeps and batches with several jobs in a list, each with one of its jobs, in order of the list."""
    query, values = _query(reader, wanted, None, now)
    whole = reader.queries["bundles"].replace("{page}", query)
    found: dict[tuple[int | None, int], Bundle] = {}
    for job_id, sweep_id, batch, word in reader.connection.execute(whole, [*values, most + 1]):
        bundle = found.setdefault((sweep_id, 0 if sweep_id is not None else batch), Bundle(sweep_id, batch))
        bundle.ids.append(job_id)
        bundle.counts[word] = bundle.counts.get(word, 0) + 1
    return [(JobId(each.ids[0]), each) for each in found.values() if len(each.ids) > 1]


def written(ids: Iterable[int]) -> str:
    """Return ids as ascending ranges: `1-20,23`."""
    return _written(_runs(sorted(ids), 1))


def _query(reader: Reader, wanted: JobQuery, after: Place | None, now: int) -> tuple[str, list[Any]]:
    """Return the query for a list from one place on, and its values except the last, the limit."""
    order = wanted.sort
    way = "descending" if order.is_descending else "ascending"
    where, chosen = reader.where(wanted.chosen, now)
    arms: list[str] = []
    values: list[Any] = []
    for by, arm, told in _sorted_arms(reader, wanted.words, order.by):
        expression = reader.queries[f"sort_{by}"]
        moments = [now] * expression.count("?")
        beyond, limits = _beyond(reader, by, way, after, moments)
        conditions = f"{arm} AND {beyond} AND ({where})"
        arms.append(reader.queries["page"].replace("{sort}", expression).replace("{where}", conditions))
        values += [*moments, *told, *limits, *chosen]
    return " UNION ALL ".join(arms) + " " + reader.queries[f"order_{way}"], values


def _beyond(reader: Reader, by: str, way: str, after: Place | None, moments: list[int]) -> tuple[str, list[Any]]:
    if by == "id":
        # The first page gets a bound beyond every id, so that all pages use one query.
        begin = 2**62 if way == "descending" else 0
        return reader.queries[f"after_id_{way}"], [begin if after is None else after.id]
    if after is None:
        return reader.queries["where_all"], []
    if by == "unfinished":
        return reader.queries[f"after_unfinished_{way}"], [after.value, after.id]
    condition = reader.queries[f"after_{way}"].replace("{sort}", reader.queries[f"sort_{by}"])
    return condition, [*moments, after.value, after.id]


def _sorted_arms(reader: Reader, words: tuple[str, ...] | None, by: str) -> Iterator[tuple[str, str, list[Any]]]:
    """Return the arms of a list, each with its sort key."""
    if by == "finished" and words is None:
        # The index has only jobs that have a time; all others have the same key.
        yield "finished_only", reader.queries["arm_finished"], []
        yield "unfinished", reader.queries["arm_unfinished"], []
        return
    for arm, values in _arms(reader, words):
        yield by, arm, values


def _arms(reader: Reader, words: tuple[str, ...] | None) -> Iterator[tuple[str, list[Any]]]:
    """Return a condition and its values for each subset of jobs that has its own index."""
    if words is None:
        yield reader.queries["where_all"], []
        return
    for word in words:
        if word in selectors.GROUP_WORDS["finished"]:
            yield reader.queries["arm_ended"], [word]
        elif word not in selectors.GROUP_WORDS["active"]:
            yield reader.queries["arm_waiting"], [word]
    if active := [word for word in words if word in selectors.GROUP_WORDS["active"]]:
        yield reader.queries["where_active"], [json.dumps(active)]


def _runs(numbers: Iterable[int], step: int) -> Iterator[tuple[int, int]]:
    """Return the first and the last id of each run of consecutive ids, ascending or descending."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + step:
            last = number
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = number
    if first is not None and last is not None:
        yield first, last


def _written(found: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{a}" if a == b else f"{min(a, b)}-{max(a, b)}" for a, b in found)
