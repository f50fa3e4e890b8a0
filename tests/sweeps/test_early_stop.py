"""Which runs a rule stops early, on made and on recorded curves."""

from __future__ import annotations

import math

import pytest

import curve_replay
from dibs.sweeps.search import early_stop
from dibs.sweeps.search.early_stop import Curve

LENGTH = 40


def curve(run: int, level: float, steps: int = LENGTH, *, is_running: bool = False, scale: float = 1.0) -> Curve:
    """A curve that falls from 2 to its level, quickly at first."""
    points = [(scale * step, level + (2 - level) / step) for step in range(1, steps + 1)]
    return Curve(run, run, points, is_running, is_complete=not is_running)


def stopped(rule: str, *curves: Curve, goal: str = "minimize") -> list[int]:
    return [stop.run for stop in early_stop.decide(rule, curves, goal)]


COMPLETE = [curve(run, 0.1 * run) for run in range(5)]


@pytest.mark.parametrize("rule", early_stop.RULES)
@pytest.mark.parametrize("scale", [0.01, 1.0, 1000.0])
def test_a_run_that_is_behind_and_has_no_hope_is_stopped(rule: str, scale: float) -> None:
    """Whatever a step is: epochs, iterations, or parts of one."""
    complete = [curve(run, 0.1 * run, scale=scale) for run in range(5)]
    running = [curve(7, 1.5, 20, is_running=True, scale=scale), curve(8, 0.0, 20, is_running=True, scale=scale)]
    assert stopped(rule, *complete, *running) == [7]


@pytest.mark.parametrize("rule", early_stop.RULES)
def test_the_goal_decides_which_end_is_better(rule: str) -> None:
    curves = [*COMPLETE, curve(7, 1.5, 20, is_running=True)]
    mirrored = [Curve(c.run, c.index, [(s, -v) for s, v in c.points], c.is_running, c.is_complete) for c in curves]
    assert stopped(rule, *mirrored, goal="maximize") == [7]
    assert stopped(rule, *mirrored, goal="minimize") == []


@pytest.mark.parametrize("rule", early_stop.RULES)
def test_a_run_without_a_number_is_stopped(rule: str) -> None:
    gone = Curve(9, 5, [(step, math.nan) for step in range(1, 15)], is_running=True)
    (stop,) = early_stop.decide(rule, [*COMPLETE, gone], "minimize")
    assert "no number" in stop.why


@pytest.mark.parametrize("rule", early_stop.RULES)
def test_nothing_is_stopped_before_enough_runs_are_complete(rule: str) -> None:
    bad = curve(7, 1.5, 20, is_running=True)
    assert stopped(rule, *COMPLETE[:3], bad) == []
    assert stopped(rule, bad) == []
    assert stopped(rule) == []


@pytest.mark.parametrize("rule", early_stop.RULES)
def test_the_first_steps_and_silent_runs_decide_nothing(rule: str) -> None:
    assert stopped(rule, *COMPLETE, curve(7, 1.5, 3, is_running=True), Curve(8, 8, [], is_running=True)) == []


@pytest.mark.parametrize("rule", early_stop.RULES)
def test_a_slow_run_with_hope_continues(rule: str) -> None:
    """It is behind at this step, and will be better than most at the end."""
    slow = Curve(7, 0, [(step, 2.0 - 0.09 * step) for step in range(1, 16)], is_running=True)
    flat = Curve(8, 0, [(step, slow.points[-1][1]) for step in range(1, 16)], is_running=True)
    assert stopped(rule, *COMPLETE, slow, flat) == [8]


def test_the_reason_names_the_numbers() -> None:
    (stop,) = early_stop.decide("median", [*COMPLETE, curve(7, 1.5, 20, is_running=True)], "minimize")
    assert stop.why == "1.525 at step 20 is not among the best 36% of 5 runs, 0.2372 or better"


# -- recorded curves ------------------------------------------------------------------------------------------------


def test_on_held_out_curves_much_time_is_saved_and_the_best_run_is_never_stopped() -> None:
    """Other problems, data and hyper-parameters, on which nothing was chosen."""
    for rule, problem, saved, kept, _ in curve_replay.results(12, curve_replay.HELD_OUT):
        assert early_stop.median(saved) >= 0.4, (rule, problem)
        assert kept == len(saved), (rule, problem)


def test_on_recorded_curves_much_time_is_saved_and_the_best_run_is_never_stopped() -> None:
    for rule, problem, saved, kept, _ in curve_replay.results(orders=12):
        assert early_stop.median(saved) >= 0.4, (rule, problem)
        assert kept == len(saved), (rule, problem)
