"""How a browser gets in: a code, made for somebody on the command line, is exchanged for the token; once."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from aiohttp import web

from dibs.errors import NotSignedIn
from dibs.http_api import exchange, wire
from dibs.http_api.admission_guard import Guard
from dibs.http_api.tokens import CODE_FOR_S
from dibs.http_api.web_port import BROWSERS

GUARD: web.AppKey[Guard] = web.AppKey("guard", Guard)


class CodeIn(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /v1/session` takes."""

    code: Annotated[str, msgspec.Meta(max_length=200)]


class TokenOut(msgspec.Struct):
    """What a code is exchanged for."""

    token: str


class CodeOut(msgspec.Struct):
    """A code, and where it can be used."""

    code: str
    expires_in_s: float
    #: Of loopback, and the address for a browser; None while browsers are not let in on TCP.
    port: int | None
    address: str | None
    socket: str


class Rotated(msgspec.Struct):
    """That the token is a new one."""

    rotated: bool


async def post_codes(request: web.Request) -> web.Response:
    """Make a code with which a browser gets in, once, within some minutes."""
    browsers = request.app[BROWSERS]
    code = request.app[GUARD].tokens.new_code(time.monotonic())
    place = str(request.app[exchange.DAEMON].identity.socket)
    return exchange.json(CodeOut(code, CODE_FOR_S, browsers.port, browsers.address, place), 201)


async def post_session(request: web.Request) -> web.Response:
    """Exchange a code for the token."""
    said = wire.convert(await exchange.body(request), CodeIn)
    guard = request.app[GUARD]
    token = guard.tokens.exchange(said.code, time.monotonic())
    if token is None:
        await guard.hold_back(request)
        raise NotSignedIn("expected a code that is still good, got another.", "Each is good once. Type: dibs web")
    return exchange.json(TokenOut(token))


async def post_rotate(request: web.Request) -> web.Response:
    """Make a new token: every browser has to be let in anew, and streams that are open end."""
    request.app[GUARD].rotate(request)
    return exchange.json(Rotated(True))
