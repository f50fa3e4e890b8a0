"""`GET /v1/jobs` in pages and `GET /v1/jobs/index`: what users and the page request."""

from __future__ import annotations

from typing import Any

import pytest

from bench import Bench
from dibs.errors import NotFound, UserError


@pytest.fixture(scope="module", autouse=True)
def jobs(queue: Bench) -> list[int]:
    """Thirty jobs: even ones held, the others done; every third in another project, the last one tagged."""
    ids = queue.add_many([{"command": f"true {n}", "name": f"n{n}", "hold": n % 2 == 0, "gpus": 0} for n in range(30)])
    for job_id in ids[1::2]:
        queue.until(job_id)
    edit(queue, ids[::6], project="third")
    edit(queue, [ids[28]], tags=["x"])
    return ids


def edit(queue: Bench, ids: list[int], **changes: object) -> None:
    queue.client.post("/v1/jobs/actions", {"verb": "edit", "select": [str(n) for n in ids], "changes": changes})


def ask(queue: Bench, path: str = "/v1/jobs", **query: object) -> Any:
    return queue.client.get(path, [(name, str(value)) for name, value in query.items()])


def test_pages_continue_to_the_end(queue: Bench, jobs: list[int]) -> None:
    found, cursor = [], ""
    while True:
        page = ask(queue, limit=7, **({"cursor": cursor} if cursor else {}))
        found += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        assert len(page["jobs"]) == 7
        cursor = page["next"]
    assert found == jobs[::-1]
    assert page["counts"]["held"] == 15
    assert page["queue"] == {"paused": False}


def test_a_row_of_a_page_is_a_row_of_the_overview(queue: Bench, jobs: list[int]) -> None:
    (row,) = ask(queue, limit=1)["jobs"]
    assert row == next(job for job in ask(queue)["jobs"] if job["id"] == jobs[-1])


def test_filters_are_combined(queue: Bench, jobs: list[int]) -> None:
    def ids(**query: object) -> list[int]:
        return [job["id"] for job in ask(queue, **query)["jobs"]]

    assert ids(state="done", sort="id") == jobs[1::2]
    assert ids(state="unfinished", sort="id") == jobs[::2]
    assert ids(project="third", sort="id") == jobs[::6]
    assert ids(project="third", state="done") == []
    assert ids(tag="x") == [jobs[28]]
    assert ids(name="n1?", state="held", sort="name") == jobs[10:20:2]
    assert ids(text="E 29") == [jobs[29]]
    assert ids(select=f"{jobs[3]}-{jobs[6]}", state="done") == [jobs[5], jobs[3]]
    assert ids(since="1h", limit=1000) == jobs[::-1]
    assert ids(until="1h") == []
    assert ids(gpu=0) == []
    assert ids(sort="-finished", limit=5, state="finished") == [
        job["id"] for job in sorted(queue.jobs("done"), key=lambda job: (job["finished_at"], job["id"]))[:-6:-1]
    ]


def test_the_index_has_every_id_of_a_list(queue: Bench, jobs: list[int]) -> None:
    first, last = jobs[0], jobs[-1]
    assert ask(queue, "/v1/jobs/index") == {"total": 30, "ranges": f"{first}-{last}", "more": False}
    held = ask(queue, "/v1/jobs/index", state="held", select=f"{first}-{jobs[5]}")
    assert held == {"total": 3, "ranges": f"{jobs[4]},{jobs[2]},{jobs[0]}", "more": False}
    named = ask(queue, "/v1/jobs/index", sort="name", name="n2?")
    assert named == {"total": 10, "ids": jobs[20:], "more": False}
    assert ask(queue, "/v1/jobs/index", state="lost") == {"total": 0, "ranges": "", "more": False}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"limit": "0"}, "limit: expected a number from 1 up, got 0."),
        ({"limit": "1001"}, "limit: expected a number up to 1000, got 1001."),
        ({"limit": "ten"}, "limit: expected a whole number, got ten."),
        ({"stat": "failed"}, 'there is no parameter "stat". Did you mean state?'),
        ({"state": "faild"}, 'expected states such as failed,timeout, got "faild". Did you mean failed?'),
        ({"sort": "color"}, "sort expected one of id, submitted, "),
        ({"since": "soon"}, 'since expected a time such as 2d, 08:00 or 2026-11-16T08:00, got "soon".'),
        ({"cursor": "x"}, 'cursor expected what `next` said, got "x".'),
        ({"select": "12x"}, "expected a job such as 12"),
    ],
)
def test_an_invalid_request_is_a_one_line_error(queue: Bench, query: dict[str, str], said: str) -> None:
    with pytest.raises(UserError) as error:
        ask(queue, **query)
    assert error.value.line().startswith(said)
    assert "\n" not in error.value.line()


@pytest.mark.parametrize("name", ["since", "seen", "most", "minutes"])
def test_a_number_that_is_too_large_is_refused_by_every_route(queue: Bench, name: str) -> None:
    paths = {
        "since": "/v1/jobs/changes",
        "seen": "/v1/jobs/wait",
        "most": "/v1/queue/starts",
        "minutes": "/v1/gpus/history",
    }
    with pytest.raises(UserError, match=f"{name}: expected a whole number"):
        ask(queue, paths[name], **{name: 10**30})


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/v1/jobs/1", {"until": "soon"}, "until: expected started or finished, got soon."),
        ("/v1/jobs/1", {"until": "started", "wait_s": "long"}, "wait_s: expected a number, got long."),
        ("/v1/jobs/1/log", {"stream": "both"}, "stream: expected stdout or stderr, got both."),
        ("/v1/jobs/changes", {"since": "x"}, "since: expected a whole number, got x."),
        ("/v1/jobs/wait", {"sen": "1"}, 'there is no parameter "sen". Did you mean seen?'),
        ("/v1/queue/line", {"most": "x"}, "most: expected a whole number, got x."),
        ("/v1/sweeps/1/results", {"most": "x"}, "most: expected a whole number, got x."),
    ],
)
def test_every_query_is_checked_in_the_same_words(queue: Bench, path: str, query: dict[str, str], said: str) -> None:
    with pytest.raises(UserError) as error:
        ask(queue, path, **query)
    assert error.value.line() == said


def test_a_wait_that_is_no_number_of_seconds_ends_at_once(queue: Bench, jobs: list[int]) -> None:
    assert ask(queue, f"/v1/jobs/{jobs[0]}", until="started", wait_s="nan")["state"] == "held"
    assert ask(queue, f"/v1/jobs/{jobs[0]}", until="started", wait_s="-1")["state"] == "held"


@pytest.mark.parametrize(
    ("header", "text"), [("Accept: */*", b"[" * 100_000), ("Content-Encoding: gzip", b'{"argv":["true"]}')]
)
def test_a_body_that_is_no_json_is_refused(queue: Bench, header: str, text: bytes) -> None:
    head = (
        "POST /v1/jobs HTTP/1.1\r\nHost: dibs\r\nContent-Type: application/json\r\n"
        f"{header}\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    sock = queue.client.connect()
    assert sock is not None
    with sock:
        sock.sendall(head.encode() + text)
        assert sock.recv(12) == b"HTTP/1.1 400"


def test_an_unknown_gpu_is_not_found(queue: Bench) -> None:
    with pytest.raises(NotFound, match="gpu expected an index or UUID"):
        ask(queue, gpu="9")


def test_sweeps_and_batches_of_a_list_are_its_groups(bench: Bench) -> None:
    bench.start()
    alone = bench.add("true", gpus=0)
    done = bench.cli("sweep", "true {x}", "--name", "wide", "-g", "0", "-p", "x=1,2,3")
    assert done.returncode == 0, done.stderr
    runs = [job["id"] for job in ask(bench, sort="id", limit="9")["jobs"] if job["sweep"] == "wide"]
    ids = bench.client.post(
        "/v1/jobs", {"defaults": {"gpus": 0, "cwd": "/"}, "jobs": [{"argv": ["true"]}] * 2, "at_once": 1}
    )["ids"]
    bench.wait_all()
    found = ask(bench, "/v1/jobs/bundles")["bundles"]
    assert [(each["name"], each["total"], each["ids"]) for each in found] == [
        ("true", 2, f"{ids[0]}-{ids[-1]}"),
        ("wide", 3, f"{runs[0]}-{runs[-1]}"),
    ]
    assert [each["sweep"] is None for each in found] == [True, False]
    assert found[1]["counts"] == {"done": 3}
    assert alone not in (*runs, *ids)
    # Of a filtered list only what is in it, and one job is no group.
    assert ask(bench, "/v1/jobs/bundles", text="true 1")["bundles"] == []
    assert ask(bench, "/v1/jobs/bundles", state="failed")["bundles"] == []
