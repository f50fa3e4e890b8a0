"""`GET /v1/queue/line`: the waiting jobs in the order of service, as the page shows them."""

from __future__ import annotations

from bench import Bench

LONG = "sleep 600"


def test_jobs_are_in_the_order_of_service_with_unservable_ones_last(bench: Bench) -> None:
    bench.until(bench.add(LONG, gpus=4, time_limit_s=3600), "started")
    bench.add("true held", hold=True)
    bench.add("true after", after=[{"select": "1"}])
    bench.add("true third", gpus=1)
    bench.add("true first", gpus=1, priority=10)
    bench.client.post("/v1/jobs/actions", {"verb": "move", "select": [str(bench.add("true second"))], "to": "first"})
    line = bench.client.get("/v1/queue/line")["line"]
    assert [one["command"] for one in line] == ["true first", "true second", "true third", "true held", "true after"]
    assert all(one["expected_start"]["latest"] for one in line[:3])
    assert line[3]["expected_start"] is None
    assert line[4]["expected_start"]["latest"] >= line[0]["expected_start"]["latest"]
    assert line[3]["reason"] == "held by you"
    assert [one["id"] for one in bench.client.get("/v1/queue/line", [("most", "2")])["line"]] == [5, 6]


def test_the_line_and_why_have_one_forecast(bench: Bench) -> None:
    """Also for a job that waits for its time, while a GPU is free."""
    bench.add("true", begin_at="2099-01-01T12:00:00Z")
    (listed,) = bench.client.get("/v1/queue/line")["line"]
    told = bench.client.get("/v1/jobs/1/why")
    assert listed["expected_start"] == told["expected_start"] == bench.job(1)["expected_start"]
    assert told["expected_start"]["latest"] == "2099-01-01T12:00:00.000Z"


def test_an_empty_queue_has_an_empty_line(bench: Bench) -> None:
    bench.start()
    assert bench.client.get("/v1/queue/line") == {"line": []}
