"""`GET /v1/jobs/changes`: one request for the changes of many jobs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import chores
from bench import PATIENCE_S, Bench


def changes(queue: Bench, **query: object) -> Any:
    return queue.client.get("/v1/jobs/changes", [(name, str(value)) for name, value in query.items()])


def test_one_request_returns_the_states_and_a_cursor(queue: Bench) -> None:
    done, held = queue.add("true", gpus=0), queue.add("true", gpus=0, hold=True)
    queue.until(done)
    told = changes(queue, select=f"{done},{held},999")
    assert told["jobs"] == [
        {"id": done, "state": "done", "attempt": 1, "files": None},
        {"id": held, "state": "held", "attempt": 1, "files": None},
    ]
    assert told["files"] == str(queue.home / "jobs")
    assert changes(queue, since=told["cursor"], wait_s=0)["jobs"] == []
    queue.cancel(held)
    news = changes(queue, since=told["cursor"], wait_s=PATIENCE_S)
    assert news["jobs"] == [{"id": held, "state": "cancelled", "attempt": 1, "files": None}]
    assert news["cursor"] > told["cursor"]


def test_a_long_poll_returns_when_a_job_ends(queue: Bench, tmp_path: Path) -> None:
    """Also after a start, but that is less urgent; a cursor is valid at the next daemon too."""
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


def test_a_cursor_of_zero_returns_all_jobs(queue: Bench) -> None:
    ids = queue.add_many([{"command": "true"}] * 3, hold=True, gpus=0)
    whole = changes(queue, since=0, wait_s=0)
    assert {*ids} <= {job["id"] for job in whole["jobs"]}
    assert changes(queue, since=-5, wait_s=0) == whole
