"""How many trials a search needs, and what its study hears of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dibs.model.jobs import JobId
from dibs.sweeps.records import Run, Search
from dibs.sweeps.search import trials
from dibs.sweeps.search.trials import Need

SEARCH = Search("tpe", 10, 0, "{}")


def run(number: int, word: str = "done", cause: str | None = None, **numbers: float) -> Run:
    return Run(JobId(number), 1, number, {"x": number}, word, cause, numbers, {}, 1, 2)


def need(*words: str, search: Search = SEARCH, slots: int | None = 4) -> Need:
    runs = [run(number, word, loss=1.0) for number, word in enumerate(words)]
    return trials.need(search, runs, "loss", slots)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), 1),
        (("running",) * 3, 1),
        (("running",) * 4, 0),
        (("starting", "running", "stopping", "running"), 0),
        (("running", "running", "running", "paused"), 1),
        (("running", "queued"), 0),
        (("done", "running", "running", "running"), 1),
        (("done",) * 9, 1),
        (("done",) * 10, 0),
        (("failed", "cancelled", "lost"), 1),
    ],
)  # fmt: skip
def test_a_trial_is_chosen_when_it_can_start_and_no_more_than_the_search_has(
    words: tuple[str, ...], expected: int
) -> None:
    assert need(*words) == Need(expected)


@pytest.mark.parametrize(("slots", "expected"), [(1, 1), (4, 1), (5, 2), (8, 2), (None, 1)])
def test_one_in_four_of_what_can_run_at_once_waits_at_most(slots: int | None, expected: int) -> None:
    assert need(slots=slots) == Need(expected)


def test_on_a_cluster_one_trial_waits_whatever_runs() -> None:
    assert need(*["running"] * 8, slots=None) == Need(1)
    assert need(*["running"] * 8, "queued", slots=None) == Need()


def test_the_next_trial_is_not_chosen_before_the_numbers_of_the_last_one_are_read() -> None:
    ended, running = run(0, loss=1.0), [run(number, "running") for number in (1, 2, 3)]
    assert trials.need(SEARCH, [replace(ended, numbers=None), *running], "loss", 4) == Need()
    assert trials.need(SEARCH, [ended, *running], "loss", 4) == Need(1)


def test_nothing_is_added_while_runs_are_held_or_after_the_end() -> None:
    assert need("held", "running") == Need()
    assert need("running", search=replace(SEARCH, ended="cancelled")) == Need()


def test_a_search_whose_runs_do_not_report_the_metric_ends() -> None:
    silent = [run(number, accuracy=0.5) for number in range(3)]
    assert trials.need(SEARCH, silent, "loss", 2).ended == "3 runs are done and none reported loss, only accuracy"
    assert trials.need(SEARCH, [*silent, run(4, "running", loss=1.0)], "loss", 2).ended == ""
    unread = [replace(one, numbers=None) for one in silent]
    assert trials.need(SEARCH, unread, "loss", 2).ended == ""


def test_a_study_hears_how_runs_ended() -> None:
    about = {"point": '{"x":1}', "params": {"x": 1}}
    assert trials.told(run(1, loss=0.5), "loss") == about | {"state": "done", "value": 0.5}
    assert trials.told(run(1, "running", loss=0.5), "loss") == about | {"state": "waiting"}
    assert trials.told(replace(run(1), numbers=None), "loss") == about | {"state": "waiting"}
    assert trials.told(run(1, acc=1.0), "loss") == about | {"state": "failed"}
    assert trials.told(run(1, "failed", loss=0.5), "loss") == about | {"state": "failed"}
    assert trials.told(run(1, "cancelled", loss=0.5), "loss") == about | {"state": "failed"}


def test_a_stopped_run_counts_with_its_last_value_and_step() -> None:
    early = run(1, "cancelled", "early", loss=0.5, epoch=7)
    about = {"point": '{"x":1}', "params": {"x": 1}, "state": "stopped", "value": 0.5}
    assert trials.told(early, "loss") == about | {"step": 7}
    counted = replace(early, numbers={"loss": 0.5}, summaries={"loss": (0.5, 1.0, 0.7, 12)})
    assert trials.told(counted, "loss") == about | {"step": 12}
