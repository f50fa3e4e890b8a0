"""Lists of jobs in pages, compared with the same list made in Python, and how the store finds the rows."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import build
from dibs.errors import UserError
from dibs.model import selectors
from dibs.model.jobs import Job
from dibs.store import pages
from dibs.store.pages import JobQuery, Place, Sort
from dibs.store.reader import Reader
from dibs.store.writer import Store

EVERYTHING = ((selectors.Everything(),),)
NOW = build.NOW + 10_000


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A queue of 120 jobs in all states, some of them deleted."""
    path = tmp_path_factory.mktemp("paging") / "0.db"
    with contextlib.closing(Store.open(path)) as store:
        for number in range(120):
            spec = build.spec(
                name=f"n{number % 7}", project=f"p{number % 3}", priority=number % 4, tags=("x",) * (number % 5 == 0)
            )
            store.submit([spec], build.NOW + number // 2)
        for number in range(120):
            job = store.job(build.JobId(number + 1))
            for step in range(number % 9):
                event = build.event(job, number + step, build.NOW + 200 + (number * 37) % 100 + step)
                job = store.record(job, event)
        store.forget([job.id for job in store.select(selectors.parse(["finished"]), NOW)][3:6], with_checkpoints=False)
    with contextlib.closing(Reader.open(path)) as own:
        yield own


def value(job: Job, by: str) -> int | str:
    """Return the sort key of a job."""
    began = -1 if job.started_at is None else job.started_at
    return {
        "id": job.id,
        "submitted": job.submitted_at,
        "started": began,
        "finished": -1 if job.finished_at is None else job.finished_at,
        "priority": job.spec.priority,
        "duration": -1 if job.started_at is None else (job.finished_at or NOW) - job.started_at,
        "name": job.spec.name,
    }[by]


def listed(reader: Reader, wanted: JobQuery, most: int) -> list[int]:
    """Read all pages."""
    found: list[int] = []
    after: Place | None = None
    while True:
        jobs, after = pages.page(reader, wanted, after, most, NOW)
        assert len(jobs) <= most
        found += [job.id for job in jobs]
        if after is None:
            return found
        assert len(jobs) == most
        after = pages.read_cursor(wanted.sort, pages.write_cursor(wanted.sort, after))


words = some.none() | some.sets(some.sampled_from(selectors.STATE_WORDS), min_size=1).map(
    lambda found: tuple(sorted(found))
)
filters = some.lists(
    some.sampled_from(
        [
            selectors.Is("project", "p1"),
            selectors.Is("tag", "x"),
            selectors.Is("gpu", "GPU-0"),
            selectors.Like("name", "n[1-4]"),
            selectors.Like("name", "n5"),
            selectors.Text("N3"),
            selectors.Between(build.NOW + 10, build.NOW + 40),
        ]
    ),
    max_size=2,
    unique=True,
)
sorts = some.builds(Sort, some.sampled_from(pages.SORTS), some.booleans())


@settings(max_examples=300)
@given(chosen=words, also=filters, sort=sorts, most=some.integers(1, 50))
def test_all_pages_together_are_the_list(reader, chosen, also, sort, most):
    """For any filter, order and page size; and the index has the same ids."""
    wanted = JobQuery(selectors.narrowed(EVERYTHING, also), chosen, sort)
    jobs = [job for job in reader.select(EVERYTHING, NOW) if chosen is None or job.word in chosen]
    jobs = [job for job in jobs if all(fits(job, atom) for atom in also)]
    jobs.sort(key=lambda job: (value(job, sort.by), job.id), reverse=sort.is_descending)
    expected = [job.id for job in jobs]
    assert listed(reader, wanted, most) == expected
    total, text, is_cut = pages.ids(reader, wanted, NOW)
    assert (total, text.replace(" ", ""), is_cut) == (len(expected), str(expected).replace(" ", ""), False)
    if sort.by == "id":
        total, ranges, is_cut = pages.runs(reader, wanted, NOW)
        assert (total, unrolled(ranges, sort.is_descending), is_cut) == (len(expected), expected, False)


def fits(job: Job, atom: selectors.Atom) -> bool:
    match atom:
        case selectors.Is("project", name):
            return job.spec.project == name
        case selectors.Is("tag", tag):
            return tag in job.spec.tags
        case selectors.Is("gpu", device):
            return device in job.allocation
        case selectors.Like("name", "n5"):
            return job.spec.name == "n5"
        case selectors.Like("name", _):
            return job.spec.name in ("n1", "n2", "n3", "n4")
        case selectors.Text(part):
            return part.lower() in job.spec.name or part.lower() in job.spec.command.lower()
        case selectors.Between(since, until):
            return since <= job.submitted_at < until
    raise AssertionError(atom)


def unrolled(ranges: str, is_descending: bool) -> list[int]:
    found: list[int] = []
    for part in ranges.split(",") if ranges else []:
        low, _, high = part.partition("-")
        numbers = range(int(low), int(high or low) + 1)
        found += reversed(numbers) if is_descending else numbers
    return found


@settings(max_examples=50)
@given(sort=sorts, most=some.integers(1, 130))
def test_an_index_that_is_too_long_is_truncated_and_marked(reader, sort, most):
    wanted = JobQuery(EVERYTHING, None, sort)
    whole = listed(reader, wanted, 200)
    total, text, is_cut = pages.ids(reader, wanted, NOW, most)
    assert (total, text.strip("[]"), is_cut) == (
        min(most, len(whole)),
        ",".join(map(str, whole[:most])),
        len(whole) > most,
    )
    if sort.by == "id":
        total, ranges, is_cut = pages.runs(reader, wanted, NOW, most)
        assert (unrolled(ranges, sort.is_descending), is_cut) == (whole[:most], len(whole) > most)
        assert total == min(most, len(whole))


def steps(reader: Reader, wanted: JobQuery) -> int:
    """Return how many steps SQLite makes for the ids of a list."""
    count = [0]

    def step() -> None:
        count[0] += 1

    reader.connection.set_progress_handler(step, 1)
    pages.runs(reader, wanted, NOW)
    reader.connection.set_progress_handler(None, 1)
    return count[0]


@pytest.mark.parametrize("words", [None, ("queued",), ("held", "queued")])
def test_consecutive_ids_of_a_state_are_not_read_one_by_one(tmp_path: Path, words) -> None:
    wanted = JobQuery(EVERYTHING, words, Sort())
    with contextlib.closing(Store.open(tmp_path / "0.db")) as store:
        store.submit([build.spec()] * 10, build.NOW)
        few = steps(store, wanted)
        store.submit([build.spec()] * 1000, build.NOW)
        assert pages.runs(store, wanted, NOW) == (1010, "1-1010", False)
        assert steps(store, wanted) < few + 100


def plan(reader: Reader, chosen: tuple[str, ...] | None, sort: str, *also: selectors.Atom) -> list[str]:
    wanted = JobQuery(selectors.narrowed(EVERYTHING, also), chosen, pages.sort(sort))
    query, values = pages._query(reader, wanted, None, NOW)
    return [row[3] for row in reader.connection.execute(f"EXPLAIN QUERY PLAN {query}", [*values, 50])]


@pytest.mark.parametrize("sort", ["-id", "id"])
@pytest.mark.parametrize("word", [None, *selectors.STATE_WORDS, *selectors.GROUP_WORDS, "failed,queued,running"])
def test_pages_by_id_and_state_read_no_other_job(reader: Reader, word: str | None, sort: str) -> None:
    steps = plan(reader, None if word is None else selectors.states(word), sort)
    assert [step for step in steps if step.startswith("SCAN jobs") or "TEMP B-TREE" in step] == []
    assert any(step.startswith("SEARCH jobs USING") for step in steps)


def test_a_project_is_found_by_its_index(reader: Reader) -> None:
    (step,) = plan(reader, None, "-id", selectors.Is("project", "p1"))
    assert "INDEX jobs_of_project (project=? AND id<?)" in step


@pytest.mark.parametrize("sort", ["name", "-name"])
def test_pages_by_name_read_no_other_job(reader: Reader, sort: str) -> None:
    assert plan(reader, None, sort) == ["SCAN jobs USING COVERING INDEX jobs_of_name"]


@pytest.mark.parametrize("sort", ["finished", "-finished"])
def test_pages_by_end_sort_only_the_ids_of_unfinished_jobs(reader: Reader, sort: str) -> None:
    steps = plan(reader, None, sort)
    assert [step for step in steps if "jobs" in step or "TEMP" in step] == [
        "SCAN jobs USING INDEX jobs_finished",
        "SCAN jobs USING INDEX jobs_unfinished",
        "USE TEMP B-TREE FOR ORDER BY",
    ]


def test_jobs_of_one_name_are_found_by_an_index(reader: Reader) -> None:
    (step,) = plan(reader, None, "-id", selectors.Like("name", "n1"))
    assert "INDEX jobs_of_name (name=? AND id<?)" in step


def test_a_pattern_for_names_keeps_the_order_of_the_page(reader: Reader) -> None:
    steps = plan(reader, None, "-id", selectors.Like("name", "n*"))
    assert [step for step in steps if "TEMP B-TREE" in step] == []


def test_paging_continues_correctly_while_jobs_come_and_go(tmp_path: Path) -> None:
    """Nothing that was there all the time is repeated or left out."""
    with contextlib.closing(Store.open(tmp_path / "0.db")) as store:
        store.submit([build.spec()] * 30, build.NOW)
        wanted = JobQuery(EVERYTHING, None, Sort())
        first, after = pages.page(store, wanted, None, 10, NOW)
        store.submit([build.spec()] * 5, build.NOW)
        second, after = pages.page(store, wanted, after, 10, NOW)
        assert [job.id for job in (*first, *second)] == list(range(30, 10, -1))


HALF = base64.urlsafe_b64encode(b'["id", true, "\\ud800", 1, 1]').decode().rstrip("=")
DEEP = base64.urlsafe_b64encode(b"[" * 30_000).decode()


@pytest.mark.parametrize(
    "text",
    [HALF, DEEP, "x", "!!", "é", "W10", "e30", "WyJpZCIsIHRydWUsIDEsIDEsIDFd" * 9, "WyJpZCIsIHRydWUsICJ4IiwgMSwgMV0"],
)
def test_an_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="cursor expected what `next` said"):
        pages.read_cursor(Sort(), text)


def test_a_cursor_of_another_sort_is_refused() -> None:
    cursor = pages.write_cursor(Sort("name"), Place("x", 1, NOW))
    with pytest.raises(UserError, match="cursor expected the sort"):
        pages.read_cursor(Sort("id"), cursor)
    with pytest.raises(UserError, match="cursor expected what"):
        pages.read_cursor(Sort("id"), pages.write_cursor(Sort("id"), Place(2**70, 1, NOW)))


def test_an_unknown_sort_is_refused() -> None:
    with pytest.raises(UserError, match=r'sort expected one of id, .* got "color"'):
        pages.sort("color")


def test_unknown_states_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UserError, match="Did you mean failed"):
        selectors.states("faild")
    assert selectors.states("active,running,failed") == ("starting", "running", "paused", "stopping", "failed")
