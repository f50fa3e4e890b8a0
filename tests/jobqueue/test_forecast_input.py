"""The input of a forecast: the first part of each list, and where it was truncated."""

import contextlib
import math

import pytest

import build
from dibs.jobqueue import shared_forecast
from dibs.model import lifecycle
from dibs.model.jobs import After, JobId, When
from dibs.scheduling import durations, forecasts
from dibs.scheduling.durations import Span
from dibs.scheduling.views import Policy, View
from dibs.store.histories import digest
from dibs.store.writer import Store

NOW = build.NOW
MINUTE = 60_000
HOUR_S = 3600.0
INVENTORY, POLICY, WINDOW = build.inventory(2), Policy(4), 6


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as opened:
        yield opened


def submit(store, *many, at_once=None):
    with store.batch():
        batch = store.add_batch(at_once, None, len(many)) if at_once else 0
        return store.submit([build.spec(**{"command": "train"} | each, batch=batch) for each in many], NOW)


def record(store, job_id, *events):
    with store.batch():
        for event in events:
            store.record(store.job(job_id), event)


def start(store, job_id, *indices, ago_ms=0):
    record(store, job_id, lifecycle.Placed(NOW, build.ids(*indices)), lifecycle.Started(NOW - ago_ms, 77))


def finish(store, job_id, took_ms, exit_code=0):
    start(store, job_id, ago_ms=took_ms)
    record(store, job_id, lifecycle.Ended(NOW, exit_code=exit_code, started_at=NOW - took_ms))


def after(*ids, when=When.DONE):
    return tuple(After(JobId(job_id), when) for job_id in ids)


def gathered(store, job=None):
    view = View(store.head(WINDOW), store.active_devices())
    return shared_forecast.gather(store, view, WINDOW, 30.0, NOW, job)


def expected(store, job):
    """Return the range in minutes from now, or the reason why there is none."""
    (found,) = forecasts.StartForecaster(gathered(store, job), INVENTORY, POLICY, NOW).starts([job.id]).values()
    return (found.range and tuple((at - NOW) / MINUTE for at in found.range)) or found.unknown


# -- durations -----------------------------------------------------------------------------------------------------


def test_successful_jobs_give_the_duration_of_similar_ones(store):
    for job_id in submit(store, *({"command": f"train --lr {n}"} for n in range(5))):
        finish(store, job_id, 10_000 * job_id)
    (job_id,) = submit(store, {"command": "train --lr 77"})
    assert gathered(store).spans == {job_id: Span(14, 46)}


@pytest.mark.parametrize("other", [{"command": "test"}, {"project": "x"}])
def test_without_similar_jobs_wider_likenesses_give_the_duration(store, other):
    for job_id in submit(store, *({"command": "train"},) * 3):
        finish(store, job_id, 10_000)
    (job_id,) = submit(store, {"command": "train"} | other)
    assert gathered(store).spans[job_id] == Span(10, 10)


def test_jobs_with_another_number_of_gpus_give_no_duration(store):
    for job_id in submit(store, *({"command": "train"},) * 3):
        finish(store, job_id, 10_000)
    (job_id,) = submit(store, {"command": "train", "gpus": 2})
    assert gathered(store).spans[job_id].most_s is None


def test_the_closest_likeness_counts(store):
    for job_id, took_ms in zip(submit(store, *({"command": f"train {n}"} for n in "abcabc")), [1000] * 6, strict=True):
        finish(store, job_id, took_ms)
    for job_id in submit(store, *({"command": "eval"},) * 3):
        finish(store, job_id, 60_000)
    (job_id,) = submit(store, {"command": "eval"})
    assert gathered(store).spans[job_id] == Span(60, 60)


def test_failed_jobs_give_no_duration(store):
    for job_id in submit(store, *({},) * 5):
        finish(store, job_id, 10_000, exit_code=1)
    (job_id,) = submit(store, {})
    assert gathered(store).spans[job_id].why == "has no time limit and no similar job has finished yet"


def test_only_the_newest_similar_jobs_count(store):
    ids = submit(store, *({},) * 40)
    for job_id in ids:
        finish(store, job_id, 1000 * job_id)
    assert sorted(store.runtimes(digest(durations.likeness(build.spec("train"))))) == [float(n) for n in ids[-31:]]


def test_the_elapsed_time_of_a_running_job_is_subtracted(store):
    (job_id,) = submit(store, {"limit_s": HOUR_S})
    start(store, job_id, 0, ago_ms=20 * MINUTE)
    assert gathered(store).spans == {job_id: Span(0, HOUR_S - 1200)}


@pytest.mark.parametrize(
    ("state", "ran_ms", "span"),
    [
        ([lifecycle.CancelAsked(NOW)], 0, Span(0, 30)),
        ([], 2 * HOUR_S * 1000, Span(0, 30)),
    ],
)
def test_a_job_that_is_being_stopped_takes_no_longer_than_the_grace(store, state, ran_ms, span):
    (job_id,) = submit(store, {"limit_s": HOUR_S})
    start(store, job_id, 0, ago_ms=int(ran_ms))
    record(store, job_id, *state)
    assert gathered(store).spans == {job_id: span}


# -- jobs ----------------------------------------------------------------------------------------------------------


def test_a_long_line_is_truncated_and_marked(store):
    submit(store, *({},) * 2000)
    found = gathered(store)
    assert [job.id for job in found.view.waiting] == list(range(1, shared_forecast.MOST_JOBS + 1))
    assert set(found.cut_lines) == {build.waiting().line}


def test_a_short_line_is_complete(store):
    submit(store, *({},) * 20)
    found = gathered(store)
    assert (len(found.view.waiting), set(found.cut_lines)) == (20, set())


def test_with_many_kinds_of_requests_not_all_jobs_are_included(store):
    submit(store, *({"limit_s": 60.0 + n} for n in range(5 * shared_forecast.MOST_JOBS)))
    found = gathered(store)
    assert len(found.view.waiting) == 4 * shared_forecast.MOST_JOBS
    assert len(found.cut_lines) == shared_forecast.MOST_JOBS


def test_a_job_far_back_in_a_long_line_has_no_forecast(store):
    last = submit(store, *({"limit_s": HOUR_S},) * 2000)[-1]
    assert expected(store, store.job(last)) == forecasts.TOO_FAR.unknown


def test_jobs_with_a_begin_time_are_included_the_next_first(store):
    submit(store, *({"begin_at": NOW + n * MINUTE} for n in range(300, 0, -1)))
    found = gathered(store)
    assert [each.begin_at for each in found.coming] == [
        NOW + n * MINUTE for n in range(1, shared_forecast.MOST_COMING + 1)
    ]
    assert found.known_until == NOW + shared_forecast.MOST_COMING * MINUTE


def test_with_all_begin_times_included_the_input_is_complete(store):
    submit(store, {"begin_at": NOW + MINUTE})
    assert gathered(store).known_until == math.inf


def test_jobs_with_dependencies_are_included(store):
    _first, second, third = submit(store, {}, {"after": after(1)}, {"after": after(1, 2, when=When.END)})
    assert [each.job.id for each in gathered(store).coming] == [second, third]


def test_a_job_with_too_many_dependants_is_marked(store):
    (need,) = submit(store, {})
    submit(store, *({"after": after(need)},) * 1000)
    found = gathered(store)
    assert (set(found.cut_needs), len(found.coming)) == ({need}, 2 * shared_forecast.MOST_COMING)


def test_held_jobs_are_not_included(store):
    one, two = submit(store, {}, {"after": after(1)})
    for job_id in (one, two):
        record(store, job_id, lifecycle.HoldAsked(NOW))
    found = gathered(store)
    assert (found.view.waiting, found.coming) == ([], [])


# -- the whole forecast --------------------------------------------------------------------------------------------


def test_a_job_behind_others_with_limits_starts_when_these_have_passed(store):
    first, _second, third = submit(store, {"gpus": 2, "limit_s": HOUR_S}, {"gpus": 2, "limit_s": HOUR_S}, {"gpus": 2})
    start(store, first, 0, 1)
    assert expected(store, store.job(third)) == (0, 120)


def test_a_job_at_the_end_of_a_dependency_chain_starts_after_the_others(store):
    ids = submit(store, {"limit_s": HOUR_S}, *({"limit_s": HOUR_S, "after": after(n)} for n in (1, 2)))
    assert expected(store, store.job(ids[-1])) == (0, 120)


def test_a_job_that_waits_for_a_held_one_has_no_forecast(store):
    one, two = submit(store, {}, {"after": after(1)})
    record(store, one, lifecycle.HoldAsked(NOW))
    assert expected(store, store.job(two)) == "the end of job 1, which it waits for, cannot be predicted"


def test_a_batch_limit_is_respected(store):
    ids = submit(store, *({"limit_s": HOUR_S},) * 3, at_once=1)
    start(store, ids[0], 0)
    assert expected(store, store.job(ids[2])) == (0, 120)


@pytest.mark.parametrize(
    ("asked", "minutes"),
    [
        ({}, (0, 0)),
        ({"gpus": 2}, (0, 60)),
        ({"begin_at": NOW + 5 * MINUTE}, (5, 5)),
        ({"after": after(1)}, (0, 60)),
        ({"gpus": 2, "after": after(1), "begin_at": NOW + 5 * MINUTE}, (5, 60)),
    ],
)
def test_a_job_that_is_not_submitted_yet_has_a_forecast(store, asked, minutes):
    (job_id,) = submit(store, {"limit_s": HOUR_S})
    start(store, job_id, 0)
    assert expected(store, build.job(2, command="new", **asked)) == minutes


def test_a_job_that_is_not_submitted_yet_is_behind_a_truncated_line(store):
    submit(store, *({"limit_s": HOUR_S},) * 2000)
    assert expected(store, build.job(2001, command="train", limit_s=HOUR_S)) == forecasts.TOO_FAR.unknown
    assert expected(store, build.job(2001, command="train", limit_s=HOUR_S, priority=1)) == (0, 0)


def test_the_number_of_queries_does_not_grow_with_the_queue(store):
    """Counted in statements, and no statement scans all jobs (see `test_writer`)."""
    counts = []
    for _ in range(2):
        submit(store, *({},) * 2000)
        asked = []
        store.connection.set_trace_callback(asked.append)
        gathered(store)
        store.connection.set_trace_callback(None)
        counts.append(len(asked))
    assert counts[0] >= counts[1]
