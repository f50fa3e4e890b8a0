"""One connection: its endpoint, its peer, and the answer to bytes that are not HTTP.

Also the headers of every answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from dibs.errors import Bug, UserError
from dibs.http_api.admission import Endpoint
from dibs.system import peers
from dibs.system.peers import Peer

log = logging.getLogger("dibs.http")

#: Connections that wait to be accepted.
BACKLOG = 128
#: Bytes of one request line: the ids that a `wait` without selector waits for may lie scattered.
LONGEST_LINE = 4 * 1024 * 1024

#: Characters of what is said of an error: it may repeat a value that came, of whatever size.
LONGEST_MESSAGE = 4000

#: On every answer. Nothing that we send is ever more than data to a page of another site, and our own page runs only
#: scripts that are files of ours. There is no header for CORS, and there are no cookies.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    # Instead of the versions of Python and aiohttp.
    "Server": "dibs",
}
#: Of these, the ones that mean something only for what is shown as a page: parts of one are many, and go without.
OF_PAGES = ("Cross-Origin-Opener-Policy", "X-Frame-Options")
PARTS = frozenset({"text/javascript", "text/css"})
#: What may not be kept by a browser: all but the files of the page, which say so themselves.
NOT_KEPT = ("Cache-Control", "no-store")


def protect(answer: web.StreamResponse) -> None:
    """Put the headers that every answer has on this one."""
    answer.headers.update(HEADERS)
    if answer.content_type in PARTS:
        for name in OF_PAGES:
            del answer.headers[name]
    answer.headers.setdefault(*NOT_KEPT)


def error(status: int, kind: str, message: str, hint: str = "") -> web.Response:
    """Return an error in the one shape of errors."""
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + "…"
    body = {"error": {"kind": kind, "message": message, "hint": hint}}
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _as_bytes(status: str, body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in (*HEADERS.items(), NOT_KEPT))]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


#: What another user is told, whatever was asked.
NOT_YOURS = _as_bytes(
    "403 Forbidden",
    b'{"error":{"kind":"not_allowed","message":"this queue belongs to somebody else.","hint":""}}',
)


class Connection(web.RequestHandler):
    """A connection of aiohttp that knows its endpoint and its peer."""

    __slots__ = ("endpoint", "peer")

    def __init__(self, runner: web.AppRunner, endpoint: Endpoint, peer: Peer | None) -> None:
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        # No log of who asked for what, which None means, although its type does not say so.
        no_log: Any = None
        super().__init__(
            runner.server, loop=loop, access_log=no_log, max_line_size=LONGEST_LINE, tcp_keepalive=endpoint.is_tcp
        )
        self.endpoint = endpoint
        #: None: it is asked for when the connection is made.
        self.peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask who is at the other end of a unix socket; that of a TCP socket was asked for before."""
        if self.peer is None:
            sock: socket.socket = transport.get_extra_info("socket")
            self.peer = peers.of_unix(sock)
        super().connection_made(transport)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what cannot be read, or what failed beyond our own handlers."""
        # Not what it said: there may be a token in it.
        log.info("an answer of %s to what could not be handled (%s)", status, type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("half of another answer was sent already")
        kind = UserError.kind if status < 500 else Bug.kind
        answer = error(status, kind, "expected a request in HTTP/1.1, got something else.")
        protect(answer)
        answer.force_close()
        return answer


async def listen(runner: web.AppRunner, endpoint: Endpoint, path: Path) -> asyncio.Server:
    """Open a unix socket of which only its owner may make use."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_unix_server(lambda: Connection(runner, endpoint, None), path, backlog=BACKLOG)
    path.chmod(0o600)
    return listening
