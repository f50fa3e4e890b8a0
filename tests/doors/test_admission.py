"""Who may ask what over HTTP: every combination of what a request may say, against a table of those that are meant to
pass. Nothing here is served; `tests/whole/test_web.py` says the same to real sockets."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pytest

from dibs.http_api import admission, pages
from dibs.http_api.admission import Area, Asked, Door
from dibs.http_api.routes import ROUTES
from dibs.http_api.routing import Route

OWN, ROOT, STRANGER = 1000, 0, 2000
PORT = 4321
TOKEN = "t" * 43
TCP = Door(True, OWN, frozenset({f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"}))
UNIX = Door(False, OWN)
TLS = Door(True, OWN, frozenset({"gpu1.example.org:8443"}), "https", is_public=True)

METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW", "get")
PATHS = ("/", "/jobs", "/static/app.js", "/v1/session", "/v1/session/codes", "/v1/web")
TARGETS = (*PATHS, "/v1/jobs", "/metrics", "/nowhere")
HOSTS = (
    (f"127.0.0.1:{PORT}",), (f"LOCALHOST:{PORT}",), (f"[::1]:{PORT}",), ("localhost",), ("dibs",), (), ("",),
    ("127.0.0.1:1",), (f"127.0.0.1.evil:{PORT}",), (f"localhost.evil:{PORT}",), (f"user@127.0.0.1:{PORT}",),
    (f"evil:{PORT}",), (f"127.0.0.1:{PORT}", f"127.0.0.1:{PORT}"), (f"0.0.0.0:{PORT}",), (f"dibs:{PORT}",),
)  # fmt: skip
#: "ours" is put together from the host.
ORIGINS = (
    (),
    ("ours",),
    ("null",),
    ("http://evil",),
    (f"https://127.0.0.1:{PORT}",),
    ("http://127.0.0.1:2",),
    ("ours", "ours"),
)
#: Sec-Fetch-Site, -Mode and -Dest.
FETCHES = (
    None, ("same-origin", "cors", "empty"), ("same-origin", "navigate", "document"), ("none", "navigate", "document"),
    ("cross-site", "navigate", "document"), ("cross-site", "no-cors", "image"), ("cross-site", "cors", "empty"),
    ("same-site", "cors", "empty"), ("cross-site", "navigate", "iframe"), ("none", "cors", "empty"),
    ("odd", "odd", "odd"),
)  # fmt: skip
TOKENS = (
    (), (f"Bearer {TOKEN}",), (f"bearer {TOKEN}",), ("Bearer wrong",), ("Bearer ",), (f"Basic {TOKEN}",), (TOKEN,),
    (f"Bearer {TOKEN}", f"Bearer {TOKEN}"), (f"Bearer {TOKEN} ",), ("Bearer ÿ",),
)  # fmt: skip
#: Content-Type where there is a body; None: there is none.
BODIES = (
    None, ("application/json",), ("application/json; charset=utf-8",), ("text/plain",), (),
    ("application/x-www-form-urlencoded",), ("multipart/form-data; boundary=x",), ("application/json", "text/plain"),
)  # fmt: skip

GOOD_HOSTS = {"tcp": HOSTS[:3], "unix": (*HOSTS[:4], HOSTS[7])}
GOOD_TOKENS = TOKENS[1:3]
GOOD_BODIES = BODIES[:3]


class Case(NamedTuple):
    """One combination."""

    method: str
    target: str
    hosts: tuple[str, ...]
    origin: tuple[str, ...]
    fetch: tuple[str, str, str] | None
    token: tuple[str, ...]
    body: tuple[str, ...] | None


def is_meant(uid: int, door: str, case: Case) -> bool:
    """Tell whether a request is meant to pass: written from the contract and not from the code."""
    if uid == STRANGER or case.method not in ("GET", "HEAD", "POST", "PATCH") or case.body not in GOOD_BODIES:
        return False
    if door == "unix" and case.origin == () and case.fetch is None and case.hosts in (("dibs",), ("localhost",)):
        return True
    if case.hosts not in GOOD_HOSTS[door] or case.origin not in ((), ("ours",)):
        return False
    is_page = case.target in ("/", "/jobs", "/static/app.js") and case.method in ("GET", "HEAD")
    is_opened = case.fetch in (("none", "navigate", "document"), ("cross-site", "navigate", "document"))
    if not (case.fetch is None or case.fetch[0] == "same-origin" or (is_opened and is_page)):
        return False
    if is_page or (case.target == "/v1/session" and case.method == "POST"):
        return True
    return case.token in GOOD_TOKENS and is_api(case)


def is_api(case: Case) -> bool:
    """Tell whether it asks for something that the token is good for."""
    return case.target in ("/v1/jobs", "/metrics", "/nowhere")


def asked(uid: int, case: Case) -> Asked:
    """Return the request that a combination is."""
    host = case.hosts[0].lower() if case.hosts else ""
    origins = tuple(f"http://{host}" if each == "ours" else each for each in case.origin)
    site, mode, dest = ((each,) for each in case.fetch) if case.fetch else ((), (), ())
    kinds, has_body = case.body or (), case.body is not None
    return Asked(
        uid,
        case.method,
        case.target,
        case.hosts,
        origins,
        site,
        mode,
        dest,
        bool(case.fetch),
        case.token,
        kinds,
        has_body,
    )


@pytest.mark.parametrize("door", ["tcp", "unix"])
@pytest.mark.parametrize("uid", [OWN, ROOT, STRANGER])
def test_exactly_the_requests_that_are_meant_to_pass_do(door: str, uid: int) -> None:
    """All hosts, origins, fetches with each target; and of the owner all methods, tokens and bodies with good ones."""
    wide = itertools.product(("GET", "POST"), TARGETS, HOSTS, ORIGINS, FETCHES, TOKENS[:4], BODIES[:1])
    deep = itertools.product(METHODS, TARGETS, HOSTS[:1], ORIGINS[:2], FETCHES[:5], TOKENS, BODIES)
    where = TCP if door == "tcp" else UNIX
    seen: Counter[bool] = Counter()
    for case in map(Case._make, itertools.chain(wide, deep if uid == OWN else ())):
        passes = admission.refuse(asked(uid, case), where, TOKEN) is None
        assert passes == is_meant(uid, door, case), case
        seen[passes] += 1
    assert seen[False] > 5000
    assert (seen[True] > 100) == (uid != STRANGER)


def test_another_machine_gets_in_only_where_it_is_meant_to_and_with_the_token() -> None:
    request = Asked(None, "GET", "/v1/jobs", ("gpu1.example.org:8443",), authorizations=(f"Bearer {TOKEN}",))
    assert admission.refuse(request, TLS, TOKEN) is None
    assert admission.refuse(request, replace(TLS, is_public=False), TOKEN) is not None
    assert admission.refuse(replace(request, authorizations=()), TLS, TOKEN) == admission.NO_TOKEN
    assert admission.refuse(replace(request, hosts=("127.0.0.1:8443",)), TLS, TOKEN) is not None
    assert admission.refuse(replace(request, origins=("http://gpu1.example.org:8443",)), TLS, TOKEN) is not None
    assert admission.refuse(replace(request, uid=STRANGER), TLS, TOKEN) is not None


def test_before_there_is_a_token_none_is_right() -> None:
    request = Asked(OWN, "GET", "/v1/jobs", (f"127.0.0.1:{PORT}",))
    for said in ("Bearer", "Bearer ", "Bearer None", ""):
        assert admission.refuse(replace(request, authorizations=(said,)), TCP, None) == admission.NO_TOKEN


def test_a_page_reached_by_a_name_of_an_attacker_is_no_program() -> None:
    """Such a page may send a GET without any header that tells a browser, through `ssh -L` to the socket."""
    request = Asked(OWN, "GET", "/v1/jobs", (f"evil.example:{PORT}",))
    assert admission.refuse(request, UNIX, TOKEN) is not None
    assert admission.refuse(replace(request, authorizations=(f"Bearer {TOKEN}",)), UNIX, TOKEN) is not None


@pytest.mark.parametrize("target", ["http://127.0.0.1:4321/v1/jobs", "*", "", "127.0.0.1:4321", "v1/jobs"])
def test_what_is_asked_for_must_be_a_path(target: str) -> None:
    for door, host in ((TCP, f"127.0.0.1:{PORT}"), (UNIX, "dibs")):
        refusal = admission.refuse(Asked(OWN, "GET", target, (host,)), door, TOKEN)
        assert refusal is not None
        assert refusal.status == 400


@pytest.mark.parametrize(
    ("target", "area"),
    [
        *((path, Area.PAGE) for path in ("/", "/jobs", "/job/1", "/gpu/GPU-1", "/static/a.js", "/static/v/a.js")),
        *(
            (path, Area.API)
            for path in ("/v1", "/v1/jobs", "/metrics", "/v1/session/", "/V1/session", "//", "/job/1/x")
        ),
        *((path, Area.API) for path in ("/static/", "/static", "/v1/session/rotate", "/jobs/", "/v1/web/", "")),
        *((path, Area.OWN) for path in ("/v1/web", "/v1/session/codes")),
        ("/v1/session", Area.SESSION),
    ],
)
def test_what_is_not_known_to_be_open_to_all_needs_the_token(target: str, area: Area) -> None:
    assert admission.area(target) is area


def test_every_page_and_file_of_the_table_of_routes_is_open_and_nothing_else() -> None:
    open_to_all = {route.path for route in ROUTES if admission.area(sample(route)) is not Area.API}
    of_page = {route.path for route in ROUTES if route.handler in (pages.get_page, pages.get_file)}
    assert open_to_all == of_page | {"/v1/session", *admission.OWN_PATHS}


def sample(route: Route) -> str:
    """Return a path that a route is for."""
    return re.sub(r"\{\w+\}", "1", route.path)
