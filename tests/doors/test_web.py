"""The door for browsers on real sockets: how one gets in, who does not, and what goes with every answer."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench import Bench
from dibs.http_api.connections import HEADERS

JSON = {"Content-Type": "application/json"}


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return what it says."""
        return json.loads(self.body)


@dataclass
class Browser:
    """Something that asks on TCP."""

    address: str
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> Answer:
        """Ask for something."""
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        try:
            headers = self.headers | (JSON if body is not None else {}) | more
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def sign_in(self, code: str) -> None:
        """Exchange a code for the token."""
        token = self.ask("POST", "/v1/session", {"code": code}).json["token"]
        self.headers["Authorization"] = f"Bearer {token}"


def link(bench: Bench, *words: str) -> tuple[str, str]:
    """Return the address and the code of a new link."""
    address, _, code = json.loads(bench.cli("web", "--json", *words).stdout)["link"].partition("#code=")
    return address, code


@pytest.fixture
def browser(queue: Bench) -> Browser:
    """A browser that was let in."""
    address, code = link(queue)
    own = Browser(address)
    own.sign_in(code)
    return own


def test_a_link_lets_a_browser_in_once(queue: Bench) -> None:
    address, code = link(queue)
    first, second = Browser(address), Browser(address)
    assert first.ask("GET", "/v1/jobs").status == 401
    first.sign_in(code)
    assert first.ask("GET", "/v1/jobs").status == 200
    assert second.ask("POST", "/v1/session", {"code": code}).status == 401


def test_the_page_and_its_files_are_there_for_whoever_may_connect(browser: Browser) -> None:
    anybody = Browser(browser.address)
    page = anybody.ask("GET", "/job/12")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    script = anybody.ask("GET", "/static/app.js")
    assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
    tag = script.headers["ETag"]
    assert anybody.ask("GET", "/static/app.js", **{"If-None-Match": tag}).status == 304


def test_every_answer_has_the_headers_that_make_it_harmless(browser: Browser) -> None:
    for path in ("/", "/static/app.js", "/static/nothing", "/v1/jobs", "/v1/nothing", "/v1/jobs?select=]"):
        answer = browser.ask("GET", path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, path
        assert not {"Set-Cookie", "Access-Control-Allow-Origin"} & {*answer.headers}


def test_a_new_token_shuts_all_browsers_out(queue: Bench) -> None:
    address, code = link(queue)
    browser = Browser(address)
    browser.sign_in(code)
    assert browser.ask("GET", "/v1/jobs").status == 200
    link(queue, "--rotate")
    assert browser.ask("GET", "/v1/jobs").status == 401
