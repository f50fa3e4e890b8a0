"""`GET /v1/events` of a real daemon: all events, from the point where a client was disconnected."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import chores
from bench import Bench, wait_for
from dibs.errors import NotFound
from dibs.http_api import event_hub, event_stream
from dibs.system import paths
from event_listener import Heard, Listener, ask, is_end


def table(queue: Bench, since: int = 0) -> list[tuple[int, int, str]]:
    """Return number, job and kind of all stored events."""
    with contextlib.closing(sqlite3.connect(f"file:{paths.database(queue.home)}?mode=ro", uri=True)) as database:
        return database.execute("SELECT id, job, kind FROM events WHERE id > ? ORDER BY id", [since]).fetchall()


def newest(queue: Bench) -> int:
    return int(queue.client.get("/v1/jobs/changes", [("select", "all")])["cursor"])


@pytest.fixture
def listen(queue: Bench) -> Iterator[type[Listener]]:
    """Open listeners to the queue of this module, and close them at the end."""
    with contextlib.ExitStack() as all_of_them:

        def begin(since: int | None = None, job: int | None = None) -> Listener:
            made = Listener(queue, since, job)
            all_of_them.callback(made.close)
            return made

        yield begin  # type: ignore[misc]


def test_a_stream_begins_with_the_queue_and_follows_a_job_to_its_end(queue: Bench, listen: type[Listener]) -> None:
    last = newest(queue)
    one = listen()
    assert one.head.startswith("HTTP/1.1 200 ")
    assert "Content-Type: text/event-stream" in one.head
    hello = one.next()
    assert (hello.event, hello.number) == ("hello", last)
    assert hello.data["last"] == last
    assert hello.data["queue"] == {"paused": False}
    assert hello.data["counts"] == queue.client.get("/v1/queue")["counts"]
    assert hello.data["user"] == queue.client.get("/v1/daemon")["user"]
    job_id = queue.add("true", gpus=0)
    end = one.until(is_end(job_id))
    assert end.data.keys() == {"job", "at", "kind", "detail", "state", "attempt"}
    assert (end.data["state"], end.data["attempt"]) == ("done", 1)
    assert one.until(lambda heard: heard.event == "counts").data["counts"]["done"] >= 1
    assert one.jobs() == [row for row in table(queue, last) if row[0] <= (end.number or 0)]


def test_changes_of_devices_and_of_the_queue_are_sent(queue: Bench, listen: type[Listener]) -> None:
    def is_drained(heard: Heard) -> bool:
        return heard.event == "gpus" and heard.data["gpus"][1]["state"] == "drained"

    one = listen()
    first = one.until(lambda heard: heard.event == "gpus").data
    assert first == queue.client.get("/v1/gpus")
    queue.client.post("/v1/gpus/1/drain", {})
    one.until(is_drained)
    queue.client.post("/v1/gpus/1/undrain", {})
    queue.client.post("/v1/queue", {"paused": True})
    one.until(lambda heard: heard.event == "counts" and heard.data["queue"]["paused"])
    queue.client.post("/v1/queue", {"paused": False})
    one.until(lambda heard: heard.event == "counts" and not heard.data["queue"]["paused"])


def test_two_hundred_listeners_at_once_leave_nothing_behind(queue: Bench, listen: type[Listener]) -> None:
    files = Path("/proc", str(queue.pid()), "fd")
    before = len(os.listdir(files))
    crowd = [listen() for _ in range(200)]
    job_id = queue.add("true", gpus=0)
    for each in crowd:
        each.until(is_end(job_id))
    told = [[row for row in each.jobs() if row[1] == job_id] for each in crowd]
    assert told == [told[0]] * 200
    for each in crowd:
        each.close()
    wait_for(lambda: len(os.listdir(files)), lambda now: now < before + 20)


def test_a_stream_interrupted_repeatedly_delivers_every_event_once(queue: Bench, listen: type[Listener]) -> None:
    chance = random.Random(8)
    one = listen()
    since = start = one.next().data["last"]
    heard: list[tuple[int, int, str]] = []
    for _ in range(25):
        ids = queue.add_many([{"command": "true"}] * chance.randint(1, 8), hold=True, gpus=0)
        queue.cancel(*ids[: chance.randint(1, len(ids))])
        for _ in range(chance.randint(0, 12)):
            if len(heard) + len(one.jobs()) < len(table(queue, start)):
                one.next()
        if chance.random() < 0.6:
            heard += one.jobs()
            since = heard[-1][0] if heard else start
            one.close()
            one = listen(since)
    expected = table(queue, start)
    while len(heard) + len(one.jobs()) < len(expected):
        one.next()
    assert heard + one.jobs() == expected


def test_a_stream_continues_at_the_next_daemon(bench: Bench) -> None:
    """With the events that it missed, those in between, and those the next daemon found out."""
    bench.start()
    with chores.closed(f"{bench.folder}/gate"):
        one = Listener(bench)
        job_id = bench.add(["flock", "-s", f"{bench.folder}/gate", "true"], gpus=1)
        since = one.until(lambda heard: heard.event == "job").number
        bench.until(job_id, "started")
        bench.kill()
        with pytest.raises((EOFError, ConnectionError)):
            one.until(is_end(job_id))
    since = one.jobs()[-1][0]
    one.close()
    bench.start()
    two = Listener(bench, since)
    assert two.next().number is None
    two.until(is_end(job_id))
    assert one.jobs() + two.jobs() == table(bench)
    two.close()


def test_stopping_the_daemon_ends_the_streams_properly(bench: Bench) -> None:
    """With a last chunk, which is not sent if the daemon waits for them in vain."""
    bench.start()
    all_of_them = [Listener(bench) for _ in range(5)]
    assert all(each.next().event == "hello" for each in all_of_them)
    bench.stop()
    for each in all_of_them:
        with pytest.raises(EOFError, match="ended well"):
            each.until(lambda heard: False)
        each.close()


def test_a_client_that_was_away_too_long_is_reset(queue: Bench, listen: type[Listener]) -> None:
    one = listen()
    old = one.next().data["last"]
    queue.add_many([{"command": "true"}] * (event_hub.HISTORY + 1), hold=True, gpus=0)
    last = newest(queue)
    told = one.until(lambda heard: heard.event in ("reset", "job"))
    assert (told.event, told.data, told.number) == ("reset", {"last": last}, last)
    for since in (old, last + 1, 10**17):
        two = listen(since)
        assert [two.next().event, two.next()] == ["hello", told]
    three = listen(last - 3)
    assert three.next().event == "hello"
    assert [three.next().number for _ in range(3)] == [last - 2, last - 1, last]
    queue.client.post("/v1/jobs/actions", {"verb": "cancel", "select": ["held"]})


def test_the_stream_of_one_job_reaches_back_without_a_limit(queue: Bench, listen: type[Listener]) -> None:
    job_id, other = queue.add_many([{"command": "true"}] * 2, hold=True, gpus=0)
    since = newest(queue)
    queue.add_many([{"command": "true"}] * (event_hub.HISTORY + 1), hold=True, gpus=0)
    queue.cancel(other, job_id)
    one = listen(since, job_id)
    assert one.next().event == "hello"
    assert (one.next().data["kind"], one.heard[-1].data["state"]) == ("CancelAsked", "cancelled")
    queue.retry(job_id, other)
    one.until(is_end(job_id))
    one.until(lambda heard: heard.event == "counts")
    assert {heard.data["job"] for heard in one.heard if heard.event == "job"} == {job_id}
    assert {heard.event for heard in one.heard} == {"hello", "job", "counts"}
    queue.client.post("/v1/jobs/actions", {"verb": "cancel", "select": ["held"]})
    with pytest.raises(NotFound):
        queue.client.get("/v1/events", [("job", str(10**9))])


def test_a_client_that_does_not_read_is_disconnected_and_can_reconnect(queue: Bench, listen: type[Listener]) -> None:
    slow, quick = listen(), listen()
    while not slow.is_cut():
        queue.add_many([{"command": "true"}] * 1000, hold=True, gpus=0)
        last = newest(queue)
        quick.until(lambda heard, last=last: heard.number == last)
    slow.to_the_end()
    assert slow.jobs() == quick.jobs()[: len(slow.jobs())]
    assert len(slow.jobs()) < len(quick.jobs())
    since = last - 100
    again = listen(since)
    again.until(lambda heard: heard.number == last)
    assert again.jobs() == [row for row in quick.jobs() if row[0] > since]
    queue.cancel("held")


@pytest.mark.parametrize("head", ["Last-Event-ID: seven", "Last-Event-ID: -1", "Last-Event-ID: 1e3"])
def test_an_invalid_number_is_refused_by_name(queue: Bench, head: str) -> None:
    assert b"Last-Event-ID expected the number of an event" in ask(queue, f"GET /v1/events HTTP/1.1\r\n{head}")


def test_a_request_that_cannot_be_a_stream_is_refused(queue: Bench, listen: type[Listener]) -> None:
    assert b"expected HTTP/1.1" in ask(queue, "GET /v1/events HTTP/1.0")
    for query in ("job=0", "job=x", "jobs=1"):
        assert b" 400 " in ask(queue, f"GET /v1/events?{query} HTTP/1.1").partition(b"\r\n")[0]


def test_the_number_of_listeners_is_limited(bench: Bench) -> None:
    bench.start()
    crowd = [Listener(bench) for _ in range(event_stream.MOST_STREAMS)]
    assert all(each.next().event == "hello" for each in crowd)
    assert b" 409 " in ask(bench, "GET /v1/events HTTP/1.1").partition(b"\r\n")[0]
    for each in crowd:
        each.close()
    wait_for(lambda: ask(bench, "GET /v1/events?job=7 HTTP/1.1"), lambda answer: b" 404 " in answer)
