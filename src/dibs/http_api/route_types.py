"""What a route is: one row of the table in `routes`, from which the router and the OpenAPI document are made.

A row has the types of the request and the answers. Its summary is the first line of the handler's docstring.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from dibs.http_api.exchange import Handler

#: The parts of a path that vary, and what each may be.
VARIABLES = {
    "id": r"\d{1,18}",
    "verb": "[a-z]+",
    "gpu": "[^/]+",
    "name": "[^/]+",
    "file": ".+",
    # The addresses of the web page: lists, of which the overview has no name, and single things.
    "page": "(?:jobs|sweeps|gpus|usage|settings)?",
    "detail_page": "job|sweep|gpu",
}
VARIABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Content:
    """An answer that is not JSON, by its content type."""

    kind: str


#: What comes out: a type whose JSON it is, or something else than JSON; None: no body.
Answer = Any | Content | None


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    #: With its variables as `{id}`.
    path: str
    handler: Handler
    #: The type whose JSON the request must be, or several of which it must be one, and whether it may be left out.
    body: Any = None
    needs_body: bool = True
    #: A struct with a field for each parameter of the query.
    query: type | None = None
    #: What comes out, by status.
    answers: Mapping[int, Answer] = field(default_factory=lambda: {200: Any})
    #: Statuses of errors besides those that every route may answer with.
    errors: tuple[int, ...] = ()

    @property
    def does(self) -> str:
        """Return what it does, in one sentence."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]

    @property
    def variables(self) -> list[str]:
        """Return the names of the parts of the path that vary."""
        return VARIABLE.findall(self.path)

    @property
    def bodies(self) -> tuple[Any, ...]:
        """Return the types of which the JSON of the request must be one; none: it has no body."""
        if self.body is None:
            return ()
        return self.body if isinstance(self.body, tuple) else (self.body,)

    def definition(self) -> web.RouteDef:
        """Return it as the router knows it."""
        path = VARIABLE.sub(lambda found: f"{{{found[1]}:{VARIABLES[found[1]]}}}", self.path)
        return web.route(self.method, path, self.handler)
