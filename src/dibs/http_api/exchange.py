"""The two ends of a handler: the query and the body of a request as Structs, and the answer as JSON."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.errors import UserError
from dibs.http_api.schemas import wire
from dibs.model import suggestions
from dibs.store.writer import Reader

#: Bytes of one request: room for a hundred thousand commands with shared defaults.
LARGEST_BODY = 256 * 1024 * 1024
#: Seconds one long poll may take.
LONGEST_WAIT_S = 60.0
#: A query parameter for it.
Seconds = Annotated[float, msgspec.Meta(description="How long to wait for a result, in seconds; at most 60.")]
#: A whole number that SQLite can hold.
Whole = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]

S = TypeVar("S", bound=msgspec.Struct)
#: The parts of the server that handlers may ask for, each by its type.
PARTS: web.AppKey[dict[type, Any]] = web.AppKey("parts", dict)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Handles a request that is not routed yet.
BaseHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def json(answer: Any, status: int = 200) -> web.Response:
    """Return an answer as JSON; what is encoded already is sent as it is."""
    body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    return web.Response(body=body, status=status, content_type="application/json")


async def answer(daemon: Daemon, question: Callable[[Reader], Any]) -> web.Response:
    """Answer from the store. The reader's thread encodes the JSON, so a long list does not block the event loop."""
    return json(await daemon.ask(lambda reader: msgspec.json.encode(question(reader))))


async def body(request: web.Request) -> Any:
    """Return the decoded JSON body of a request."""
    if request.content_type != "application/json":
        raise UserError(f'expected Content-Type application/json, got "{request.content_type}".')
    try:
        return msgspec.json.decode(await request.read())
    except web.RequestPayloadError:
        raise UserError("expected a complete body without Content-Encoding.") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"expected JSON: {error}.") from None


def query(kind: type[S], request: web.Request) -> S:
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


def wait_for(wait_s: float) -> float:
    """Return how long a long poll waits."""
    # In this order NaN becomes 0. Comparisons with it are always false, so it would wait forever.
    return min(max(0.0, wait_s), LONGEST_WAIT_S)
