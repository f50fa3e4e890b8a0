"""The trials of a search in the queue: added, continued, ended, and stopped early."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import build
from desk import DONE, FAILED, RUNNING
from dibs.jobqueue import control, dispatch, searches, sweeps, turns
from dibs.jobqueue.sweeps import Fate
from dibs.jobqueue.validation import NO_RULES, Rules, Submission
from dibs.model import lifecycle, selectors
from dibs.model.devices import Inventory
from dibs.model.jobs import After, Cause, JobId, Request, State, When
from dibs.scheduling.views import Policy
from dibs.sweeps import parameters, spaces
from dibs.sweeps.grid import Point
from dibs.sweeps.records import Search, SweepSubmission
from dibs.sweeps.search import codec
from dibs.sweeps.search.early_stop import Stop
from dibs.sweeps.values import Value

SPACE = json.dumps(codec.encode(spaces.build([parameters.parse(["x=uniform(0,9)"])])))


def submission(**more: Any) -> Submission:
    return Submission(build.spec("-", **more), environ=b"A=1\0")


def point(x: int) -> Point:
    return Point(0, ("x",), (Value(x, str(x)),))


class SearchDesk:
    """A search on a desk; every verb is a separate turn."""

    def __init__(self, desk: Any, trials: int = 5, rules: Rules = NO_RULES) -> None:
        self.desk = desk
        self.id = self.begin(trials, rules)

    def begin(self, trials: int, rules: Rules = NO_RULES) -> int:
        search = Search("tpe", trials, 0, SPACE)
        wanted = SweepSubmission("default", "s", "train {x}", metric="loss", goal="minimize", search=search)
        sweep, _ = self.do(sweeps.begin, wanted, rules, submission())
        return int(sweep.id)

    def do(self, verb: Any, *given: Any, **options: Any) -> Any:
        self.desk.turn = self.desk.new_turn()
        with self.desk.store.batch():
            found = verb(self.desk.turn, *given, **options)
            dispatch.follow_up(self.desk.turn)
        return found

    def add(self, *xs: int, first: bool = False, **more: Any) -> int:
        return int(self.do(searches.add, self.id, [point(x) for x in xs], submission(**more) if first else None))

    def happen(self, job_id: int, *events: lifecycle.Event) -> None:
        def record(turn: turns.Turn) -> None:
            for event in events:
                turn.record(turn.store.job(JobId(job_id)), event)

        self.do(record)

    def job(self, job_id: int) -> Any:
        return self.desk.store.job(JobId(job_id))

    def words(self) -> list[str]:
        return [job.word for job in self.desk.store.select(selectors.parse(["sweep:s"]), build.NOW)]

    @property
    def left(self) -> int:
        return int(self.desk.store.trials_left().get(self.id, 0))

    @property
    def ended(self) -> str:
        return str(self.desk.store.sweep(self.id).search.ended)


@pytest.fixture
def search(desk: Any) -> SearchDesk:
    return SearchDesk(desk)


def test_trials_are_numbered_and_like_the_newest_one(search: SearchDesk) -> None:
    assert search.add(3, 4, first=True, comment="first") == 2
    assert search.add(5) == 1
    jobs = [search.job(job_id) for job_id in (1, 2, 3)]
    assert [(job.spec.command, job.spec.index, job.spec.name) for job in jobs] == [
        ("train 3", 0, "s-0"), ("train 4", 1, "s-1"), ("train 5", 2, "s-2"),
    ]  # fmt: skip
    assert jobs[2].spec.environ_id == jobs[0].spec.environ_id
    assert jobs[2].spec.comment == "first"
    assert search.left == 2


def test_a_point_gets_one_run_and_a_search_no_more_than_its_trials(search: SearchDesk) -> None:
    search.add(1, 2, first=True)
    assert search.add(2, 1, 3) == 1
    assert search.add(4, 5, 6, 7) == 2
    assert search.left == 0
    assert search.add(8) == 0
    assert len(search.words()) == 5


def test_a_search_submitted_again_with_more_trials_continues_with_the_new_options(search: SearchDesk) -> None:
    search.add(1, 2, 3, first=True)
    search.happen(1, *FAILED)
    search.happen(2, *DONE)
    search.begin(9)
    added = search.do(searches.resume, search.id, submission(comment="second"))
    assert added.fates == {Fate.RETRIED: 1, Fate.DONE: 1, Fate.QUEUED: 1}
    assert search.left == 6
    assert [search.job(job_id).spec.comment for job_id in (1, 2, 3)] == ["second", None, "second"]
    assert [search.job(job_id).spec.command for job_id in (1, 3)] == ["train 1", "train 3"]
    search.add(7)
    assert search.job(4).spec.comment == "second"


def test_cancelling_all_unfinished_runs_ends_the_search(search: SearchDesk) -> None:
    search.add(1, 2, 3, first=True)
    search.happen(1, *DONE)
    search.happen(2, *RUNNING)
    search.do(control.cancel, selectors.parse(["3"]))
    assert search.ended == ""
    search.do(control.cancel, selectors.parse(["sweep:s"]))
    assert search.ended == "cancelled"
    assert search.add(4) == 0
    search.begin(5)
    assert (search.ended, search.left) == ("", 2)


def test_a_cancel_elsewhere_does_not_end_it(search: SearchDesk) -> None:
    search.add(1, first=True)
    search.happen(1, *DONE)
    other = search.desk.job()
    search.do(control.cancel, selectors.parse([str(other)]))
    assert search.ended == ""


def test_repeated_failures_hold_the_trials_that_wait(search: SearchDesk) -> None:
    search.add(1, 2, 3, 4, first=True)
    for job_id in (1, 2, 3):
        search.happen(job_id, *FAILED)
    assert search.words() == ["failed", "failed", "failed", "held"]
    assert search.ended == ""


def test_repeated_failures_end_a_search_in_which_nothing_waits(search: SearchDesk) -> None:
    search.add(1, 2, 3, first=True)
    for job_id in (1, 2, 3):
        search.happen(job_id, *FAILED)
    assert search.ended == "the first 3 runs failed"
    assert search.left == 0


def test_a_search_whose_jobs_were_deleted_ends(search: SearchDesk) -> None:
    assert search.add(1) == 0
    assert search.ended == "all its jobs were deleted"


def test_an_early_stop_is_recorded_before_it_is_ordered_and_is_no_failure(search: SearchDesk) -> None:
    search.add(1, 2, first=True)
    search.happen(1, *RUNNING)
    search.do(searches.stop_early, [Stop(1, "0.9 is worse than 0.5"), Stop(2, "it waits")])
    stopping = search.job(1)
    assert (stopping.state, stopping.cause) == (State.STOPPING, Cause.EARLY)
    assert [effect.line for effect in search.desk.turn.effects] == ["stop 30.0"]
    assert search.job(2).state is State.QUEUED
    # The end may be recorded by another daemon, which reads the job from the store.
    search.desk.store._known.clear()
    search.happen(1, lifecycle.Ended(3, signal=15, was_stopped=True, stopped_for=search.job(1).remark))
    ended = search.job(1)
    assert (ended.word, ended.cause, ended.remark) == ("cancelled", Cause.EARLY, "stopped early: 0.9 is worse than 0.5")
    (run, _) = searches.runs(search.desk.store, search.id)
    assert (run.word, run.cause) == ("cancelled", "early")
    assert search.do(searches.resume, search.id, submission()).fates[Fate.DONE] == 1


def test_a_run_that_ended_by_itself_before_the_stop_is_done(search: SearchDesk) -> None:
    search.add(1, first=True)
    search.happen(1, *RUNNING)
    search.do(searches.stop_early, [Stop(1, "slow")])
    search.happen(1, lifecycle.Ended(3, exit_code=0))
    assert (search.job(1).word, search.job(1).cause) == ("done", None)


def test_retry_leaves_stopped_runs_alone_unless_done_ones_are_meant(search: SearchDesk) -> None:
    search.add(1, first=True)
    search.happen(1, *RUNNING, lifecycle.StoppedEarly(3, "slow"), lifecycle.Ended(4, signal=15, was_stopped=True))
    acted = search.do(control.retry, selectors.parse(["1"]))
    assert [left.why for left in acted.unchanged] == ["it was stopped early; --done runs it again"]
    assert search.do(control.retry, selectors.parse(["1"]), also_done=True).changed
    assert (search.job(1).state, search.job(1).cause) == (State.QUEUED, None)


def test_jobs_that_wait_for_a_stopped_run_start(search: SearchDesk) -> None:
    search.add(1, first=True)
    search.happen(1, *RUNNING, lifecycle.StoppedEarly(3, "slow"))
    later = search.desk.job(after=(After(JobId(1), When.DONE),))
    search.happen(1, lifecycle.Ended(4, signal=15, was_stopped=True))
    assert search.job(later).is_ready


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request(gpus=1), 4),
        (Request(gpus=2), 2),
        (Request(gpus=8), 1),
        (Request(gpus=0), 6),
        (Request(gpus=0, cpus=4), 1),
        (Request(gpus=1, gpu_ids=build.ids(0, 1)), 2),
    ],
)  # fmt: skip
def test_slots_are_what_the_machine_could_run_at_once(request_: Request, expected: int) -> None:
    inventory: Inventory = build.inventory(4)
    assert searches.slots(request_, inventory, Policy(6)) == expected


def test_slots_count_what_the_settings_leave_and_what_each_device_can_share() -> None:
    inventory: Inventory = build.inventory(4)
    assert searches.slots(Request(gpus=1), inventory, Policy(6, max_gpus=3)) == 3
    assert searches.slots(Request(gpus=1), inventory, Policy(6, keep_free=1)) == 3
    assert searches.slots(Request(gpus=1), inventory, Policy(6, keep_free=9)) == 1
    small, large = (replace(inventory.devices[at], memory_total=size << 30) for at, size in ((0, 24), (1, 80)))
    mixed = replace(inventory, devices=(small, large))
    assert searches.slots(Request(gpus=1, vram=20 << 30), mixed, Policy(6, most_sharers=8)) == 1 + 4
