"""Which runs are best, and groups of runs that differ in one parameter."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import UserError
from dibs.sweeps import ranking
from dibs.sweeps.ranking import Run


def run(index, state="done", numbers=None, **params):
    return Run(params, state, numbers or {}, index + 1, index)


def ordered(runs, metric, goal):
    keys = [ranking.key(one.numbers.get(metric or ""), goal) for one in runs]
    indices = [one.index for one in runs]
    places = ranking.best(keys, indices)
    for most in range(len(runs) + 2):
        assert ranking.best(keys, indices, most) == places[:most]
    return [indices[place] for place in places]


def test_the_smallest_value_comes_first_and_runs_without_it_last():
    runs = [run(0, "failed"), run(1, numbers={"loss": 0.3}), run(2, numbers={"loss": 0.1}), run(3, "queued")]
    assert ordered(runs, "loss", ranking.MINIMIZE) == [2, 1, 0, 3]
    assert ordered(runs, "loss", ranking.MAXIMIZE) == [1, 2, 0, 3]


def test_a_value_that_is_not_finite_is_the_worst():
    runs = [run(0, numbers={"loss": None}), run(1, numbers={"loss": 1e300})]
    assert ordered(runs, "loss", ranking.MINIMIZE) == [1, 0]


def test_without_a_metric_runs_are_in_the_order_of_their_points():
    runs = [run(2, numbers={"loss": 1.0}), run(0, numbers={"loss": 2.0})]
    assert ordered(runs, None, ranking.MINIMIZE) == [0, 2]


def test_an_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="reported so far: loss"):
        ranking.check_metric("acc", ["loss"])


def test_runs_that_differ_only_in_the_seed_are_one_group():
    runs = [run(n, numbers={"loss": loss}, lr=lr, seed=seed) for n, (lr, seed, loss) in enumerate(
        [(0.1, 0, 1.0), (0.1, 1, 3.0), (0.01, 0, 0.5), (0.01, 1, 0.7)])]  # fmt: skip
    best, other = ranking.grouped(runs, ["seed"], "loss", ranking.MINIMIZE)
    assert (best.params, other.params) == ({"lr": 0.01}, {"lr": 0.1})
    assert other.numbers["loss"] == ranking.Spread(2.0, math.sqrt(2), 2)


def test_a_run_without_the_metric_counts_in_its_group_but_not_in_the_mean():
    (group,) = ranking.grouped([run(0, numbers={"loss": 1.0}, seed=0), run(1, "failed", seed=1)], ["seed"], "loss", "")
    assert (len(group.jobs), group.numbers["loss"]) == (2, ranking.Spread(1.0, None, 1))


def test_grouping_by_an_unknown_parameter_is_refused():
    with pytest.raises(UserError, match="there are lr"):
        ranking.grouped([run(0, lr=1)], ["seed"], None, ranking.MINIMIZE)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_mean_and_deviation_are_those_of_a_sample(found):
    spread = ranking.spread(found)
    assert spread.mean == pytest.approx(statistics.fmean(found), abs=1e-6)
    assert spread.deviation == pytest.approx(statistics.stdev(found), abs=1e-6)
