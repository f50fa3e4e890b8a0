"""Check every request before it is routed, and turn every error into the common error shape.

`admission` decides; this module collects its input from the request and applies its decision.
"""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from dibs.daemon.service import Daemon, Identity
from dibs.errors import Bug, Conflict, DibsError, NotAllowed, NotFound, NotSignedIn, UserError
from dibs.http_api import admission, connections, exchange
from dibs.http_api.admission import Refusal, RequestSummary
from dibs.http_api.connections import Connection
from dibs.http_api.tokens import Failures, Tokens

log = logging.getLogger("dibs.http")

KINDS = {error.http_status: error.kind for error in (NotSignedIn, NotAllowed)}


class Guard:
    """Runs before the router: a refused request is neither routed nor read further."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._failures = Failures()
        #: Connections with a request that was admitted by the token; a stream may last for days.
        self._by_token: set[asyncio.Transport] = set()

    def before(self, handler: exchange.BaseHandler) -> exchange.BaseHandler:
        """Return a handler that runs the guard before `handler`."""

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
        # The refused body is not read, so the connection cannot be reused.
        answer.force_close()
        return answer

    async def hold_back(self, request: web.BaseRequest) -> None:
        """Count a failed attempt of the client and sleep for its delay."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        uid = connection.peer.uid if connection.peer else None
        side = f"address {request.remote}" if uid is None else f"user {uid}"
        await asyncio.sleep(self._failures.delay_s(side, time.monotonic()))

    def rotate(self, request: web.Request) -> None:
        """Replace the token and close all connections admitted by the old one, except the requester's."""
        self.tokens.rotate()
        for transport in self._by_token - {request.transport}:
            transport.abort()


def describe(request: web.BaseRequest, connection: Connection) -> RequestSummary:
    """Return the parts of a request that `admission` needs."""
    headers = request.headers

    def all_of(name: str) -> tuple[str, ...]:
        return tuple(headers.getall(name, ()))

    return RequestSummary(
        uid=connection.peer.uid if connection.peer else None,
        method=request.method,
        # The path as the router sees it, unless the target is not a path.
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
    """Add the common headers to a handler's answer before its first byte is sent."""
    connections.protect(answer)


@web.middleware
async def errors(request: web.Request, handler: exchange.Handler) -> web.StreamResponse:
    """Turn every error into the common error shape."""
    try:
        _check_devices(request)
        return await handler(request)
    except DibsError as error:
        if isinstance(error, Bug):
            log.error("%s %r: %r", request.method, request.path, error.line())
        return _error(error)
    except web.HTTPException as error:
        return _error(_as_ours(request, error), error.status)
    # Any other exception is a bug: log the traceback.
    except Exception as error:
        log.exception("%s %r", request.method, request.path)
        return _error(Bug(f"{type(error).__name__}: {error}", f"See {_identity(request).home}/daemon.log."))


def _check_devices(request: web.Request) -> None:
    """Refuse a client whose DIBS_DEVICES differs from the daemon's."""
    wanted = request.headers.get("Dibs-Devices")
    ours = _identity(request).devices
    if wanted is not None and wanted != ours and not request.path.startswith("/v1/daemon"):
        raise Conflict(
            f'the daemon runs with DIBS_DEVICES="{ours}", here it is "{wanted}".',
            "`dibs daemon restart` takes the new value; running jobs continue.",
        )


def _identity(request: web.Request) -> Identity:
    daemon: Daemon = request.app[exchange.PARTS][Daemon]
    return daemon.identity


def _as_ours(request: web.Request, error: web.HTTPException) -> DibsError:
    if error.status == 404:
        return NotFound(f"there is nothing at {request.path}.")
    if error.status == 413:
        return UserError(f"the request is larger than {exchange.LARGEST_BODY} bytes.")
    return UserError(f"{request.method} {request.path}: {error.reason}.")


def _error(error: DibsError, status: int | None = None) -> web.Response:
    return connections.error(status or error.http_status, error.kind, error.message, error.hint)
