"""Paths with placeholders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import errors
from dibs.model import path_templates

VALUES = {"id": 12, "name": "a/b", "project": "..", "index": 3, "attempt": 1, "array": 9}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("log", "log"),
        ("runs/{name}-{id}.log", "runs/a_b-12.log"),
        ("{project}/x", "_/x"),
        ("{index:03}-{attempt}", "003-1"),
        ("{{id}}-{id}", "{id}-12"),
        ("a}b", "a}b"),
        ("{{{id}}}", "{12}"),
    ],
)
def test_placeholders_are_replaced_and_a_name_never_adds_a_folder(template, path):
    path_templates.check(template)
    assert path_templates.fill(template, VALUES) == path


@pytest.mark.parametrize(
    "template", ["{foo}", "{", "a{b", "{}", "{id", "{name:03}", "{id:3}", "${HOME}", "{id!r}", "{0}"]
)
def test_an_unknown_placeholder_is_refused_with_the_known_ones(template):
    with pytest.raises(errors.UserError, match=r"\{id\} \{name\} \{project\} \{index\} \{attempt\} \{array\}"):
        path_templates.check(template)


def test_parameters_may_be_placeholders_too():
    path_templates.check("{lr}-{id}", (*path_templates.NAMES, "lr"))


@given(st.text())
def test_an_escaped_text_stays_literal(text):
    path_templates.check(path_templates.escape(text))
    assert path_templates.fill(path_templates.escape(text), VALUES) == text
