"""`GET /v1/jobs/ID/log`: ranges, the tail, search and the index of lines."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bench import Bench
from dibs.http_api import job_logs

BODY = b"".join(b"line %d\n" % number for number in range(2500)) + "Fehler: naïve\x1b[31m\n".encode() + b"\xff last"


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Unix(http.client.HTTPConnection):
    """HTTP over the socket of a queue."""

    def __init__(self, path: Path) -> None:
        super().__init__("dibs", timeout=60)
        self.path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def ask(queue: Bench, path: str, **headers: str) -> Answer:
    connection = Unix(queue.client.socket_path)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def log(queue: Bench) -> str:
    """Return the address of the log of a job that printed all that."""
    (queue.folder / "body").write_bytes(BODY)
    job_id = queue.add(["cat", str(queue.folder / "body")], gpus=0)
    queue.until(job_id)
    return f"/v1/jobs/{job_id}/log"


def test_a_log_is_plain_text_whatever_it_contains(queue: Bench, log: str) -> None:
    whole = ask(queue, log)
    assert (whole.status, whole.body) == (200, BODY)
    assert whole.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    assert whole.headers["Dibs-Log-Size"] == str(len(BODY))
    assert whole.headers["Content-Disposition"] is None
    kept = ask(queue, f"{log}?download=1")
    assert kept.headers["Content-Disposition"].startswith("attachment; filename=")


@pytest.mark.parametrize(
    ("wanted", "first", "end"), [("0-9", 0, 10), ("100-", 100, None), ("-7", -7, None), ("5-99999999", 5, None)]
)
def test_a_range_returns_exactly_those_bytes(queue: Bench, log: str, wanted: str, first: int, end: int | None) -> None:
    part = ask(queue, log, Range=f"bytes={wanted}")
    expected = BODY[first:end]
    begin = BODY.index(expected)
    assert (part.status, part.body) == (206, expected)
    assert part.headers["Content-Range"] == f"bytes {begin}-{begin + len(expected) - 1}/{len(BODY)}"


def test_a_range_beyond_the_end_returns_the_length_of_the_log(queue: Bench, log: str) -> None:
    beyond = ask(queue, log, Range=f"bytes={len(BODY)}-")
    assert (beyond.status, beyond.body) == (416, b"")
    assert beyond.headers["Content-Range"] == f"bytes */{len(BODY)}"


def test_a_tail_returns_its_offset(queue: Bench, log: str) -> None:
    tail = ask(queue, f"{log}?tail=2")
    assert tail.body == BODY[BODY.index(b"Fehler") :]
    assert tail.headers["Dibs-Log-From"] == str(BODY.index(b"Fehler"))
    assert ask(queue, f"{log}?tail=0").body == b""
    assert ask(queue, f"{log}?tail=99999").body == BODY


def test_a_search_returns_the_offset_of_each_line(queue: Bench, log: str) -> None:
    told = ask(queue, f"{log}/search?text=NA%C3%8FVE").json()
    assert told["matches"] == [
        {"offset": BODY.index(b"Fehler"), "line": 2500, "text": "Fehler: naïve\x1b[31m"},
    ]
    assert (told["next"], told["size"]) == (None, len(BODY))
    assert ask(queue, f"{log}/search?text=NA&case=1").json()["matches"] == []
    some = ask(queue, f"{log}/search?text=%5Eline+1.5%24&regex=1&limit=3").json()
    assert [match["line"] for match in some["matches"]] == [105, 115, 125]
    more = ask(queue, f"{log}/search?text=%5Eline+1.5%24&regex=1&from={some['next']}").json()
    assert [match["text"] for match in more["matches"]] == [f"line 1{n}5" for n in range(3, 10)]


def test_lines_are_found_by_the_index(queue: Bench, log: str) -> None:
    told = ask(queue, f"{log}/lines").json()
    assert told["lines"] == 2502
    assert [BODY[at:].split(b"\n")[0] for at in told["offsets"]] == [b"line 0", b"line 1000", b"line 2000"]
    assert (told["next"], told["every"], told["traceback"]) == (None, 1000, None)


def test_a_missing_log_is_empty(queue: Bench) -> None:
    address = f"/v1/jobs/{queue.add('true', hold=True, gpus=0)}/log"
    assert ask(queue, address).body == b""
    assert ask(queue, f"{address}/search?text=x").json() == {"matches": [], "next": None, "size": 0}
    assert ask(queue, f"{address}/lines").json()["lines"] == 0
    assert ask(queue, address, Range="bytes=0-").status == 416


def test_every_attempt_and_stream_has_a_separate_log(queue: Bench, tmp_path: Path) -> None:
    job_id = queue.add("echo $DIBS_ATTEMPT; echo wrong >&2; false", gpus=0, stderr=f"{tmp_path}/err{{attempt}}")
    queue.until(job_id)
    queue.retry(job_id)
    queue.until(job_id)
    address = f"/v1/jobs/{job_id}/log"
    assert [ask(queue, f"{address}?attempt={n}").body for n in (1, 2)] == [b"1\n", b"2\n"]
    assert ask(queue, address).body == b"2\n"
    assert ask(queue, f"{address}?stream=stderr&attempt=1").body == b"wrong\n"
    assert ask(queue, f"{address}?attempt=3").status == 404


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?tail=-1", 400),
        ("?tail=x", 400),
        ("?attempt=0", 400),
        ("?stream=stderr", 400),
        ("?stream=../../etc/passwd", 400),
        ("?file=/etc/passwd", 400),
        ("/search", 400),
        ("/search?text=", 400),
        ("/search?text=(&regex=1", 400),
        ("/search?text=x&limit=1001", 400),
        ("/lines?from=-1", 400),
    ],
)
def test_an_invalid_request_is_refused(queue: Bench, log: str, query: str, status: int) -> None:
    answer = ask(queue, log + query)
    assert answer.status == status
    assert set(answer.json()["error"]) == {"kind", "message", "hint"}


def test_a_pipe_as_output_does_not_block(queue: Bench, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    job_id = queue.add("true", hold=True, gpus=0, output=str(tmp_path / "fifo"))
    for what in ("", "?tail=3", "/search?text=x", "/lines"):
        assert ask(queue, f"/v1/jobs/{job_id}/log{what}").status == 409


def test_a_log_of_gigabytes_is_streamed(queue: Bench, tmp_path: Path) -> None:
    """A client that reads a little and disconnects costs little; the daemon continues."""
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(5 * 1024**3)
    job_id = queue.add("true", hold=True, gpus=0, output=str(tmp_path / "huge"))
    connection = Unix(queue.client.socket_path)
    connection.request("GET", f"/v1/jobs/{job_id}/log")
    answer = connection.getresponse()
    assert answer.headers["Content-Length"] == str(5 * 1024**3)
    assert answer.read(1_000_000) == bytes(1_000_000)
    connection.close()
    part = ask(queue, f"/v1/jobs/{job_id}/log", Range=f"bytes={5 * 1024**3 - 5}-")
    assert part.body == bytes(5)


@given(size=some.integers(0, 50), first=some.integers(0, 60), last=some.integers(0, 60) | some.none())
def test_a_range_is_parsed_as_http_defines(size: int, first: int, last: int | None) -> None:
    body = bytes(range(size))
    found = job_logs.stretch(f"bytes={first}-{'' if last is None else last}", size)
    if last is not None and last < first:
        assert found is None
    else:
        assert found is not None
        assert body[found[0] : found[1]] == body[first : None if last is None else last + 1]
    assert job_logs.stretch(f"bytes=-{first}", size) == (size - min(first, size), size)


@pytest.mark.parametrize("header", ["", "bytes", "bytes=-", "bytes=1-2,4-5", "lines=1-2", "bytes=a-b", "bytes=--1"])
def test_an_invalid_range_is_ignored(header: str) -> None:
    assert job_logs.stretch(header, 10) is None
