"""Connections with their endpoint and peer, the headers of every answer, and the answer to bytes that are not HTTP."""

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
from dibs.system import open_files, peers
from dibs.system.peers import Peer

log = logging.getLogger("dibs.http")

#: Connections waiting to be accepted.
BACKLOG = 128
#: Bytes of one request line: a `wait` without selectors names all its jobs, perhaps as many short ranges of ids.
LONGEST_LINE = 4 * 1024 * 1024

#: Characters of an error message, which may quote a value of any size.
LONGEST_MESSAGE = 4000

#: Sent with every answer. Pages of other sites can neither embed nor execute our answers, and our own page runs only
#: our script files. There are no CORS headers and no cookies.
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
    # Hides the versions of Python and aiohttp.
    "Server": "dibs",
}
#: Headers that matter only for documents; the many scripts and styles of a page are sent without them.
OF_PAGES = ("Cross-Origin-Opener-Policy", "X-Frame-Options")
PARTS = frozenset({"text/javascript", "text/css"})
#: Default for browsers: keep nothing. The files of the page set their own value.
NOT_KEPT = ("Cache-Control", "no-store")


def protect(answer: web.StreamResponse) -> None:
    """Add the common headers to an answer."""
    answer.headers.update(HEADERS)
    if answer.content_type in PARTS:
        for name in OF_PAGES:
            del answer.headers[name]
    answer.headers.setdefault(*NOT_KEPT)


def error(status: int, kind: str, message: str, hint: str = "") -> web.Response:
    """Return an error response; all errors have this shape."""
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + "…"
    # A message may quote bytes of a command line that are not UTF-8.
    message = message.encode(errors="backslashreplace").decode()
    body = {"error": {"kind": kind, "message": message, "hint": hint}}
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _as_bytes(status: str, body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in (*HEADERS.items(), NOT_KEPT))]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


#: The answer to every request of another user.
NOT_YOURS = _as_bytes(
    "403 Forbidden",
    b'{"error":{"kind":"not_allowed","message":"this queue belongs to somebody else.","hint":""}}',
)


#: The answer to a connection for which there is no descriptor to spare.
TOO_MANY = _as_bytes(
    "503 Service Unavailable",
    b'{"error":{"kind":"machine","message":"too many connections are open.","hint":"Close some, or try again."}}',
)


class Connection(web.RequestHandler):
    """An aiohttp connection that knows its endpoint and its peer."""

    def __init__(self, runner: web.AppRunner, endpoint: Endpoint, peer: Peer | None) -> None:
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        # None disables the access log, although the declared type does not allow it.
        no_log: Any = None
        super().__init__(
            runner.server, loop=loop, access_log=no_log, max_line_size=LONGEST_LINE, tcp_keepalive=endpoint.is_tcp
        )
        self.endpoint = endpoint
        #: None: identified in `connection_made`.
        self.peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Identify the peer of a unix socket; a TCP peer is identified before the connection gets here."""
        if self.peer is None:
            sock: socket.socket = transport.get_extra_info("socket")
            self.peer = peers.of_unix(sock)
        super().connection_made(transport)
        assert self._manager is not None
        # Those that serve jobs need descriptors too.
        if len(self._manager.connections) > open_files.connections() and isinstance(transport, asyncio.Transport):
            transport.write(TOO_MANY)
            transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that cannot be parsed or that failed outside our handlers."""
        # The request itself is not logged: it may contain a token.
        log.info("answered %s: the request could not be handled (%s)", status, type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("part of another answer was sent already")
        kind = UserError.kind if status < 500 else Bug.kind
        answer = error(status, kind, "expected a request in HTTP/1.1, got something else.")
        protect(answer)
        answer.force_close()
        return answer


async def listen(runner: web.AppRunner, endpoint: Endpoint, path: Path) -> asyncio.Server:
    """Open a unix socket that only its owner can use."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_unix_server(lambda: Connection(runner, endpoint, None), path, backlog=BACKLOG)
    path.chmod(0o600)
    return listening
