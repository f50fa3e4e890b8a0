"""Which requests are allowed: every combination of what a request may contain, against a table of those that may
pass. Nothing is served here; `test_web` checks the same on real sockets.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from dibs.http_api import admission, static_pages
from dibs.http_api.admission import Area, RequestSummary
from dibs.http_api.route_types import Route
from dibs.http_api.routes import ROUTES
from matrix import (
    BODIES,
    FETCHES,
    HOSTS,
    METHODS,
    ORIGINS,
    OWN,
    PORT,
    ROOT,
    STRANGER,
    TARGETS,
    TCP,
    TLS,
    TOKEN,
    TOKENS,
    UNIX,
    Case,
    asked,
    is_meant,
)


@pytest.mark.parametrize("endpoint", ["tcp", "unix"])
@pytest.mark.parametrize("uid", [OWN, ROOT, STRANGER])
def test_exactly_the_allowed_combinations_are_admitted(endpoint: str, uid: int) -> None:
    """All hosts, origins and fetches with each target; for the owner, all methods, tokens and bodies on good ones."""
    wide = itertools.product(("GET", "POST"), TARGETS, HOSTS, ORIGINS, FETCHES, TOKENS[:4], BODIES[:1])
    deep = itertools.product(METHODS, TARGETS, HOSTS[:1], ORIGINS[:2], FETCHES[:5], TOKENS, BODIES)
    where = TCP if endpoint == "tcp" else UNIX
    seen: Counter[bool] = Counter()
    for case in map(Case._make, itertools.chain(wide, deep if uid == OWN else ())):
        passes = admission.refuse(asked(uid, case), where, TOKEN) is None
        assert passes == is_meant(uid, endpoint, case), case
        seen[passes] += 1
    assert seen[False] > 5000
    assert (seen[True] > 100) == (uid != STRANGER)


def test_another_machine_is_admitted_only_on_a_public_address_with_the_token() -> None:
    request = RequestSummary(None, "GET", "/v1/jobs", ("gpu1.example.org:8443",), authorizations=(f"Bearer {TOKEN}",))
    assert admission.refuse(request, TLS, TOKEN) is None
    assert admission.refuse(request, replace(TLS, is_public=False), TOKEN) is not None
    assert admission.refuse(replace(request, authorizations=()), TLS, TOKEN) == admission.NO_TOKEN
    assert admission.refuse(replace(request, hosts=("127.0.0.1:8443",)), TLS, TOKEN) is not None
    assert admission.refuse(replace(request, origins=("http://gpu1.example.org:8443",)), TLS, TOKEN) is not None
    assert admission.refuse(replace(request, uid=STRANGER), TLS, TOKEN) is not None


def test_while_there_is_no_token_every_token_is_refused() -> None:
    request = RequestSummary(OWN, "GET", "/v1/jobs", (f"127.0.0.1:{PORT}",))
    for said in ("Bearer", "Bearer ", "Bearer None", ""):
        assert admission.refuse(replace(request, authorizations=(said,)), TCP, None) == admission.NO_TOKEN


def test_a_page_reached_through_an_attackers_host_name_is_refused() -> None:
    """Such a page may send a GET without any header that identifies a browser, through `ssh -L` to the socket."""
    request = RequestSummary(OWN, "GET", "/v1/jobs", (f"evil.example:{PORT}",))
    assert admission.refuse(request, UNIX, TOKEN) is not None
    assert admission.refuse(replace(request, authorizations=(f"Bearer {TOKEN}",)), UNIX, TOKEN) is not None


@pytest.mark.parametrize("target", ["http://127.0.0.1:4321/v1/jobs", "*", "", "127.0.0.1:4321", "v1/jobs"])
def test_the_request_target_must_be_a_path(target: str) -> None:
    for endpoint, host in ((TCP, f"127.0.0.1:{PORT}"), (UNIX, "dibs")):
        refusal = admission.refuse(RequestSummary(OWN, "GET", target, (host,)), endpoint, TOKEN)
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
        *((path, Area.OWN) for path in ("/v1/add", "/v1/web", "/v1/session/codes")),
        ("/v1/session", Area.SESSION),
    ],
)
def test_every_target_not_known_to_be_public_needs_the_token(target: str, area: Area) -> None:
    assert admission.area(target) is area


#: Values of the variables of a path; for all others "1" is one.
VALUES = {
    "page": ("", "jobs", "compare", "sweeps", "gpus", "people", "usage", "settings"),
    "detail_page": ("job", "sweep", "gpu"),
}


def test_exactly_the_page_and_its_files_are_public() -> None:
    open_to_all = {route.path for route in ROUTES if is_open(route)}
    of_page = {route.path for route in ROUTES if route.handler in (static_pages.get_page, static_pages.get_file)}
    assert open_to_all == of_page | {"/v1/session", *admission.OWN_PATHS}


def is_open(route: Route) -> bool:
    """Return whether every path of a route is public; fail if only some are."""
    (found,) = {admission.area(path) is not Area.API for path in samples(route)}
    return found


def samples(route: Route) -> list[str]:
    """Return example paths of a route."""
    names = route.variables
    choices = itertools.product(*(VALUES.get(name, ("1",)) for name in names))
    return [route.path.format(**dict(zip(names, chosen, strict=True))) for chosen in choices]
