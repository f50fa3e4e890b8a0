"""The OpenAPI document: it is valid, has every route, and a daemon answers as documented, whatever the request.

Schemathesis makes requests from the document, with a fixed seed, over TCP with a token as a browser would.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import openapi_spec_validator
import pytest
import schemathesis
from schemathesis import checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bench import Bench
from dibs.http_api import openapi
from dibs.http_api.routes import ROUTES

DOCUMENT: dict[str, Any] = json.loads(json.dumps(openapi.document(ROUTES)))
#: Requests that end the daemon or our access: each gets a separate daemon, which is started anew.
ENDING = {"/v1/daemon/stop", "/v1/session/rotate", "/v1/web", "/v1/doctor"}
#: Routes that never end by themselves: only the beginning is checked.
ENDLESS = "/v1/events"
CHECKS = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
#: A finished job and a sweep, a verb, a GPU.
THERE = {"name": "night", "id": 1, "verb": "hold", "gpu": "0"}
#: Every operation, as Schemathesis sees it.
SEEN: dict[tuple[str, str], Any] = {
    (operation.method, operation.path): operation
    for operation in (each.ok() for each in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations())
}
OPERATIONS = [
    (method, path)
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if path not in {*ENDING, ENDLESS}
]


def test_the_document_is_valid() -> None:
    openapi_spec_validator.validate(DOCUMENT)


def test_the_document_has_every_route_but_those_of_the_page() -> None:
    told = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    own = {(route.method, route.path) for route in ROUTES if re.match(r"/v1/|/metrics", route.path)}
    assert told == own
    assert {*ENDING, ENDLESS} <= DOCUMENT["paths"].keys()


def test_every_answer_of_every_route_is_documented() -> None:
    for route in ROUTES:
        if route.path in DOCUMENT["paths"]:
            told = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
            assert {*map(str, (*route.answers, *route.errors, *openapi.COMMON_ERRORS))} <= told.keys()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, str, dict[str, str]]]:
    """Start a queue with a job of each kind where nothing more starts; return how to query it like a browser."""
    folder: Path = tmp_path_factory.mktemp("served")
    own = Bench(folder, DIBS_SHELL="/bin/true")
    # Generated jobs run here, if at all.
    own.environ["HOME"] = str(folder)
    own.start()
    job_id = own.add("true", metric={"loss": "loss=(.*)"})
    own.until(job_id)
    own.add("true", hold=True)
    own.client.post("/v1/sweeps", {"name": "s", "command": "echo {x}"})
    own.client.post("/v1/queue", {"paused": True})
    port = own.client.post("/v1/web", {})["port"]
    code = own.client.post("/v1/session/codes", None)["code"]
    token = own.client.post("/v1/session", {"code": code})["token"]
    yield own, f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"}
    own.close()


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda word: word)
def test_a_daemon_answers_as_documented(served: Any, method: str, path: str) -> None:
    """Requests that the document allows, and others: never an internal error, never an undocumented answer."""
    queue, base, headers = served
    operation, told = SEEN[method, path], DOCUMENT["paths"][path][method]
    ways = [operation.as_strategy(generation_mode=GenerationMode.POSITIVE)]
    if "{" in path:
        # Of existing things; any other number most likely does not exist.
        known = {name: THERE[name] for name in re.findall(r"{(\w+)}", path)}
        ways.append(operation.as_strategy(generation_mode=GenerationMode.POSITIVE, path_parameters=known))
    if "requestBody" in told or any(each["in"] == "query" or each["name"] == "id" for each in told["parameters"]):
        ways.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    for way in ways:

        @hypothesis.settings(
            max_examples=5,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=way)
        def ask(case: Any) -> None:
            if case.query and "wait_s" in case.query:
                # No test waits for a minute.
                case.query["wait_s"] = 0.0
            case.call_and_validate(base_url=base, headers=headers, checks=CHECKS, timeout=60)

        ask()
    assert queue.pid() is not None


def let_in(own: Bench) -> tuple[str, dict[str, str]]:
    """Return the address and the headers for browsers of a daemon, which is started if there is none."""
    own.start()
    port = own.client.post("/v1/web", {})["port"]
    code = own.client.post("/v1/session/codes", None)["code"]
    token = own.client.post("/v1/session", {"code": code})["token"]
    return f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", sorted(ENDING))
def test_routes_that_end_something_also_answer_as_documented(bench: Bench, path: str) -> None:
    ((method, told),) = DOCUMENT["paths"][path].items()
    modes = [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if "requestBody" in told else [])]
    for mode in modes:

        @hypothesis.settings(
            max_examples=3,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=SEEN[method, path].as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            base, headers = let_in(bench)
            case.call_and_validate(base_url=base, headers=headers, checks=CHECKS, timeout=60)
            if path == "/v1/daemon/stop":
                # It may just have been asked to stop: the next request needs another daemon.
                bench.kill()

        ask()


@pytest.mark.parametrize("query", ["", "?job=1", "?job=99999", "?job=x", "?odd=1", "?job=", "?job=1&job=2"])
def test_a_stream_begins_as_documented(served: Any, query: str) -> None:
    _, base, headers = served
    link = http.client.HTTPConnection(base.removeprefix("http://"), timeout=60)
    try:
        link.request("GET", ENDLESS + query, headers=headers)
        answer = link.getresponse()
        told = DOCUMENT["paths"][ENDLESS]["get"]["responses"][str(answer.status)]
        assert answer.getheader("Content-Type", "").partition(";")[0] in told["content"]
        if answer.status == 200:
            assert answer.readline() != b""
    finally:
        link.close()


def test_the_document_is_served(served: Any) -> None:
    queue, _, _ = served
    assert queue.client.get("/v1/openapi.json") == DOCUMENT
