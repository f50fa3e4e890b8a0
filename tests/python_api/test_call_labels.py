"""How calls are named in tables."""

import functools
from dataclasses import dataclass

import pytest

from dibs.python_api.calls import labels


def train(*args, **kwargs):
    raise AssertionError("only its name is wanted")


@dataclass
class Config:
    size: int = 3


class Costly:
    def __repr__(self):
        raise AssertionError("its text may be long, or slow to make")

    def __call__(self):
        """Be callable."""


class Model:
    def fit(self):
        """Be a method."""


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("train()", (), {}),
        ("train(0.1)", (0.1,), {}),
        ("train(1, 'a', None, True)", (1, "a", None, True), {}),
        ("train(0.1, epochs=3)", (0.1,), {"epochs": 3}),
        ("train([1, 2], (3,))", ([1, 2], (3,)), {}),
        ("train([0, 1, 2, ...])", (list(range(10**6)),), {}),
        ("train(Config, dict, Costly)", (Config(), {"a": 1}, Costly()), {}),
        ("train([Costly, list])", ([Costly(), [1]],), {}),
        ("train('a\\x1b[31mb')", ("a\x1b[31mb",), {}),
        ("train(token=***, api_key=***)", (), {"token": "hf_abc", "api_key": 1}),
        ("train('xxxxxxxxxxxxxxxxxxxx...)", ("x" * 10**7,), {}),
        ("train(int)", (1 << 10**6,), {}),
    ],
)
def test_a_call_is_named_as_it_would_be_written(name, args, kwargs):
    assert labels.label(train, args, kwargs) == name


def test_a_long_name_is_shortened():
    assert len(labels.label(train, range(100), {})) == labels.LONGEST


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (functools.partial(train, 1), "train()"),
        (Model().fit, "fit()"),
        (Costly(), "Costly()"),
        (lambda: 0, "<lambda>()"),
        (max, "max()"),
    ],
)
def test_every_callable_has_a_name(function, name):
    assert labels.label(function, (), {}) == name
