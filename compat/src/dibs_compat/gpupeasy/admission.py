"""Who may ask the two servers: one rule for every request, before it is routed.

The old tools know no password, so the kernel tells whose program asks. A browser is its owner's program whoever wrote
the page in it; so the page of another site is refused by what browsers say about themselves.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from dibs.foreground import machine

#: Names of this machine that no name server is asked for; a tunnel brings any port.
LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")
#: Headers of a browser that opens a page.
OPENING = ("navigate", "document")
METHODS = ("GET", "HEAD", "POST")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # With none at all a browser would say that our own forms come from nowhere.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What of a request matters here. Headers are tuples: none, one, or more than there should be."""

    uid: int | None
    method: str = "GET"
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    sites: Sequence[str] = ()
    #: `Sec-Fetch-Mode` and `Sec-Fetch-Dest`.
    how: Sequence[str] = ()


def refusal(asked: RequestFacts, owner: int, *, is_open: bool) -> str | None:
    """Return why a request is refused; None if it may be answered. `is_open`: anybody may ask, from anywhere."""
    if not is_open and asked.uid not in (owner, 0):
        return "this server belongs to somebody else"
    if asked.method not in METHODS:
        return f"expected one of {', '.join(METHODS)}"
    if len(asked.hosts) != 1 or len(asked.origins) > 1 or len(asked.sites) > 1:
        return "expected one Host header, and no other header twice"
    host = asked.hosts[0].lower()
    if not is_open and not LOOPBACK.fullmatch(host):
        return "this is not a name of this machine that is answered to"
    if asked.origins and asked.origins[0].lower() != f"http://{host}":
        return "a page of another site asked for this"
    if not asked.sites or asked.sites[0] in ("same-origin", "none"):
        return None
    # A link to the page, on whatever site; a script sees nothing of the answer.
    is_opened = asked.method != "POST" and tuple(asked.how) == OPENING
    return None if is_opened else "a page of another site asked for this"


def guard(*, is_open: bool) -> Middleware:
    """Return what every request passes first."""

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        why = refusal(await _asked(request, is_open), os.geteuid(), is_open=is_open)
        if why is not None:
            return protected(web.Response(text=f"refused: {why}\n", status=403))
        try:
            return protected(await handler(request))
        except web.HTTPException as error:
            return protected(web.Response(text=f"{error.status}: {error.reason}\n", status=error.status))

    return admit


def protected(answer: web.StreamResponse) -> web.StreamResponse:
    """Return an answer with the headers that every one has."""
    answer.headers.update(HEADERS)
    return answer


async def _asked(request: web.Request, is_open: bool) -> RequestFacts:
    said = request.headers
    sock = request.get_extra_info("socket")
    uid = None
    if not is_open and sock is not None:
        uid = await asyncio.to_thread(machine.peer_uid, sock)
    return RequestFacts(
        uid,
        request.method,
        tuple(said.getall("Host", [])),
        tuple(said.getall("Origin", [])),
        tuple(said.getall("Sec-Fetch-Site", [])),
        (*said.getall("Sec-Fetch-Mode", []), *said.getall("Sec-Fetch-Dest", [])),
    )
