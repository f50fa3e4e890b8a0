"""The conditions of `when` and `exclude`."""

import pytest

from dibs import errors
from dibs.sweeps import conditions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("opt == 'sgd'", True),
        ("opt != 'sgd'", False),
        ("bs > 32 and lr <= 0.1", True),
        ("bs > 64 or not lr == 0.1", False),
        ("1 < bs < 100", True),
        ("bs in [32, 64]", True),
        ("opt not in ('a', 'b')", True),
        ("bs % 2 == 0 and bs // 3 == 21 and bs * lr / 2 > 3", True),
        ("-lr < 0 and +lr > 0", True),
        ("fast == true and slow == False and none == null", True),
        ("model.depth == 3", True),
        ("fast", True),
        ("opt ==\n  'sgd'", True),
        ("absent == 'x'", False),
        ("absent != 'x'", True),
        ("absent > 1 or absent < 1", False),
        ("absent + 1 > 0 or 1 - absent > 0 or -absent > 0", False),
        ("absent", False),
        ("not absent", True),
    ],
)
def test_a_condition_evaluates_as_in_python(text, expected):
    data = {"opt": "sgd", "bs": 64, "lr": 0.1, "fast": True, "slow": False, "none": None, "model.depth": 3}
    assert conditions.parse(text).holds(data) is expected


def test_a_condition_knows_its_names():
    assert conditions.parse("a == 1 and model.b.c > d or true").names == {"a", "model.b.c", "d"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a ==",
        "a = 1",
        "f(1)",
        "__import__('os')",
        "a[0]",
        "(1).real",
        "a if b else c",
        "lambda: 1",
        "a ** 9",
        "f'{a}'",
    ],
)
def test_other_syntax_is_refused(text):
    with pytest.raises(errors.UserError, match="expected a condition such as"):
        conditions.parse(text)


@pytest.mark.parametrize("text", ["opt < 3", "1 / zero > 0", "3 in bs"])
def test_a_condition_that_cannot_be_evaluated_names_the_point(text):
    with pytest.raises(errors.UserError, match=r"cannot evaluate .* for"):
        conditions.parse(text).holds({"opt": "sgd", "zero": 0, "bs": 64})
