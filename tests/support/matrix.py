"""Everything a request may contain, good and bad, and which combinations are allowed.

Written from the contract and not from the code: tests compare the two.
"""

from __future__ import annotations

from typing import NamedTuple

from dibs.http_api.admission import Endpoint, RequestSummary

OWN, ROOT, STRANGER = 1000, 0, 2000
PORT = 4321
TOKEN = "t" * 43
TCP = Endpoint(True, OWN, frozenset({f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"}))
UNIX = Endpoint(False, OWN)
TLS = Endpoint(True, OWN, frozenset({"gpu1.example.org:8443"}), "https", is_public=True)

METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW", "get")
PATHS = ("/", "/jobs", "/static/app.js", "/v1/add", "/v1/session", "/v1/session/codes", "/v1/web")
TARGETS = (*PATHS, "/v1/jobs", "/metrics", "/nowhere")
HOSTS = (
    (f"127.0.0.1:{PORT}",), (f"LOCALHOST:{PORT}",), (f"[::1]:{PORT}",), ("localhost",), ("dibs",), (), ("",),
    ("127.0.0.1:1",), (f"127.0.0.1.evil:{PORT}",), (f"localhost.evil:{PORT}",), (f"user@127.0.0.1:{PORT}",),
    (f"evil:{PORT}",), (f"127.0.0.1:{PORT}", f"127.0.0.1:{PORT}"), (f"0.0.0.0:{PORT}",), (f"dibs:{PORT}",),
)  # fmt: skip
#: "ours" is built from the host.
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
#: Content-Type if there is a body; None: there is none.
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
    """Return whether a request is allowed: written from the contract and not from the code."""
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
    """Return whether it requests something that needs the token."""
    return case.target not in ("/v1/add", "/v1/session/codes", "/v1/web")


def asked(uid: int, case: Case) -> RequestSummary:
    """Return the request of a combination."""
    host = case.hosts[0].lower() if case.hosts else ""
    origins = tuple(f"http://{host}" if each == "ours" else each for each in case.origin)
    site, mode, dest = ((each,) for each in case.fetch) if case.fetch else ((), (), ())
    kinds, has_body = case.body or (), case.body is not None
    return RequestSummary(
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
