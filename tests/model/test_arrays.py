"""Arrays as Slurm writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import errors
from dibs.model import arrays


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("0-99%4", tuple(range(100)), 4),
        ("1,3,7", (1, 3, 7), None),
        ("0-10:2", (0, 2, 4, 6, 8, 10), None),
        ("7", (7,), None),
        ("5,1-3,2", (1, 2, 3, 5), None),
        ("1-3, 9 %2", (1, 2, 3, 9), 2),
    ],
)
def test_an_array_is_its_distinct_numbers_in_order(text, indices, at_once):
    found = arrays.parse(text.replace(" %", "%"))
    assert (found.indices, found.at_once) == (indices, at_once)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "1-",
        "-1",
        "3-1",
        "1,,2",
        "1:2",
        "0-9:0",
        "0-9%",
        "0-9%0",
        "0-9%x",
        "1.5",
        "²",
        "1234567890",
        "0-99999999",
    ],
)
def test_an_invalid_array_is_refused_with_an_explanation(text):
    with pytest.raises(errors.UserError, match=r"^expected"):
        arrays.parse(text)


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 50))
def test_a_range_with_a_step_equals_that_of_python(first, length, step):
    found = arrays.parse(f"{first}-{first + length}:{step}")
    assert found.indices == tuple(range(first, first + length + 1, step))
    assert found.variables["SLURM_ARRAY_TASK_COUNT"] == str(len(found.indices))
