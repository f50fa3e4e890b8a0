"""Who may ask at all, and the one shape of everything that goes wrong."""

from __future__ import annotations

import logging
import os
import socket
import struct

from aiohttp import web

from dibs.errors import Bug, Conflict, DibsError, NotAllowed, NotFound, UserError
from dibs.http_api import exchanges

log = logging.getLogger("dibs.http")


@web.middleware
async def guard(request: web.Request, handler: exchanges.Handler) -> web.StreamResponse:
    """Let the owner in and nobody else, and turn every error into the one shape of errors."""
    try:
        _check_peer(request)
        _check_devices(request)
        return await handler(request)
    except DibsError as error:
        if isinstance(error, Bug):
            log.error("%s %s: %s", request.method, request.path, error.line())
        return _error(error)
    except web.HTTPException as error:
        return _error(_as_ours(request, error), error.status)
    # The last place: answered as a bug, logged whole.
    except Exception as error:
        log.exception("%s %s", request.method, request.path)
        return _error(
            Bug(f"{type(error).__name__}: {error}", f"See {request.app[exchanges.DAEMON].identity.home}/daemon.log.")
        )


def _check_peer(request: web.Request) -> None:
    sock = request.get_extra_info("socket")
    creds = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", creds)
    if uid not in (os.geteuid(), 0):
        raise NotAllowed(f"this queue belongs to {request.app[exchanges.DAEMON].identity.user}.")
    if any(name.lower() == "origin" or name.lower().startswith("sec-fetch-") for name in request.headers):
        raise NotAllowed("a browser cannot use this socket yet.")


def _check_devices(request: web.Request) -> None:
    """Refuse a client that believes in other devices than ours."""
    wanted = request.headers.get("Dibs-Devices")
    ours = request.app[exchanges.DAEMON].identity.devices
    if wanted is not None and wanted != ours and not request.path.startswith("/v1/daemon"):
        raise Conflict(
            f'the daemon runs with DIBS_DEVICES="{ours}", here it is "{wanted}".',
            "`dibs daemon restart` takes the new value; running jobs go on.",
        )


def _as_ours(request: web.Request, error: web.HTTPException) -> DibsError:
    if error.status == 404:
        return NotFound(f"there is nothing at {request.path}.")
    if error.status == 413:
        return UserError(f"the request is larger than {exchanges.LARGEST_BODY} bytes.")
    return UserError(f"{request.method} {request.path}: {error.reason}.")


def _error(error: DibsError, status: int | None = None) -> web.Response:
    body = {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}
    return exchanges.json(body, status or error.http_status)
