"""The port for browsers on real sockets: how to log in, who is refused, and the headers of every answer."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import socket
import time
from collections import Counter
from urllib.parse import urlsplit

import pytest

from bench import Bench
from browsers import Browser, converse, link, quiet_port
from dibs.cli.verbs import web
from dibs.http_api import admission, static_pages
from dibs.http_api.admission import RequestSummary
from dibs.http_api.connections import HEADERS, OF_PAGES
from dibs.http_api.route_types import Route
from dibs.http_api.routes import ROUTES
from dibs.http_api.tokens import DELAY_S, PATIENT_UNTIL
from forking import PATIENCE_S
from matrix import (
    BODIES,
    FETCHES,
    HOSTS,
    METHODS,
    ORIGINS,
    OWN,
    PORT,
    TARGETS,
    TCP,
    TOKEN,
    TOKENS,
    UNIX,
    Case,
    asked,
)


@pytest.fixture
def browser(queue: Bench) -> Browser:
    """Return a browser that is logged in."""
    address, code = link(queue)
    own = Browser(address)
    own.sign_in(code)
    return own


def test_a_login_link_works_once(queue: Bench) -> None:
    address, code = link(queue)
    first, second = Browser(address), Browser(address)
    assert first.ask("GET", "/v1/jobs").status == 401
    first.sign_in(code)
    assert first.ask("GET", "/v1/jobs").status == 200
    assert second.ask("POST", "/v1/session", {"code": code}).status == 401


def test_the_page_and_its_files_need_no_token(browser: Browser) -> None:
    anybody = Browser(browser.address)
    page = anybody.ask("GET", "/job/12")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    script = anybody.ask("GET", "/static/app.js")
    assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
    tag = script.headers["ETag"]
    assert anybody.ask("GET", "/static/app.js", **{"If-None-Match": tag}).status == 304


def headers_of(kind: str) -> dict[str, str]:
    """Return the headers that an answer of a kind must have: parts of a page lack those about pages."""
    is_part = kind.startswith(("text/javascript", "text/css"))
    return {name: value for name, value in HEADERS.items() if not (is_part and name in OF_PAGES)}


def test_every_answer_has_the_security_headers(browser: Browser) -> None:
    paths = (
        "/",
        "/static/app.js",
        "/static/app.css",
        "/static/nothing",
        "/v1/jobs",
        "/v1/nothing",
        "/v1/jobs?select=]",
    )
    for path in paths:
        answer = browser.ask("GET", path)
        wanted = headers_of(answer.headers["Content-Type"])
        assert {name: answer.headers[name] for name in HEADERS if name in answer.headers} == wanted, path
        assert (len(wanted) < len(HEADERS)) == (path in paths[1:3])
        assert not {"Set-Cookie", "Access-Control-Allow-Origin"} & {*answer.headers}


def test_a_new_token_logs_out_all_browsers(queue: Bench) -> None:
    address, code = link(queue)
    browser = Browser(address)
    browser.sign_in(code)
    assert browser.ask("GET", "/v1/jobs").status == 200
    link(queue, "--rotate")
    assert browser.ask("GET", "/v1/jobs").status == 401


@pytest.mark.parametrize("word", ["--rotate", "--stop"])
def test_an_event_stream_ends_with_its_token_and_with_its_port(queue: Bench, word: str) -> None:
    address, code = link(queue)
    browser = Browser(address)
    browser.sign_in(code)
    key = browser.headers["Authorization"]
    where = urlsplit(address)
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S) as stream:
        stream.sendall(f"GET /v1/events HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: {key}\r\n\r\n".encode())
        told = b""
        while b"event: hello" not in told:
            told += stream.recv(65536)
        check_headers(told.partition(HEAD_END)[0], word)
        assert queue.cli("web", word).returncode == 0
        # It ends, one way or the other; if the stream continued, this would wait in vain.
        with contextlib.suppress(ConnectionResetError):
            while stream.recv(65536):
                pass


def request(case: Case, port: int) -> bytes:
    """Write a combination as it would be sent to a port."""
    lines = [f"{case.method} {case.target} HTTP/1.1", "Connection: close"]
    said = asked(OWN, case)
    lines += [f"{name}: {value}" for name, values in named(said) for value in values]
    body = b"" if case.body is None else b"{}"
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).replace(f":{PORT}", f":{port}").encode() + body


def named(said: RequestSummary) -> list[tuple[str, tuple[str, ...]]]:
    """Return the headers of a request."""
    fetch = [("Sec-Fetch-Site", said.sites), ("Sec-Fetch-Mode", said.modes), ("Sec-Fetch-Dest", said.dests)]
    others = [("Authorization", said.authorizations), ("Content-Type", said.content_types)]
    return [("Host", said.hosts), ("Origin", said.origins), *fetch, *others]


def sample() -> list[Case]:
    """Return a few hundred combinations, good ones among them; a test of the rule itself tries them all.

    No wrong tokens, which would be answered late.
    """
    chance = random.Random(8)
    all_of = (METHODS[:9], TARGETS, HOSTS, ORIGINS, FETCHES, TOKENS[:3], BODIES)
    good = itertools.product(("GET", "POST"), TARGETS, HOSTS[:1], ORIGINS[:2], FETCHES[:3], TOKENS[:2], BODIES[:1])
    return [*map(Case._make, good), *(Case._make(map(chance.choice, all_of)) for _ in range(150))]


HEAD_END = b"\r\n\r\n"


@pytest.mark.parametrize("is_tcp", [True, False], ids=["tcp", "unix"])
def test_real_sockets_refuse_exactly_what_the_rule_refuses(queue: Bench, browser: Browser, is_tcp: bool) -> None:
    port = int(browser.address.rstrip("/").rpartition(":")[2])
    token = browser.headers["Authorization"].removeprefix("Bearer ")
    seen: Counter[bool] = Counter()
    for case in sample():
        sent = request(case, port).replace(TOKEN.encode(), token.encode())
        told = browser.raw(sent) if is_tcp else converse(unix(queue), sent)
        refusal = admission.refuse(asked(OWN, case), TCP if is_tcp else UNIX, TOKEN)
        head, _, body = told.partition(HEAD_END)
        check_headers(head, case)
        status = int(head.split()[1])
        if refusal is not None:
            # What is not even HTTP is refused before the rule is applied.
            assert status in (refusal.status, 400), (case, told)
        else:
            assert not (body and status >= 400 and json.loads(body)["error"]["message"] in GUARDED), (case, told)
        seen[refusal is None] += 1
    assert min(seen[True], seen[False]) > 50


#: Texts that only the guard sends.
GUARDED = {admission.FOREIGN_PAGE.message, admission.NO_TOKEN.message}


def unix(bench: Bench) -> socket.socket:
    """Return a connection to the daemon's own socket."""
    sock = bench.client.connect()
    assert sock is not None
    return sock


def check_headers(head: bytes, what: object) -> None:
    """Check that an answer has all required headers once, and none that is forbidden."""
    lines = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
    told = Counter(name.decode().lower() for name, _, _ in lines)
    values = {name.decode().lower(): value.decode() for name, _, value in lines}
    wanted = headers_of(values.get("content-type", ""))
    assert {name for name in wanted if told[name.lower()] != 1} == set(), (what, head)
    assert {name: values[name.lower()] for name in wanted} == wanted
    assert not {name for name in told if name == "set-cookie" or name.startswith("access-control-")}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_route_but_the_page_answers_without_the_token(queue: Bench, browser: Browser, route: Route) -> None:
    """Also through a tunnel to the socket, where its headers identify a browser."""
    path = route.path.replace("{page}", "jobs").replace("{detail_page}", "job")
    path = re.sub(r"\{\w+\}", "1", path)
    is_page = route.handler in (static_pages.get_page, static_pages.get_file)
    end = f"Connection: close\r\nContent-Type: application/json\r\nContent-Length: 2{HEAD_END.decode()}{{}}"
    host = urlsplit(browser.address).netloc
    plain = f"{route.method} {path} HTTP/1.1\r\nHost: {host}\r\n"
    told = [
        browser.raw(f"{plain}{end}".encode()),
        converse(unix(queue), f"{plain}Origin: http://{host}\r\n{end}".encode()),
        converse(unix(queue), f"{plain}Sec-Fetch-Site: same-origin\r\n{end}".encode()),
    ]
    statuses = {int(each.split()[1]) for each in told}
    if is_page:
        assert statuses <= {200, 404}
    else:
        # Without a code there is no session either.
        assert statuses <= ({400, 401} if path == "/v1/session" else {401, 403})


GARBAGE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\0" * 100, b"GET\r\n\r\n", b"GET /\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET http://evil/v1/jobs HTTP/1.1\r\nHost: HOST\r\n\r\n", b"GET http://HOST/ HTTP/1.1\r\nHost: HOST\r\n\r\n",
    b"CONNECT HOST HTTP/1.1\r\nHost: HOST\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1.evil\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HOST\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HOST\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
    b"POST /v1/session HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/session HTTP/1.1\r\nHost: HOST\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/session HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: HOST\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer \xff\0\r\n\r\n",
    b"GET /v1/jobs HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer " + b"\xc3\xbf" * 43 + b"\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: HOST\r\n\r\n", b"GET //evil/v1/jobs HTTP/1.1\r\nHost: HOST\r\n\r\n",
    b"GET /v1/jobs HTTP/1.1\r\nHost: HOST\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: user@HOST\r\n\r\n",
)  # fmt: skip


@pytest.mark.parametrize("sent", GARBAGE, ids=lambda sent: repr(sent[:40]))
def test_garbage_is_refused_with_all_headers_and_does_no_harm(queue: Bench, browser: Browser, sent: bytes) -> None:
    told = browser.raw(sent.replace(b"HOST", urlsplit(browser.address).netloc.encode()))
    if told:
        head, _, _ = told.partition(HEAD_END)
        assert 400 <= int(head.split()[1]) < 500, head
        check_headers(head, sent)
    assert browser.ask("GET", "/v1/daemon").json["running"]


def test_only_wrong_tokens_are_answered_late(queue: Bench, browser: Browser) -> None:
    guesser = Browser(browser.address, {"Authorization": "Bearer wrong"})
    for _ in range(PATIENT_UNTIL):
        assert guesser.ask("GET", "/v1/jobs").status == 401
    begun = time.monotonic()
    assert guesser.ask("GET", "/v1/jobs").status == 401
    assert time.monotonic() - begun >= DELAY_S
    assert browser.ask("GET", "/v1/jobs").status == 200


def test_the_port_can_be_chosen_and_closed(queue: Bench) -> None:
    port = quiet_port()
    address, code = link(queue, "--port", str(port))
    assert address == f"http://127.0.0.1:{port}/"
    browser = Browser(address)
    browser.sign_in(code)
    assert queue.cli("web", "--stop").returncode == 0
    with pytest.raises(ConnectionRefusedError):
        browser.ask("GET", "/")


@pytest.mark.parametrize("words", [["--port", "70000"], ["--port", "x"], ["--stop", "--open"], ["now"]])
def test_invalid_arguments_are_a_one_line_error_and_change_nothing(queue: Bench, words: list[str]) -> None:
    said = queue.cli("web", *words)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("environ", "command", "port"),
    [
        ("1.2.3.4 5 10.0.0.5 22", "ssh -N -L 8080:/s/dibs.sock ann@10.0.0.5", 8080),
        ("1.2.3.4 5 10.0.0.5 2222", "ssh -N -p 2222 -L 8080:/s/dibs.sock ann@10.0.0.5", 8080),
    ],
)
def test_over_ssh_the_tunnel_command_is_printed(environ: str, command: str, port: int) -> None:
    found = web.tunnel_of({"SSH_CONNECTION": environ}, "ann", "/s/dibs.sock", 8080)
    assert found == web.Tunnel(command, port)


def test_each_server_and_user_gets_a_different_local_port() -> None:
    found = [
        web.tunnel_of({"SSH_CONNECTION": f"1.2.3.4 5 10.0.0.{server} 22"}, user, "/s/dibs.sock", None)
        for server in range(5)
        for user in ("ann", "ben")
    ]
    assert len({each.port for each in found if each}) == len(found)
    assert all(each and each.port in web.TUNNEL_PORTS for each in found)


@pytest.mark.parametrize("environ", [{}, {"SSH_CONNECTION": ""}, {"SSH_CONNECTION": "1 2 3"}])
def test_without_ssh_there_is_no_tunnel(environ: dict[str, str]) -> None:
    assert web.tunnel_of(environ, "ann", "/s/dibs.sock", None) is None
