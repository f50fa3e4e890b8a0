"""The table of routes: what every row must have."""

from __future__ import annotations

import re
from collections import Counter
from http import HTTPStatus

import msgspec
import pytest
from aiohttp import web

from dibs.http_api import route_types
from dibs.http_api.route_types import Route
from dibs.http_api.routes import ROUTES

each = pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")


def test_no_address_is_listed_twice() -> None:
    assert max(Counter((route.method, route.path) for route in ROUTES).values()) == 1


def test_the_router_has_every_row_of_the_table() -> None:
    app = web.Application()
    app.add_routes(route.definition() for route in ROUTES)
    known = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}
    assert {(route.method, route.path) for route in ROUTES} <= known


@each
def test_a_row_has_a_summary_of_one_sentence(route: Route) -> None:
    assert re.fullmatch(r"[A-Z].{8,140}[.]", route.does), route.does


@each
def test_path_variables_have_a_pattern(route: Route) -> None:
    assert {*route.variables} <= route_types.VARIABLES.keys()


@each
def test_a_row_declares_its_input_and_output(route: Route) -> None:
    assert not route.bodies or route.method in ("POST", "PATCH", "PUT")
    assert any(status < 300 for status in route.answers)
    assert all(HTTPStatus(status) for status in (*route.answers, *route.errors))
    assert all(400 <= status < 500 for status in route.errors)
    types = [each for each in (*route.bodies, route.query, *route.answers.values()) if each is not None]
    # All of them can be put into the document.
    msgspec.json.schema_components([each for each in types if not isinstance(each, str)])


@each
def test_every_query_parameter_has_a_description(route: Route) -> None:
    if route.query is not None:
        _, found = msgspec.json.schema_components([route.query])
        told = found[route.query.__name__]["properties"]
        assert {name for name, what in told.items() if not what.get("description")} == set()


@each
def test_a_route_is_in_a_file_that_shares_a_word_with_its_address(route: Route) -> None:
    module = route.handler.__module__.rpartition(".")[2]
    assert words(route.path) & words(module), f"{route.path} is in {module}.py"


def words(name: str) -> set[str]:
    """Return the words of an address or a module, in the singular."""
    return {word.removesuffix("s") for word in re.findall("[a-z]+", name)}
