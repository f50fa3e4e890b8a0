"""The OpenAPI document of the HTTP API, generated from the table of routes and its types.

Loaded on the first request for it. The web page and its files are not part of it.
"""

from __future__ import annotations

import inspect
import re
from http import HTTPStatus
from typing import Any

import msgspec

from dibs.http_api.route_types import Route
from dibs.http_api.schemas import job_answers
from dibs.version import __version__

#: Error statuses of every route: bad request, no token, not allowed, other DIBS_DEVICES, bug, machine error.
COMMON_ERRORS = (400, 401, 403, 409, 500, 503)
#: Additional error statuses of routes with a body.
BODY_ERRORS = (413,)
REF = "#/components/schemas/{name}"
#: JSON Schemas of path variables; others are strings.
VARIABLES: dict[str, dict[str, Any]] = {
    "id": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    "verb": {"type": "string", "pattern": "^[a-z]+$"},
}
TEXT = {"type": "string"}


def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    told = [route for route in routes if route.path.startswith(("/v1/", "/metrics"))]
    types = [each for route in told for each in _types(route)]
    found, components = msgspec.json.schema_components(types, ref_template=REF)
    schemas = {id(each): schema for each, schema in zip(types, found, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in told:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dibs",
            "version": __version__,
            "description": "The queue of one user on one machine. The same verbs and error texts as the command line.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        # On the unix socket the kernel identifies the user; browsers and TCP clients need a token.
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "From `dibs web`."}},
        },
    }


def _types(route: Route) -> list[Any]:
    answers = [each for each in route.answers.values() if each is not None and not isinstance(each, str)]
    return [*route.bodies, *([] if route.query is None else [route.query]), *answers, job_answers.Error]


def _operation(route: Route, schemas: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    name = "_".join(re.findall(r"\w+", route.path.removeprefix("/v1/")))
    told: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{name}",
        "summary": route.does,
        "parameters": [*_path(route), *(_query(route.query, components) if route.query else ())],
        "responses": _answers(route, schemas),
    }
    whole = inspect.cleandoc(route.handler.__doc__ or "").partition("\n")[2].strip()
    if whole:
        told["description"] = whole
    if route.bodies:
        found = [schemas[id(each)] for each in route.bodies]
        content = {"application/json": {"schema": found[0] if len(found) == 1 else {"anyOf": found}}}
        told["requestBody"] = {"required": route.needs_body, "content": content}
    return told


def _path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": VARIABLES.get(name, TEXT)} for name in route.variables
    ]


def _query(kind: type, components: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the query parameters. Null means an omitted parameter, so it is not part of the schema."""
    told = []
    for name, schema in components[kind.__name__]["properties"].items():
        more = {key: value for key, value in schema.items() if key not in ("description", "default")}
        if "anyOf" in more:
            (more,) = [each for each in more["anyOf"] if each != {"type": "null"}]
        if schema.get("default") not in (None, "", []):
            more = {**more, "default": schema["default"]}
        told.append(
            {
                "name": name,
                "in": "query",
                "required": name in components[kind.__name__].get("required", ()),
                "description": schema.get("description", ""),
                "schema": more,
            }
        )
    return told


def _answers(route: Route, schemas: dict[int, Any]) -> dict[str, Any]:
    errors = {*COMMON_ERRORS, *route.errors, *(BODY_ERRORS if route.bodies else ())} - route.answers.keys()
    told: dict[str, Any] = {}
    for status, answer in (*route.answers.items(), *((status, job_answers.Error) for status in sorted(errors))):
        told[str(status)] = {"description": HTTPStatus(status).phrase}
        if isinstance(answer, str):
            told[str(status)]["content"] = {answer: {"schema": TEXT}}
        elif answer is not None:
            told[str(status)]["content"] = {"application/json": {"schema": schemas[id(answer)]}}
    return told


async def get_document() -> dict[str, Any]:
    """Return this OpenAPI document."""
    from dibs.http_api.routes import ROUTES

    return document(ROUTES)
