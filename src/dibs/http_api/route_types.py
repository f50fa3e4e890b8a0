"""The type of a row in `routes`. The router and the OpenAPI document are built from these rows.

A row has the types of the request and the answers. Its summary is the first line of the handler's docstring.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from dibs.http_api.exchange import Handler

#: Path variables and their patterns.
VARIABLES = {
    "id": r"\d{1,18}",
    "verb": "[a-z]+",
    "gpu": "[^/]+",
    "name": "[^/]+",
    "file": ".+",
    # The addresses of the web page: lists (the overview has an empty name) and details.
    "page": "(?:jobs|sweeps|gpus|usage|settings)?",
    "detail_page": "job|sweep|gpu",
}
VARIABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Content:
    """The content type of an answer that is not JSON."""

    kind: str


#: The type that is sent as JSON, or `Content`; None: no body.
Answer = Any | Content | None


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    #: With variables such as `{id}`.
    path: str
    handler: Handler
    #: The type of the JSON body, or a tuple of alternatives; and whether a body is required.
    body: Any = None
    needs_body: bool = True
    #: A Struct with a field for each query parameter.
    query: type | None = None
    #: Answers by status.
    answers: Mapping[int, Answer] = field(default_factory=lambda: {200: Any})
    #: Error statuses besides those that every route may return.
    errors: tuple[int, ...] = ()

    @property
    def does(self) -> str:
        """Return the one-sentence summary."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]

    @property
    def variables(self) -> list[str]:
        return VARIABLE.findall(self.path)

    @property
    def bodies(self) -> tuple[Any, ...]:
        """Return the possible types of the JSON body; empty if there is no body."""
        if self.body is None:
            return ()
        return self.body if isinstance(self.body, tuple) else (self.body,)

    def definition(self) -> web.RouteDef:
        """Return the route as aiohttp's router expects it."""
        path = VARIABLE.sub(lambda found: f"{{{found[1]}:{VARIABLES[found[1]]}}}", self.path)
        return web.route(self.method, path, self.handler)
