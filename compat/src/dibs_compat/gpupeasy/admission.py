"""Who may ask the two servers: one rule for every request, before it is routed.

The old tools know no password, so the kernel says whose program asks. A browser is its owner's program, no matter who
wrote the page in it; so the page of another site is refused by what browsers say about themselves.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware
from multidict import MultiMapping

from dibs.foreground import machine

#: Names of this machine that no name server is asked for; a tunnel brings any port.
LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")
#: Headers of a browser that opens a page.
OPENING = ["navigate", "document"]
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


def refusal(uid: int | None, method: str, headers: MultiMapping[str], owner: int, *, is_open: bool) -> str | None:
    """Return why a request is refused; None if it may be answered. `is_open`: anybody may ask, from anywhere."""
    hosts, origins, sites = (headers.getall(name, []) for name in ("Host", "Origin", "Sec-Fetch-Site"))
    if not is_open and uid not in (owner, 0):
        return "this server belongs to somebody else"
    if method not in METHODS:
        return f"expected one of {', '.join(METHODS)}"
    if len(hosts) != 1 or len(origins) > 1 or len(sites) > 1:
        return "expected one Host header, and no other header twice"
    host = hosts[0].lower()
    if not is_open and not LOOPBACK.fullmatch(host):
        return "this server does not answer to this host name"
    if origins and origins[0].lower() != f"http://{host}":
        return "a page of another site asked for this"
    if not sites or sites[0] in ("same-origin", "none"):
        return None
    # A link to the page, on whatever site; a script sees nothing of the answer.
    how = [*headers.getall("Sec-Fetch-Mode", []), *headers.getall("Sec-Fetch-Dest", [])]
    return None if method != "POST" and how == OPENING else "a page of another site asked for this"


def guard(*, is_open: bool) -> Middleware:
    """Return what every request passes first, and every answer gets its headers from."""

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        sock = request.get_extra_info("socket")
        uid = None if is_open or sock is None else await asyncio.to_thread(machine.peer_uid, sock)
        why = refusal(uid, request.method, request.headers, os.geteuid(), is_open=is_open)
        try:
            answer = web.Response(text=f"refused: {why}\n", status=403) if why else await handler(request)
        except web.HTTPException as error:
            answer = web.Response(text=f"{error.status}: {error.reason}\n", status=error.status)
        answer.headers.update(HEADERS)
        return answer

    return admit
