"""A space as JSON, and as the dimensions of a study."""

from __future__ import annotations

import json
import random

import pytest

from dibs.errors import UserError
from dibs.sweeps import parameters, spaces
from dibs.sweeps.grid import Points, Space
from dibs.sweeps.search import codec, dimensions
from dibs.sweeps.search.dimensions import Choice, Dimension, Dimensions, Index

EVERY_KIND = (
    "a=1,2.50,x", "b=range(0,10,2)", "c=linspace(0,1,7)", "d=logspace(1e-5,1e-1,9)", "e=uniform(-1,1)",
    "f=loguniform(1e-6,1e-1)", "g=normal(0,2)", "h=randint(1,8)",
)  # fmt: skip


def space(*words: str, **more: object) -> Space:
    return spaces.build([parameters.parse([word]) for word in words], **more)  # type: ignore[arg-type]


def suggester(seed: int) -> dimensions.Suggest:
    """Return a stand-in for a study, which suggests by chance."""
    chance = random.Random(seed)

    def suggest(one: Dimension) -> float | str:
        match one:
            case Choice():
                return chance.choice(one.labels)
            case Index():
                return chance.randrange(one.count)
            case _:
                return chance.uniform(one.low, one.high)

    return suggest


def test_a_space_survives_json_with_all_its_points() -> None:
    whole = space(*EVERY_KIND, zips=[], when={"g": "a == 'x'"}, exclude=["b == 4 and h > 3"])
    again = codec.decode(json.loads(json.dumps(codec.encode(whole))))
    assert list(Points(again, sample=50, seed=3)) == list(Points(whole, sample=50, seed=3))


@pytest.mark.parametrize(
    "data",
    [{}, {"blocks": 3, "exclude": []}, {"blocks": [{}], "exclude": []}, {"blocks": [], "exclude": [3]}],
    ids=repr,
)  # fmt: skip
def test_other_json_is_no_space(data: dict[str, object]) -> None:
    with pytest.raises(UserError, match="expected"):
        Dimensions(codec.decode(data))


@pytest.mark.parametrize("seed", range(20))
def test_the_parameters_of_a_point_give_the_same_point_again(seed: int) -> None:
    """So a study that was lost is made anew from the runs."""
    found = Dimensions(space(*EVERY_KIND))
    point = found.point(suggester(seed))
    assert point is not None
    suggested = found.suggestions(json.loads(json.dumps(point.data())))
    assert suggested is not None
    again = found.point(suggested.__getitem__)
    assert again is not None
    assert again.names == tuple("abcdefgh")
    for name, one, other in zip(point.names, point.values, again.values, strict=True):
        # A quantile of a normal distribution is known only roughly.
        close = pytest.approx(one.data, rel=1e-6) if isinstance(one.data, float) else one.data
        assert other.data == close, name


def test_parameters_that_are_out_of_bounds_have_no_suggestion() -> None:
    found = Dimensions(space("a=1,2", "e=uniform(-1,1)", "b=range(3)"))
    assert found.suggestions({"a": 1, "e": 0.5, "b": 2})
    for wrong in ({"a": 3}, {"e": 2.0}, {"b": 5}, {"e": "x"}, {"b": 0.5}):
        assert found.suggestions({"a": 1, "e": 0.5, "b": 2} | wrong) is None
    assert found.suggestions({"a": 1, "e": 0.5}) is None


def test_a_parameter_exists_only_where_its_condition_holds() -> None:
    found = Dimensions(space("momentum=uniform(0,1)", "opt=sgd,adam", when={"momentum": "opt == 'sgd'"}))
    points = [found.point(suggester(seed)) for seed in range(30)]
    assert {point.names for point in points if point} == {("momentum", "opt"), ("opt",)}
    assert all(("momentum" in point.names) == (point.data()["opt"] == "sgd") for point in points if point)


def test_an_excluded_point_is_none() -> None:
    found = Dimensions(space("a=1,2", "b=1,2", exclude=["a == b"]))
    points = [found.point(suggester(seed)) for seed in range(30)]
    assert None in points
    assert {tuple(point.data().values()) for point in points if point} == {(1, 2), (2, 1)}


def test_columns_that_move_together_are_one_choice() -> None:
    found = Dimensions(space("a=1,2", "b=x,y", zips=[("a", "b")]))
    points = [found.point(suggester(seed)) for seed in range(30)]
    assert {tuple(point.data().values()) for point in points if point} == {(1, "x"), (2, "y")}


def test_blocks_are_refused() -> None:
    blocks = [[parameters.parse(["a=1"])], [parameters.parse(["a=2"])]]
    with pytest.raises(UserError, match="got blocks"):
        Dimensions(spaces.build([], blocks=blocks))
