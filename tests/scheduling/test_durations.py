"""How long a job may still take, and which jobs are similar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.scheduling import durations
from dibs.scheduling.durations import Span

TIMES = st.lists(st.floats(0, 1e6), max_size=40)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"command": "python train.py --lr 0.1 --seed 3"}, {"command": "python train.py --lr 1e-5 --seed 44"}),
        ({"command": "a", "name": "vit-1"}, {"command": "b", "name": "vit-20"}),
        ({"command": "a 1", "limit_s": 60}, {"command": "a 2", "limit_s": None}),
        ({"command": "python train.py 1", "name": "train.py"}, {"command": "python train.py 2", "name": "train.py"}),
    ],
)
def test_jobs_are_similar_up_to_numbers_and_limits(one, other):
    assert durations.likeness(build.spec(**one)) == durations.likeness(build.spec(**other))


@pytest.mark.parametrize(
    "other",
    [
        {"command": "python test.py"},
        {"gpus": 2},
        {"project": "x"},
        {"name": "vit"},
        {"cpus": 2},
        {"gpu_type": "a100"},
        {"command": "python train.py --model vit"},
    ],
)
def test_jobs_with_different_requests_are_not_similar(other):
    assert durations.likeness(build.spec()) != durations.likeness(build.spec(**other))


@pytest.mark.parametrize(
    ("limit_s", "ends_s", "ran_s", "span"),
    [
        (None, [], 0, Span(0, None, "has no time limit and no similar job has finished yet")),
        (None, [5, 5], 0, Span(0, None, "has no time limit and only 2 similar jobs have succeeded so far")),
        (None, [1, 2, 3], 4, Span(0, None, "has no time limit and has run longer than similar jobs")),
        (60, [], 0, Span(0, 60)),
        (60, [], 20, Span(0, 40)),
        (60, [], 70, Span(0, 0)),
        (None, range(0, 101, 10), 0, Span(10, 90)),
        (50, range(0, 101, 10), 0, Span(10, 50)),
        (None, [10, 20, 30], 15, Span(6, 14)),
        (40, [1, 2, 3], 10, Span(0, 30)),
    ],
)
def test_the_limit_and_earlier_successful_runs_give_the_duration(limit_s, ends_s, ran_s, span):
    found = durations.span(limit_s, list(ends_s), ran_s)
    assert (found.least_s, found.most_s, found.why) == (
        pytest.approx(span.least_s),
        span.most_s if span.most_s is None else pytest.approx(span.most_s),
        span.why,
    )


@given(st.none() | st.floats(1, 1e6), TIMES, st.floats(0, 1e6))
def test_a_span_is_never_negative_or_beyond_the_limit_and_gives_a_reason_if_unbounded(limit_s, ends_s, ran_s):
    span = durations.span(limit_s, ends_s, ran_s)
    assert span.least_s >= 0
    assert (span.most_s is None) is bool(span.why)
    if span.most_s is not None:
        assert span.least_s <= span.most_s + 1e-6
        assert limit_s is None or span.most_s <= max(0.0, limit_s - ran_s)
