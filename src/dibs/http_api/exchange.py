"""Helpers for handlers: the daemon, the request body, the query, and the JSON answer."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.errors import UserError
from dibs.http_api import wire
from dibs.model import suggestions
from dibs.model.jobs import JobId
from dibs.store.writer import Reader

#: Bytes of one request: room for a hundred thousand commands with shared defaults.
LARGEST_BODY = 256 * 1024 * 1024
#: Seconds one long poll may take.
LONGEST_WAIT_S = 60.0

S = TypeVar("S", bound=msgspec.Struct)
DAEMON: web.AppKey[Daemon] = web.AppKey("daemon", Daemon)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Handles a request that is not routed yet.
BaseHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def json(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


async def answer(daemon: Daemon, question: Callable[[Reader], msgspec.Struct]) -> web.Response:
    """Answer from the store. The reader's thread encodes the JSON, so a long list does not block the event loop."""
    text = await daemon.ask(lambda reader: msgspec.json.encode(question(reader)))
    return web.Response(body=text, content_type="application/json")


async def body(request: web.Request) -> Any:
    """Return the decoded JSON body of a request."""
    if request.content_type != "application/json":
        raise UserError(f'expected Content-Type application/json, got "{request.content_type}".')
    try:
        return msgspec.json.decode(await request.read())
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"expected JSON: {error}.") from None


def query(request: web.Request, kind: type[S]) -> S:
    """Return the query as a Struct of type `kind`; raise UserError for an unknown name or a wrong value."""
    told = request.query
    is_list = _parameters(kind)
    for name in told:
        if name not in is_list:
            raise UserError(f'there is no parameter "{name[:80]}".', suggestions.did_you_mean(name, list(is_list)))
    values = {name: told.getall(name) if is_list[name] else told[name] for name in told}
    return wire.convert(values, kind, is_text=True)


@functools.cache
def _parameters(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Return each field name and whether it may be repeated. Cached: computing it costs more than an answer."""
    return {field.encode_name: isinstance(field.default_factory, type) for field in msgspec.structs.fields(kind)}


def job_id(request: web.Request) -> JobId:
    return JobId(int(request.match_info["id"]))


def seconds(request: web.Request, name: str) -> float:
    """Return a query parameter in seconds, at most `LONGEST_WAIT_S`."""
    text = request.query.get(name, "0")
    try:
        # Comparisons with NaN are always false, so it would wait forever.
        return min(max(float(text), 0.0), LONGEST_WAIT_S) if text.lower() != "nan" else 0.0
    except ValueError:
        raise UserError(f'{name} expected seconds, got "{text}".') from None


def whole_number(request: web.Request, name: str, default: int) -> int:
    """Return a query parameter as an integer."""
    text = request.query.get(name, str(default))
    try:
        number = int(text)
    except ValueError:
        raise UserError(f'{name} expected a whole number, got "{text[:80]}".') from None
    if abs(number) >= 2**62:
        raise UserError(f'{name} expected a whole number, got "{text[:80]}", which is larger than any.')
    return number
