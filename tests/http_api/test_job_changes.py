"""`GET /v1/jobs/changes`: one question for the news of many jobs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import chores
from bench import PATIENCE_S, Bench


def changes(queue: Bench, **query: object) -> Any:
    return queue.client.get("/v1/jobs/changes", [(name, str(value)) for name, value in query.items()])


def test_one_question_tells_how_jobs_stand_and_from_where_to_listen(queue: Bench) -> None:
    done, held = queue.add("true", gpus=0), queue.add("true", gpus=0, hold=True)
    queue.until(done)
    told = changes(queue, select=f"{done},{held},999")
    assert told["jobs"] == [
        {"id": done, "state": "done", "attempt": 1},
        {"id": held, "state": "held", "attempt": 1},
    ]
    assert told["files"] == str(queue.home / "jobs")
    assert changes(queue, since=told["cursor"], wait_s=0)["jobs"] == []
    queue.cancel(held)
    news = changes(queue, since=told["cursor"], wait_s=PATIENCE_S)
    assert news["jobs"] == [{"id": held, "state": "cancelled", "attempt": 1}]
    assert news["cursor"] > told["cursor"]


def test_whoever_listens_hears_of_an_end_when_it_comes(queue: Bench, tmp_path: Path) -> None:
    """Also of a start, but that is no hurry; the number of an event means the same to the next daemon."""
    cursor = changes(queue, select="all")["cursor"]
    heard: list[Any] = []
    with chores.closed(f"{tmp_path}/gate"):
        job_id = queue.add(["flock", "-s", f"{tmp_path}/gate", "true"], gpus=0)
        queue.until(job_id, "started")
        news = changes(queue, since=cursor, wait_s=PATIENCE_S)
        assert {job["id"] for job in news["jobs"]} == {job_id}
        cursor = news["cursor"]
        queue.kill()
        queue.start()
        thread = threading.Thread(target=lambda: heard.append(changes(queue, since=cursor, wait_s=PATIENCE_S)))
        thread.start()
    thread.join(PATIENCE_S)
    assert {job["id"] for job in heard[0]["jobs"]} == {job_id}
    assert queue.until(job_id)["state"] == "done"


def test_whoever_has_heard_of_nothing_yet_hears_of_all(queue: Bench) -> None:
    ids = queue.add_many([{"command": "true"}] * 3, hold=True, gpus=0)
    whole = changes(queue, since=0, wait_s=0)
    assert {*ids} <= {job["id"] for job in whole["jobs"]}
    assert changes(queue, since=-5, wait_s=0) == whole
