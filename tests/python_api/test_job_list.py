"""Lists of jobs: verbs for all of them at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import dibs
from bench import Bench
from dibs import errors
from dibs.client import queries
from dibs.python_api import job_list


def test_a_verb_changes_all_jobs_with_one_request(queue: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, Any]] = []

    def act(client: Any, verb: str, words: Any, **more: object) -> Any:
        requests.append((verb, words))
        return queries_act(client, verb, words, **more)

    queries_act = queries.act
    monkeypatch.setattr(job_list.queries, "act", act)
    many = dibs.submit_many(["true"] * 20, gpus=0, hold=True)
    assert isinstance(many, dibs.JobList)
    assert many.hold() == []
    assert many[:5].unhold() == many[:5]
    assert many[:5].wait() == many[:5]
    assert {job.state for job in many[:5]} == {"done"}
    assert many.cancel() == many[5:]
    assert many.retry(done=True) == many
    assert many.wait().ids == [job.id for job in many]
    assert [job.attempt for job in many] == [2] * 20
    assert [verb for verb, _ in requests] == ["hold", "unhold", "cancel", "retry"]
    assert requests[0][1] == [f"{many[0].id}-{many[-1].id}"]


def test_running_jobs_are_paused_and_resumed_together(queue: Bench) -> None:
    many = dibs.JobList(dibs.job(queue.long_job(gpus=0)) for _ in range(2))
    assert many.pause() == many
    assert {job.state for job in many} == {"paused"}
    assert many.resume() == many
    assert many.cancel(grace=0).wait() == many
    assert {job.state for job in many} == {"cancelled"}


def test_an_empty_list_does_nothing(queue: Bench) -> None:
    assert dibs.jobs("name:nobody").cancel() == []
    assert dibs.JobList().wait() == []


def test_a_deleted_job_is_an_error(queue: Bench) -> None:
    with pytest.raises(errors.NotFound):
        dibs.JobList([dibs.Job(999_999)]).hold()


def test_jobs_come_as_they_finish(queue: Bench) -> None:
    first = dibs.submit("true", gpus=0).wait() and dibs.jobs("@")
    waiting = dibs.submit_many(["true", "false"], gpus=0, hold=True)
    both = dibs.JobList([*waiting, *first])
    found = iter(both.as_finished())
    assert next(found) == first[0]
    waiting[1].unhold()
    ended = next(found)
    assert (ended, ended.state) == (waiting[1], "failed")
    waiting[0].cancel()
    assert [job.state for job in found] == ["cancelled"]
    assert list(dibs.JobList().as_finished()) == []


def test_jobs_that_do_not_finish_in_time_are_an_error(queue: Bench) -> None:
    held = dibs.submit_many(["true"], gpus=0, hold=True)
    with pytest.raises(errors.TimedOut, match="1 of 1 jobs are not finished"):
        list(held.as_finished(timeout=0.05))
    held.cancel()


def test_an_event_loop_gets_jobs_as_they_finish_and_goes_on_meanwhile(queue: Bench) -> None:
    async def main() -> tuple[list[str], int]:
        states = [job.state async for job in dibs.submit_many(["true", "false"], gpus=0).as_finished()]
        return sorted(states), len(await dibs.submit_many(["true", "true"], gpus=0))

    assert asyncio.run(main()) == (["done", "failed"], 2)


def test_waiting_in_an_event_loop_can_be_given_up(queue: Bench) -> None:
    """The program does not wait for the job at its end."""
    held = dibs.submit("true", gpus=0, hold=True)

    async def main() -> None:
        async for _ in dibs.JobList([held]).as_finished():
            raise AssertionError

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(main(), 0.01))
    held.cancel()
