"""The Prometheus text format: read back by a small parser, whatever devices are called."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import exposed
from dibs.http_api import metrics
from dibs.http_api.metrics import Sample, counter, gauge, histogram
from dibs.jobqueue.counters import Histogram

HOSTILE = ['"', "\\", "\n", 'a"} 1\nevil{x="', "{}", "# HELP", "\\n", "\r", "\x00", "\u2028", "名前", "a,b=c", " "]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_the_value_of_its_label(name: str) -> None:
    made = gauge("dibs_gpu_x", "X.", Sample(1, {"gpu": "0", "name": name}), Sample(2, {"name": "b"}))
    assert exposed.read(made)["dibs_gpu_x"].samples == {
        ("dibs_gpu_x", (("gpu", "0"), ("name", name))): 1.0,
        ("dibs_gpu_x", (("name", "b"),)): 2.0,
    }


@given(st.dictionaries(st.text(), st.floats(), max_size=5), st.text())
def test_every_metric_can_be_read_back(values: dict[str, float], about: str) -> None:
    made = gauge("x", about, *(Sample(value, {"name": name}) for name, value in values.items()))
    if not values:
        assert made == ""
        return
    found = exposed.read(made)["x"]
    assert found.about == metrics.escaped(about).replace(r"\"", '"')
    told = {metrics.escaped(name): value for name, value in values.items()}
    read = {metrics.escaped(labels[0][1]): value for (_, labels), value in found.samples.items()}
    assert read.keys() == told.keys()
    assert all(read[name] == value or (math.isnan(value) and math.isnan(read[name])) for name, value in told.items())


def test_histogram_buckets_are_cumulative_and_end_with_the_total() -> None:
    counted = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.5, 7.0):
        counted.add(value)
    found = exposed.read(histogram("dibs_wait_seconds", "W.", counted))["dibs_wait_seconds"]
    assert [value for (name, _), value in found.samples.items() if name.endswith("_bucket")] == [2.0, 3.0, 5.0]
    assert found.samples["dibs_wait_seconds_count", ()] == 5.0
    assert found.samples["dibs_wait_seconds_sum", ()] == pytest.approx(9.15)


@pytest.mark.parametrize(
    ("value", "told"),
    [(True, "1"), (0.0, "0"), (-0.5, "-0.5"), (2**40, "1099511627776"), (math.inf, "+Inf"), (-math.inf, "-Inf")],
)
def test_numbers_are_formatted_as_the_format_requires(value: float, told: str) -> None:
    assert metrics.number(value) == told


def test_a_metric_without_values_is_left_out() -> None:
    assert gauge("a", "A.") == ""
    assert counter("b_total", "B.", Sample(1)).startswith("# HELP b_total B.\n")
