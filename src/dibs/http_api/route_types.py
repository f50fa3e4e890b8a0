"""The type of a row in `routes`. The router and the OpenAPI document are built from these rows.

The handler's signature says what it needs: `query` and `body` are parsed as their types, variables of the path and
parts of the server are passed by name and type. Its return type is the answer. With a `reader`, it is a question that a
reader's thread answers. Its summary is the first line of its docstring.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.http_api import exchange
from dibs.http_api.schemas import wire

#: Path variables and their patterns.
VARIABLES = {
    "id": r"\d{1,18}",
    "verb": "[a-z]+",
    "gpu": "[^/]+",
    "name": "[^/]+",
    "file": ".+",
    # The addresses of the web page: lists (the overview has an empty name) and details.
    "page": "(?:jobs|compare|sweeps|gpus|people|usage|settings)?",
    "detail_page": "job|sweep|gpu",
}
VARIABLE = re.compile(r"\{(\w+)\}")


#: The type that is sent as JSON, or the content type of another answer; None: no body.
Answer = Any | str | None


@dataclass(frozen=True)
class Route:
    """One method of one path."""

    method: str
    #: With variables such as `{id}`.
    path: str
    handler: Callable[..., Any]
    #: Error statuses besides those that every route may return.
    errors: tuple[int, ...] = ()
    #: The status of the answer.
    status: int = 200
    #: Answers by status, if there are several or the handler returns an encoded one.
    responses: Mapping[int, Answer] | None = None
    #: The possible types of a JSON body that the handler checks itself.
    checks: tuple[Any, ...] = ()
    needs_body: bool = True

    @property
    def does(self) -> str:
        """Return the one-sentence summary."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]

    @property
    def variables(self) -> list[str]:
        return VARIABLE.findall(self.path)

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """Return the types of the handler's parameters and of its answer."""
        return get_type_hints(self.handler)

    @property
    def query(self) -> Any:
        """Return the Struct with a field for each query parameter; None if there is no query."""
        return self.hints.get("query")

    @property
    def bodies(self) -> tuple[Any, ...]:
        """Return the possible types of the JSON body; empty if there is no body."""
        return self.checks or ((self.hints["body"],) if "body" in self.hints else ())

    @property
    def answers(self) -> Mapping[int, Answer]:
        """Return the answers by status."""
        return self.responses or {self.status: self.hints["return"]}

    def definition(self) -> web.RouteDef:
        """Return the route as aiohttp's router expects it."""
        path = VARIABLE.sub(lambda found: f"{{{found[1]}:{VARIABLES[found[1]]}}}", self.path)
        return web.route(self.method, path, _adapt(self))


def _adapt(route: Route) -> exchange.Handler:
    """Return a handler that gets its arguments from the request. The signature is read here, once."""
    function, body, is_question = route.handler, route.hints.get("body"), "reader" in route.hints
    names = route.hints.keys() - {"return", "body", "reader"}
    sources = {name: _source(route, name, route.hints[name]) for name in names}
    statuses = {kind: status for status, kind in route.answers.items() if isinstance(kind, type)}

    async def handle(request: web.Request) -> web.StreamResponse:
        given = {name: source(request) for name, source in sources.items()}
        if body is not None:
            is_sent = route.needs_body or request.can_read_body
            given["body"] = wire.convert(await exchange.body(request) if is_sent else {}, body)
        if is_question:
            return await exchange.answer(
                request.app[exchange.PARTS][Daemon], lambda reader: function(reader=reader, **given)
            )
        answer = await function(**given)
        return (
            answer
            if isinstance(answer, web.StreamResponse)
            else exchange.json(answer, statuses.get(type(answer), route.status))
        )

    return handle


def _source(route: Route, name: str, kind: Any) -> Callable[[web.Request], Any]:
    """Return the function that gets one argument from a request."""
    if kind is web.Request:
        return lambda request: request
    if name == "query":
        return functools.partial(exchange.query, kind)
    if name == "id":
        return lambda request: int(request.match_info["id"])
    if name in route.variables:
        return lambda request: request.match_info[name]
    return lambda request: request.app[exchange.PARTS][kind]
