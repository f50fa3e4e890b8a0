"""joblib and scikit-learn on the queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import joblib
import pytest

import chores
import dibs
from bench import Bench, wait_for


@pytest.fixture
def parallel(user_queue: Bench) -> Iterator[None]:
    """The backend, in use."""
    dibs.register_joblib()
    with joblib.parallel_config("dibs", n_jobs=4, gpus=0):
        yield


def names() -> list[str]:
    return [job.command for job in dibs.jobs("all")]


def test_a_hundred_calls_return_in_order(parallel: None) -> None:
    assert joblib.Parallel()(joblib.delayed(chores.square)(x) for x in range(100)) == [x * x for x in range(100)]
    assert any(name.startswith("square(0)") for name in names())


def test_results_may_be_taken_as_they_come(parallel: None) -> None:
    found = joblib.Parallel(return_as="generator_unordered")(joblib.delayed(chores.square)(x) for x in range(8))
    assert sorted(found) == [x * x for x in range(8)]


def test_n_jobs_limits_how_many_run_at_once_and_minus_one_means_the_gpus(user_queue: Bench) -> None:
    dibs.register_joblib()
    with joblib.parallel_config("dibs", n_jobs=-1, gpus=2):
        assert joblib.effective_n_jobs() == 2
    with joblib.parallel_config("dibs", n_jobs=3, gpus=1):
        assert joblib.Parallel().n_jobs == 3
        devices = joblib.Parallel(batch_size=1)(
            joblib.delayed(chores.variable)("CUDA_VISIBLE_DEVICES") for _ in range(6)
        )
    assert all(device.startswith("FAKE-") for device in devices)


def test_an_exception_ends_the_whole_and_cancels_the_rest(parallel: None, user_queue: Bench) -> None:
    calls: list[Any] = [joblib.delayed(chores.fail)("no")]
    calls += [joblib.delayed(time.sleep)(1000) for _ in range(6)]
    with pytest.raises(ValueError, match="no"):
        joblib.Parallel(batch_size=1)(calls)
    wait_for(lambda: not user_queue.jobs("unfinished"))


def test_a_call_may_use_joblib_itself(parallel: None) -> None:
    assert joblib.Parallel()(joblib.delayed(chores.sum_of_squares)(3) for _ in range(2)) == [5, 5]


def test_a_grid_search_of_scikit_learn_runs_its_fits_as_jobs(parallel: None) -> None:
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    inputs, labels = load_iris(return_X_y=True)
    search = GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.1, 1.0]}, cv=2, n_jobs=4)
    search.fit(inputs, labels)
    assert search.best_score_ > 0.9
    assert any("_fit_and_score" in name for name in names())
