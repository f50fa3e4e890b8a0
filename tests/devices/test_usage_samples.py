"""Device time per user and day, idle time, waiting times: sums by the store against sums by hand."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import build
from dibs.devices.usage import Sample
from dibs.http_api import usage
from dibs.model import lifecycle
from dibs.model.devices import DeviceId
from dibs.model.jobs import JobId
from dibs.store.writer import Store

MINUTE = 60_000
#: Days of ten minutes, so that small numbers cross their bounds.
DAY = 10 * MINUTE
DAYS = [(n * DAY, (n + 1) * DAY) for n in range(1, 4)]
NOW = 4 * DAY - 90_000
IDLE_BELOW = 5


class Life(NamedTuple):
    """A job with its submit, start and end in milliseconds; without an end it still runs."""

    submitted: int
    begun: int
    ended: int | None
    devices: tuple[int, ...] = (0,)
    project: str = "default"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as opened:
        yield opened


def live(store: Store, *lives: Life) -> list[JobId]:
    """Store jobs with the given lives."""
    ids: list[JobId] = []
    with store.batch():
        for life in lives:
            (job_id,) = store.submit([build.spec(project=life.project, gpus=len(life.devices))], life.submitted)
            placed = lifecycle.Placed(life.begun, build.ids(*life.devices))
            events: list[lifecycle.Event] = [placed, lifecycle.Started(life.begun, 77)]
            if life.ended is not None:
                events.append(lifecycle.Ended(life.ended, exit_code=0, started_at=life.begun))
            for event in events:
                store.record(store.job(job_id), event)
            ids.append(job_id)
    return ids


def watch(store: Store, seen: dict[tuple[int, int], int | None]) -> None:
    """Store how busy devices were in some minutes."""
    minutes = {
        (DeviceId(build.ids(device)[0]), minute): Sample(minute * MINUTE, None, use, None, None)
        for (device, minute), use in seen.items()
    }
    with store.batch():
        store.keep_uses({}, minutes, 0)


def by_hand(lives: list[Life], seen: dict[tuple[int, int], int | None]) -> set[tuple[int, str, int, int, int]]:
    """Return the expected sums, computed second by second and minute by minute."""
    held: Counter[tuple[int, str]] = Counter()
    watched: Counter[tuple[int, str]] = Counter()
    idle: Counter[tuple[int, str]] = Counter()
    for life in lives:
        ended = NOW if life.ended is None else life.ended
        for day, (since, until) in enumerate(DAYS):
            held[day, life.project] += max(0, min(ended, until) - max(life.begun, since)) * len(life.devices)
            for (device, minute), use in seen.items():
                at = minute * MINUTE
                is_within = since <= at < until and life.begun <= at and at + MINUTE <= ended
                if device in life.devices and use is not None and is_within:
                    watched[day, life.project] += 1
                    idle[day, life.project] += use < IDLE_BELOW
    return {(day, project, ms, watched[day, project], idle[day, project]) for (day, project), ms in held.items() if ms}


LIVES = st.builds(
    lambda begun, long, is_over, devices, project: Life(
        begun, begun, min(begun + long, NOW) if is_over else None, tuple(sorted(devices)), project
    ),
    st.integers(0, NOW - 1),
    st.integers(1, 2 * DAY),
    st.booleans(),
    st.sets(st.integers(0, 3), max_size=4),
    st.sampled_from(["default", "vision"]),
)
SEEN = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 45)), st.sampled_from([None, 0, 4, 5, 100]), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(lives=st.lists(LIVES, max_size=6), seen=SEEN)
def test_sums_equal_those_computed_by_hand(
    lives: list[Life], seen: dict[tuple[int, int], int | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with contextlib.closing(Store.open(tmp_path_factory.mktemp("usage") / "dibs.db")) as store:
        live(store, *lives)
        watch(store, seen)
        found = store.usage(DAYS, NOW, IDLE_BELOW, 100)
    sums = [(one.day, one.project, one.held_ms, one.watched, one.idle) for one in found]
    assert set(sums) == by_hand([life for life in lives if life.devices], seen)
    assert len(set(sums)) == len(sums)
    assert [one.held_ms for one in found] == sorted((one.held_ms for one in found), reverse=True)


def test_a_sum_knows_its_group_its_jobs_their_waits_and_how_busy_devices_were(store: Store) -> None:
    live(store, Life(DAY, DAY + 5 * MINUTE, DAY + 9 * MINUTE))
    watch(store, {(0, (DAY + minute * MINUTE) // MINUTE): 50 for minute in (5, 6)})
    (found,) = store.usage(DAYS, NOW, IDLE_BELOW, 2)
    assert (found.group, found.jobs, found.waited_ms) == ("default", 1, 5 * MINUTE)
    assert (found.watched, found.busy, found.idle) == (2, 1.0, 0)


def test_the_larger_device_time_of_a_user_stays(store: Store) -> None:
    with store.batch():
        store.keep_people([(20_000, 1001, 5000.0), (20_000, 1002, 7000.0)])
        store.keep_people([(20_000, 1001, 4000.0), (20_001, 1001, 1.0)])
    assert store.people_days(20_000) == [(20_000, 1002, 7000.0), (20_000, 1001, 5000.0), (20_001, 1001, 1.0)]
    assert store.people_days(20_001) == [(20_001, 1001, 1.0)]


def test_the_list_is_limited_and_the_largest_come_first(store: Store) -> None:
    live(store, *(Life(DAY, DAY, DAY + n, project=f"p{n}") for n in (1, 3, 2)))
    assert [one.project for one in store.usage(DAYS, NOW, IDLE_BELOW, 2)] == ["p3", "p2"]


def test_waiting_times_are_given_as_median_and_maximum(store: Store) -> None:
    lives = [Life(DAY, DAY + wait, DAY + wait + 1) for wait in (5, 1, 9, 3)]
    # Outside the days, without a device, and one that still runs.
    others = [Life(0, 7, DAY + 1), Life(0, DAY, DAY + 1, ()), Life(DAY, DAY + 7, None)]
    ids = live(store, *lives, *others)
    found = store.waits(DAYS[0][0], DAYS[-1][1], 2)
    assert (found.count, found.median_ms) == (5, 5)
    assert [(one.job, one.wait_ms) for one in found.longest] == [(ids[2], 9), (ids[-1], 7)]


def test_without_starts_there_is_no_waiting_time(store: Store) -> None:
    found = store.waits(0, DAY, 2)
    assert (found.count, found.median_ms, found.longest) == (0, None, [])


def test_only_the_first_attempt_counts_as_waiting(store: Store) -> None:
    (job_id,) = live(store, Life(DAY, DAY + 5, DAY + 6))
    with store.batch():
        again = (
            lifecycle.RetryAsked(DAY + 7),
            lifecycle.Placed(DAY + 999, build.ids(0)),
            lifecycle.Started(DAY + 999, 77),
        )
        for event in again:
            store.record(store.job(job_id), event)
    found = store.waits(DAYS[0][0], DAYS[-1][1], 2)
    assert [(one.job, one.wait_ms) for one in found.longest] == [(job_id, 5)]


def test_days_are_consecutive_up_to_today() -> None:
    found = usage.days(date(2026, 3, 1), 3)
    assert [str(day) for day, _, _ in found] == ["2026-02-27", "2026-02-28", "2026-03-01"]
    assert [until for _, _, until in found[:-1]] == [since for _, since, _ in found[1:]]
    assert all(22 * 3_600_000 <= until - since <= 26 * 3_600_000 for _, since, until in found)
