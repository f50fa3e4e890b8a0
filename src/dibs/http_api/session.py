"""Browser sign-in: the command line requests a one-time code, and the browser exchanges it for the token."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.errors import NotSignedIn
from dibs.http_api.admission_guard import Guard
from dibs.http_api.tokens import CODE_FOR_S
from dibs.http_api.web_port import Browsers


class CodeIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/session`."""

    code: Annotated[str, msgspec.Meta(max_length=200)]


class TokenOut(msgspec.Struct):
    """The token that a code is exchanged for."""

    token: str


class CodeOut(msgspec.Struct):
    """A code, and where it can be used."""

    code: str
    expires_in_s: float
    #: The TCP port and the address for a browser; None while the TCP port is closed.
    port: int | None
    address: str | None
    socket: str


class TokenRotation(msgspec.Struct):
    """Confirms that the token was replaced."""

    rotated: bool


async def post_codes(daemon: Daemon, browsers: Browsers, guard: Guard) -> CodeOut:
    """Create a code that signs in one browser; it expires after some minutes."""
    code = guard.tokens.new_code(time.monotonic())
    return CodeOut(code, CODE_FOR_S, browsers.port, browsers.address, str(daemon.identity.socket))


async def post_session(guard: Guard, request: web.Request, body: CodeIn) -> TokenOut:
    """Exchange a code for the token."""
    token = guard.tokens.exchange(body.code, time.monotonic())
    if token is None:
        await guard.hold_back(request)
        raise NotSignedIn(
            "this link was used already, or has expired.", "Each link works once. For a new one, type: dibs web"
        )
    return TokenOut(token)


async def post_rotate(guard: Guard, request: web.Request) -> TokenRotation:
    """Replace the token: every browser must sign in again, and open streams are closed."""
    guard.rotate(request)
    return TokenRotation(True)
