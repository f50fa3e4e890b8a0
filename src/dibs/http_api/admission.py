"""Access control: one rule for every request, of any method, before it is routed. The default is to refuse.

Pure: the input is the parts of a request and its endpoint, the result is a refusal or None.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from dibs.http_api import tokens

#: The methods of our routes. All others are refused, including CORS preflights.
METHODS = frozenset({"GET", "HEAD", "POST", "PATCH"})
#: Host headers of programs on the unix socket. Browsers send a port with the name unless it is 80 or 443, so a DNS name
#: that an attacker points to this machine never passes as a program.
PROGRAM_HOSTS = frozenset({"dibs", "localhost"})
#: Names of this machine that need no DNS lookup. Through `ssh -L` they come with any port.
LOOPBACK_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
#: Sec-Fetch mode and destination when a user opens a page: no script of another page sees the answer.
OPENING = ("navigate", "document")

PAGES = frozenset({"/", "/jobs", "/compare", "/sweeps", "/gpus", "/people", "/usage", "/settings"})
PAGE = re.compile(r"/(job|sweep|gpu)/[^/]+|/static/.+")
#: Only for the owner's programs, never for a page: these paths let browsers in or read the owner's files.
OWN_PATHS = frozenset({"/v1/add", "/v1/session/codes", "/v1/web"})
SESSION_PATH = "/v1/session"
#: Paths on the status socket: jobs, queue and GPUs. No logs, settings or pages.
STATUS_PATH = re.compile(
    r"/metrics|/v1/(daemon|words|openapi\.json|events|timeline|gpus|gpus/history|sweeps|sweeps/[0-9]+/results"
    r"|queue|queue/(starts|line)|jobs|jobs/(index|wait|changes|[0-9]+|[0-9]+/(why|events)))"
)


class Area(enum.Enum):
    """The kind of a path; an unknown path is API."""

    #: Files of the page: the same for all users, and without secrets.
    PAGE = enum.auto()
    #: Where a code is exchanged for the token.
    SESSION = enum.auto()
    #: Only for programs on the unix socket.
    OWN = enum.auto()
    API = enum.auto()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a request arrived. `names` are the allowed Host headers with their port; empty for a unix socket."""

    is_tcp: bool
    uid: int
    names: frozenset[str] = frozenset()
    scheme: str = "http"
    #: Whether other machines can reach it; their clients have no uid, and TLS protects the traffic.
    is_public: bool = False
    #: Whether it is the read-only status socket.
    is_status: bool = False


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """The parts of a request that matter here. Headers are tuples, because a header may be missing or repeated."""

    uid: int | None
    method: str
    #: As sent, without the query.
    target: str
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    dests: tuple[str, ...] = ()
    #: Whether any header begins with `Sec-Fetch-`.
    is_fetched: bool = False
    authorizations: tuple[str, ...] = ()
    content_types: tuple[str, ...] = ()
    has_body: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused."""

    status: int
    message: str
    hint: str = ""


FOREIGN_PAGE = Refusal(403, "the request comes from a page of another site.")
NO_TOKEN = Refusal(401, "expected a token that is valid, got none, or an old one.", "Type: dibs web")


def area(target: str) -> Area:
    """Return the area of a path as sent."""
    if target == SESSION_PATH:
        return Area.SESSION
    if target in OWN_PATHS:
        return Area.OWN
    return Area.PAGE if target in PAGES or PAGE.fullmatch(target) else Area.API


def refuse(asked: RequestSummary, endpoint: Endpoint, token: str | None) -> Refusal | None:
    """Return why a request is refused; None if it may be answered."""
    where = area(asked.target)
    is_program = not endpoint.is_tcp and not _is_browser(asked)
    return (
        _check_user(asked, endpoint)
        or _check_form(asked)
        or _check_status(asked, endpoint)
        or _check_host(asked, endpoint, is_program)
        or _check_origin(asked, endpoint, where)
        or _check_body(asked)
        or (None if is_program else _check_token(asked, where, token))
    )


def is_by_token(asked: RequestSummary, endpoint: Endpoint) -> bool:
    """Return whether an admitted request was admitted by its token."""
    return (endpoint.is_tcp or _is_browser(asked)) and area(asked.target) is Area.API


def _is_browser(asked: RequestSummary) -> bool:
    """Return whether a request on the unix socket may come from a browser through a tunnel.

    A page on a plain http:// address that is not loopback sends neither Origin nor Sec-Fetch headers with a GET, so
    the host is checked too.
    """
    said = asked.origins or asked.sites or asked.modes or asked.dests
    return bool(said) or asked.is_fetched or not PROGRAM_HOSTS.issuperset(asked.hosts)


def _check_user(asked: RequestSummary, endpoint: Endpoint) -> Refusal | None:
    # Root can read the token anyway, and root's own tools do.
    is_ours = asked.uid in (endpoint.uid, 0) or (asked.uid is None and endpoint.is_public)
    return None if is_ours else Refusal(403, "this queue belongs to somebody else.")


def _check_form(asked: RequestSummary) -> Refusal | None:
    if asked.method not in METHODS:
        return Refusal(405, f"expected one of {', '.join(sorted(METHODS))}, got another method.")
    # `GET http://elsewhere/` brings another host name; only proxies receive such requests.
    return None if asked.target.startswith("/") else Refusal(400, "expected a path that begins with /.")


def _check_status(asked: RequestSummary, endpoint: Endpoint) -> Refusal | None:
    is_told = asked.method in ("GET", "HEAD") and STATUS_PATH.fullmatch(asked.target)
    if is_told or not endpoint.is_status:
        return None
    return Refusal(403, "this socket is read-only.", "Use the daemon's own socket.")


def _check_host(asked: RequestSummary, endpoint: Endpoint, is_program: bool) -> Refusal | None:
    if len(asked.hosts) != 1:
        return Refusal(400, f"expected one Host header, got {len(asked.hosts)}.")
    host = asked.hosts[0].lower()
    is_known = host in endpoint.names if endpoint.is_tcp else is_program or LOOPBACK_HOST.fullmatch(host)
    return None if is_known else Refusal(403, "dibs does not answer to this host name.")


def _check_origin(asked: RequestSummary, endpoint: Endpoint, where: Area) -> Refusal | None:
    if max(map(len, (asked.origins, asked.sites, asked.modes, asked.dests))) > 1:
        return Refusal(400, "expected one header of each name, got several.")
    if asked.origins and asked.origins[0].lower() != f"{endpoint.scheme}://{asked.hosts[0].lower()}":
        return FOREIGN_PAGE
    if asked.sites in ((), ("same-origin",)):
        return None
    # A user typed the address or followed a link.
    is_opened = asked.method in ("GET", "HEAD") and (*asked.modes, *asked.dests) == OPENING
    return None if is_opened and where is Area.PAGE else FOREIGN_PAGE


def _check_body(asked: RequestSummary) -> Refusal | None:
    if not asked.has_body:
        return None
    kinds = [each.partition(";")[0].strip().lower() for each in asked.content_types]
    # A form on any page can send other content types without a preflight.
    return None if kinds == ["application/json"] else Refusal(400, "expected Content-Type application/json.")


def _check_token(asked: RequestSummary, where: Area, token: str | None) -> Refusal | None:
    if where is Area.OWN:
        return Refusal(403, "only your own programs may ask for this, on the unix socket.", "Type: dibs web")
    is_open = (where is Area.PAGE and asked.method in ("GET", "HEAD")) or (
        where is Area.SESSION and asked.method == "POST"
    )
    return None if is_open or (token and _brings(asked, token)) else NO_TOKEN


def _brings(asked: RequestSummary, token: str) -> bool:
    if len(asked.authorizations) != 1:
        return False
    scheme, _, said = asked.authorizations[0].partition(" ")
    return scheme.lower() == "bearer" and tokens.is_same(token, said)
