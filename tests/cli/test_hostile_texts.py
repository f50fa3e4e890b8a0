"""Texts of users in names, commands, sweeps and logs stay text: in JSON, on a terminal, and never a path."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import escapes
from bench import Bench
from browsers import Answer, Browser, link
from dibs.errors import UserError
from dibs.http_api import static_pages
from dibs.http_api.connections import HEADERS
from fakes.nvml.world import World
from payloads import MARKUP

#: How a text gets into each string of a job.
FIELDS: dict[str, Any] = {
    "name": lambda text: {"name": text},
    "project": lambda text: {"project": text},
    "tags": lambda text: {"tags": [text]},
    "command": lambda text: {"command": text},
    "argv": lambda text: {"command": None, "argv": ["true", text]},
    "cwd": lambda text: {"cwd": text},
    "env": lambda text: {"env": {"X": text}},
    "env name": lambda text: {"env": {text: "x"}},
    "gpu_ids": lambda text: {"gpu_ids": [text]},
    "prefer": lambda text: {"prefer": [text]},
    "gpu_type": lambda text: {"gpu_type": text},
    "begin_at": lambda text: {"begin_at": text},
    "retry_on": lambda text: {"retry_on": [text]},
    "output": lambda text: {"output": text},
    "stderr": lambda text: {"stderr": text},
    "visible": lambda text: {"visible": text},
    "metric": lambda text: {"metric": {"loss": text}},
    "metric name": lambda text: {"metric": {text: "(.)"}},
    "notify": lambda text: {"notify": text},
}
SWEEP_FIELDS: dict[str, Any] = {
    "name": lambda text: {"name": text},
    "project": lambda text: {"project": text},
    "command": lambda text: {"command": text},
    "dir": lambda text: {"dir": text},
    "metric": lambda text: {"metric": text},
    "definition": lambda text: {"definition": {"x": text}},
    "parameters": lambda text: {"parameters": [text]},
}
SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def browser(queue: Bench) -> Iterator[Browser]:
    """Return a browser that is logged in."""
    address, code = link(queue)
    with Browser(address).keeping() as own:
        own.sign_in(code)
        yield own


def not_for_reading(text: str) -> set[str]:
    """Return the characters that a terminal would not just display."""
    return {char for char in text if not (char.isprintable() or char == "\n" or unicodedata.category(char) == "Zs")}


def check_is_data(answer: Answer) -> Any:
    """Check that no browser renders an answer as a page; return its text."""
    assert answer.headers["Content-Type"] == "application/json"
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    return answer.json


def submit(queue: Bench, fields: dict[str, Any]) -> int | None:
    """Queue a job that is never started; None if it was refused as expected."""
    try:
        body = {"command": "true", "cwd": str(queue.folder), "hold": True, **fields}
        return int(queue.client.post("/v1/jobs", body)["ids"][0])
    except UserError:
        return None


@pytest.fixture(scope="module")
def jobs(queue: Bench) -> dict[int, tuple[str, str]]:
    """Submit every text in every string of a job; return the field and the text of all that were accepted."""
    made = {}
    for field, fill in FIELDS.items():
        for text in escapes.ALL:
            if (number := submit(queue, fill(text))) is not None:
                made[number] = field, text
    return made


def test_there_are_enough_hostile_texts() -> None:
    assert len({*escapes.ALL}) == len(escapes.ALL) >= 60


def test_most_texts_are_accepted_in_names_and_commands(jobs: dict[int, tuple[str, str]]) -> None:
    for field in ("name", "command", "argv", "tags"):
        assert sum(found == field for found, _ in jobs.values()) > 50, field


def test_texts_survive_a_round_trip_through_json(browser: Browser, jobs: dict[int, tuple[str, str]]) -> None:
    for number, (field, text) in jobs.items():
        job = check_is_data(browser.ask("GET", f"/v1/jobs/{number}"))
        if field in ("name", "project", "command"):
            assert job[field] == text
        elif field in ("argv", "tags"):
            assert job[field][-1] == text
    listed = check_is_data(browser.ask("GET", "/v1/jobs?select=all"))
    assert {job["id"] for job in listed["jobs"]} >= {*jobs}


@pytest.mark.parametrize("environ", [{}, {"FORCE_COLOR": "1"}], ids=["piped", "coloured"])
def test_no_output_contains_terminal_control_characters(
    queue: Bench, jobs: dict[int, tuple[str, str]], environ: dict[str, str]
) -> None:
    some = [str(number) for number, (field, _) in jobs.items() if field in ("name", "command", "tags", "output", "env")]
    for words in (["status", "all"], ["show", *some[::3]], ["why", *some[:40]], ["gpus"], ["config"]):
        said = queue.cli(*words, environ=environ)
        assert said.stdout, words
        for told in (said.stdout, said.stderr):
            assert not_for_reading(SGR.sub("", told) if environ else told) == set(), words


@pytest.mark.parametrize("text", escapes.TERMINAL[::4], ids=ascii)
def test_no_error_contains_terminal_control_characters(queue: Bench, text: str) -> None:
    for words in (["show", text], ["add", "--priority", text, "true"], ["config", text], ["web", text]):
        said = queue.cli(*words)
        assert said.returncode in (2, 3)
        assert not_for_reading(said.stderr) == set()
        assert said.stderr.count("\n") == 1


def test_sweep_names_and_parameters_stay_text(queue: Bench, browser: Browser) -> None:
    accepted = 0
    for field, fill in SWEEP_FIELDS.items():
        for number, text in enumerate(escapes.ALL):
            body = {"name": f"{field}-{number}", "command": "echo {lr}", "parameters": ["lr"], **fill(text)}
            told = check_is_data(browser.ask("POST", "/v1/sweeps", body))
            accepted += "error" not in told
    assert accepted > 200
    listed = check_is_data(browser.ask("GET", "/v1/sweeps"))
    assert MARKUP[0] in json.dumps(listed)


def test_a_log_is_plain_text(queue: Bench, browser: Browser) -> None:
    text = "\n".join(escapes.ALL).replace("\0", "")
    (queue.folder / "said").write_text(text)
    job = queue.add(["cat", "said"], gpus=0)
    queue.until(job)
    answer = browser.ask("GET", f"/v1/jobs/{job}/log")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert answer.body == text.encode()


def test_no_text_is_used_as_a_path(queue: Bench, browser: Browser) -> None:
    secret = json.loads((queue.home / "web.json").read_text())["token"]
    index = (static_pages.FOLDER / static_pages.INDEX).read_bytes()
    job = queue.add("true", gpus=0)
    queue.until(job)
    for text in (*escapes.PLACES, *MARKUP):
        for said in (quote(text, safe=""), quote(text, safe="/%.~")):
            for path in (f"/static/{said}", f"/v1/jobs/{said}", f"/v1/jobs/{said}/log", f"/v1/sweeps/{said}/results",
                         f"/v1/jobs/{job}/log?stream={said}", f"/job/{said}", f"/{said}"):  # fmt: skip
                answer = browser.ask("GET", path)
                assert answer.status < 500, path
                assert b"root:" not in answer.body, path
                assert secret.encode() not in answer.body, path
                is_html = answer.headers["Content-Type"].startswith("text/html")
                assert answer.body == index if is_html else answer.status != 200 or path.startswith("/v1/"), path


def test_gpu_names_stay_text(tmp_path: Path, nvml: World) -> None:
    names = [
        "<script>alert(1)</script>",
        "\x1b]0;owned\x07",
        "\x1b[2J",
        "\u202egnp",
        "../../etc/passwd",
        "a\x7fb",
        "{{7*7}}",
    ]
    nvml.is_now(*(f"gpu {number} name={name}" for number, name in enumerate(names)))
    own = Bench(tmp_path, devices="", **nvml.environ)
    try:
        own.start()
        address, code = link(own)
        browser = Browser(address)
        browser.sign_in(code)
        told = check_is_data(browser.ask("GET", "/v1/gpus"))["gpus"]
        assert [gpu["name"] for gpu in told][:1] == names[:1]
        said = own.cli("gpus")
        assert said.returncode == 0
        assert len(told) == len(names)
        assert not_for_reading(said.stdout + said.stderr) == set()
    finally:
        own.close()


def test_the_token_and_the_codes_are_stored_nowhere_else(bench: Bench) -> None:
    bench.start()
    secrets = []
    for words in ([], ["--rotate"]):
        address, code = link(bench, *words)
        browser = Browser(address)
        browser.sign_in(code)
        secrets += [code.encode(), browser.headers["Authorization"].removeprefix("Bearer ").encode()]
    token = secrets[-1]
    host = address.removeprefix("http://").rstrip("/").encode()
    for sent in (b"GET / HTTP/1.1\r\nHost: %s\r\nAuthorization : Bearer %s\r\n\r\n", b"GARBAGE %s %s\r\n\r\n",
                 b"GET /v1/nothing HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: %s\r\nX\0: %s\r\n\r\n"):  # fmt: skip
        browser.raw(sent % (host, token))
    browser.ask("GET", "/v1/jobs/99999")
    browser.ask("POST", "/v1/session", {"code": "x"})
    job = browser.ask("POST", "/v1/jobs", {"command": "env; sleep 0", "cwd": "/", "gpus": 0}).json["ids"][0]
    bench.until(job)
    words = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if is_there(path)]
    bench.stop()
    files = {path: path.read_bytes() for path in bench.folder.rglob("*") if path.is_file()}
    for secret in secrets:
        assert not any(secret in each for each in words)
        assert {path.name for path, content in files.items() if secret in content} <= {"web.json"}
    assert token in files[bench.home / "web.json"]


def is_there(path: Path) -> bool:
    """Return whether a process can still be inspected."""
    try:
        return bool(path.read_bytes())
    except OSError:
        return False
