"""Who may ask at all, and the one shape of everything that goes wrong.

`admission` decides; here its question is gathered from the request, and its answer applied.
"""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from dibs.errors import Bug, Conflict, DibsError, NotAllowed, NotFound, NotSignedIn, UserError
from dibs.http_api import admission, connections, exchange
from dibs.http_api.admission import Asked, Refusal
from dibs.http_api.connections import Connection
from dibs.http_api.tokens import Failures, Tokens

log = logging.getLogger("dibs.http")

KINDS = {error.http_status: error.kind for error in (NotSignedIn, NotAllowed)}


class Guard:
    """Stands before the router: what it refuses is neither routed nor read any further."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._failures = Failures()
        #: Where something is being answered because of the token: streams may be so for days.
        self._by_token: set[asyncio.Transport] = set()

    def before(self, handler: exchange.BaseHandler) -> exchange.BaseHandler:
        """Return the handler of all requests with the guard before it."""

        async def guarded(request: web.BaseRequest) -> web.StreamResponse:
            connection = request.protocol
            assert isinstance(connection, Connection)
            asked = describe(request, connection)
            refusal = admission.refuse(asked, connection.endpoint, self.tokens.token)
            if refusal is not None:
                return await self._refused(request, refusal)
            transport = request.transport
            if transport is None or not admission.is_by_token(asked, connection.endpoint):
                return await handler(request)
            self._by_token.add(transport)
            try:
                return await handler(request)
            finally:
                self._by_token.discard(transport)

        return guarded

    async def _refused(self, request: web.BaseRequest, refusal: Refusal) -> web.StreamResponse:
        if refusal.status == 401 and "Authorization" in request.headers:
            await self.hold_back(request)
        kind = KINDS.get(refusal.status, UserError.kind)
        answer = connections.error(refusal.status, kind, refusal.message, refusal.hint)
        connections.protect(answer)
        if refusal.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        # Nobody reads a body that was refused, so nothing may come after it.
        answer.force_close()
        return answer

    async def hold_back(self, request: web.BaseRequest) -> None:
        """Count something wrong that the other side said; return when it may be told so."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        uid = connection.peer.uid if connection.peer else None
        side = f"address {request.remote}" if uid is None else f"user {uid}"
        await asyncio.sleep(self._failures.delay_s(side, time.monotonic()))

    def rotate(self, request: web.Request) -> None:
        """Make a new token, and hang up on all who were let in by the old one; not on who asks for it."""
        self.tokens.rotate()
        for transport in self._by_token - {request.transport}:
            transport.abort()


def describe(request: web.BaseRequest, connection: Connection) -> Asked:
    """Return what of a request matters to who may ask."""
    headers = request.headers

    def all_of(name: str) -> tuple[str, ...]:
        return tuple(headers.getall(name, ()))

    return Asked(
        uid=connection.peer.uid if connection.peer else None,
        method=request.method,
        # As the router sees it, unless it is no path at all.
        target=request.path if request.raw_path.startswith("/") else request.raw_path,
        hosts=all_of("Host"),
        origins=all_of("Origin"),
        sites=all_of("Sec-Fetch-Site"),
        modes=all_of("Sec-Fetch-Mode"),
        dests=all_of("Sec-Fetch-Dest"),
        is_fetched=any(name.lower().startswith("sec-fetch-") for name in headers),
        authorizations=all_of("Authorization"),
        content_types=all_of("Content-Type"),
        has_body=request.body_exists,
    )


async def protect(request: web.Request, answer: web.StreamResponse) -> None:
    """Put the headers of every answer on one that a handler made, before the first byte of it is sent."""
    connections.protect(answer)


@web.middleware
async def errors(request: web.Request, handler: exchange.Handler) -> web.StreamResponse:
    """Turn every error into the one shape of errors."""
    try:
        _check_devices(request)
        return await handler(request)
    except DibsError as error:
        if isinstance(error, Bug):
            log.error("%s %r: %r", request.method, request.path, error.line())
        return _error(error)
    except web.HTTPException as error:
        return _error(_as_ours(request, error), error.status)
    # The last place: answered as a bug, logged whole.
    except Exception as error:
        log.exception("%s %r", request.method, request.path)
        return _error(
            Bug(f"{type(error).__name__}: {error}", f"See {request.app[exchange.DAEMON].identity.home}/daemon.log.")
        )


def _check_devices(request: web.Request) -> None:
    """Refuse a client that believes in other devices than ours."""
    wanted = request.headers.get("Dibs-Devices")
    ours = request.app[exchange.DAEMON].identity.devices
    if wanted is not None and wanted != ours and not request.path.startswith("/v1/daemon"):
        raise Conflict(
            f'the daemon runs with DIBS_DEVICES="{ours}", here it is "{wanted}".',
            "`dibs daemon restart` takes the new value; running jobs go on.",
        )


def _as_ours(request: web.Request, error: web.HTTPException) -> DibsError:
    if error.status == 404:
        return NotFound(f"there is nothing at {request.path}.")
    if error.status == 413:
        return UserError(f"the request is larger than {exchange.LARGEST_BODY} bytes.")
    return UserError(f"{request.method} {request.path}: {error.reason}.")


def _error(error: DibsError, status: int | None = None) -> web.Response:
    return connections.error(status or error.http_status, error.kind, error.message, error.hint)
