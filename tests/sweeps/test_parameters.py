"""Parameters as users type them, and the numbers computed or drawn for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import errors
from dibs.sweeps import columns, parameters, values


def texts(*words):
    """Return the values of a parameter as written."""
    return [value.text for value in parameters.parse(words).source]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["lr", "0.1", "1e-5", "1E-3"], ["0.1", "1e-5", "1E-3"]),
        (["lr=0.1,0.01"], ["0.1", "0.01"]),
        (["lr=5"], ["5"]),
        (["lr", ""], [""]),
        (["x", "a=b", "c,d"], ["a=b", "c,d"]),
        (["x=a=b"], ["a=b"]),
        (["x=range(0,10,2)"], ["0", "2", "4", "6", "8"]),
        (["x", "range(3)"], ["0", "1", "2"]),
        (["x=range(5,0,-2)"], ["5", "3", "1"]),
        (["x=range(0, 1, 0.1)"], ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"]),
        (["x=linspace(0,1,5)"], ["0", "0.25", "0.5", "0.75", "1"]),
        (["x=linspace(0,0.3,4)"], ["0", "0.1", "0.2", "0.3"]),
        (["x=linspace(7,7,1)"], ["7"]),
        (["x=logspace(1e-5,1e-1,5)"], ["1e-5", "0.0001", "0.001", "0.01", "0.1"]),
        (["x=logspace(1,1000,4)"], ["1", "10", "100", "1000"]),
        (["x=logspace(8,1,4)"], ["8", "4", "2", "1"]),
        (["x", "range(3)", "a"], ["range(3)", "a"]),
        (["x", "f(3)"], ["f(3)"]),
        (["model.lr-max_2", "1"], ["1"]),
    ],
)
def test_parameters_are_parsed(words, expected):
    assert texts(*words) == expected


@pytest.mark.parametrize(
    ("word", "data"),
    [
        *(("1e-5", 1e-5), ("0.1", 0.1), ("32", 32), ("-3", -3), (".5", 0.5), ("1.", 1.0), ("true", True)),
        *(("False", False), ("007", "007"), ("1_000", "1_000"), ("nan", "nan"), ("1e999", "1e999"), ("", "")),
        *(("0x10", "0x10"), ("+1", "+1"), ("-", "-"), ("1e", "1e"), ("٣", "٣"), ("9" * 50, "9" * 50), (".", ".")),
    ],
)
def test_a_number_keeps_its_spelling_and_other_words_are_text(word, data):
    found = values.value_of_word(word)
    assert found == (data, word)
    assert type(found.data) is type(data)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.1, "0.1"), (1e-5, "1e-5"), (25.0, "25"), (1e22, "1e22"), (-0.0, "0"), (1.5e-7, "1.5e-7"), (2**60, str(2**60))],
)
def test_computed_numbers_are_written_short(number, text):
    assert values.value_of_data(number).text == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_short_text_of_a_number_reads_back_to_it(number):
    assert float(values.write_number(number)) == number


@pytest.mark.parametrize(
    ("data", "text"), [(None, "null"), (True, "true"), ([1, "a"], '[1,"a"]'), ({"a": 0.5}, '{"a":0.5}'), ("é", "é")]
)
def test_other_data_is_written_as_json(data, text):
    assert values.value_of_data(data) == (data, text)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_values_that_json_cannot_express_are_text(number):
    assert values.value_of_data(number) == (repr(number), repr(number))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "expected a parameter such as -p lr 0.1 0.01"),
        (["lr"], "expected values for the parameter lr, got none"),
        (["lr="], "expected values such as lr=0.1,0.01"),
        (["lr=1,,2"], "expected values such as lr=0.1,0.01"),
        (["lr=1", "2"], 'expected nothing after "lr=1", got "2"'),
        (["=1"], 'expected a name of letters, digits, "_", "." and "-", got ""'),
        (["1x", "2"], "expected a name"),
        (["a b", "2"], "expected a name"),
        (["{x}", "2"], "expected a name"),
        (["x=range()"], "x expected range"),
        (["x=range(1,2,0)"], "x expected range"),
        (["x=range(1,2,3,4)"], "x expected range"),
        (["x=range(5,0)"], "which has no value"),
        (["x=range(a)"], "x expected range"),
        (["x=range(1e999999999)"], "x expected range"),
        (["x=range(1e30)"], "too many values"),
        (["x=linspace(0,1)"], "linspace"),
        (["x=linspace(0,1,2.5)"], "linspace"),
        (["x=linspace(1,1,2)"], "linspace"),
        (["x=logspace(0,1,5)"], "with LOW and HIGH above 0"),
        (["x=loguniform(0,1)"], "with 0 < LOW < HIGH"),
        (["x=uniform(1,0)"], "x expected uniform"),
        (["x=uniform(1)"], "x expected uniform"),
        (["x=normal(0,0)"], "x expected normal"),
        (["x=randint(1.5,2)"], "randint"),
        (["x=randint(5,1)"], "randint"),
        (["x=unifrom(0,1)"], 'expected one of range, .* got "unifrom"'),
        (["x=log_uniform(0,1)"], 'got "log_uniform"'),
    ],
)
def test_an_invalid_parameter_is_refused(words, complaint):
    with pytest.raises(errors.UserError, match=complaint):
        parameters.parse(words)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.floats(0, 1, exclude_max=True))
def test_random_values_stay_in_their_range(low, width, chance):
    number = columns.Uniform(low, low + width).at(chance).data
    assert low <= number <= low + width
    small = abs(low) + 1e-3
    assert small <= columns.LogUniform(small, small + width).at(chance).data <= small + width


@given(st.integers(0, 999_998), st.integers(-6, 6))
def test_neighbouring_steps_are_different_numbers(step, power):
    """Numbers are short, but not so short that two values become one."""
    for distribution in (
        columns.Uniform(0, 10.0**power),
        columns.Uniform(3.0, 3.0 + 7 * 10.0**power),
        columns.LogUniform(1e-5, 1e-1),
        columns.LogUniform(1.0, 1.3),
        columns.Normal(0, 1),
    ):
        pair = [distribution.at(one / columns.GRAIN).text for one in (step, step + 1)]
        assert pair[0] != pair[1]


def test_a_quantum_gives_multiples():
    assert {columns.Uniform(0, 1, 0.25).at(n / 100).text for n in range(100)} == {"0", "0.25", "0.5", "0.75", "1"}


def test_weights_are_respected():
    choices = tuple(values.value_of_word(word) for word in "ab")
    found = [columns.WeightedChoice(choices, (3.0, 1.0)).at(n / 100).text for n in range(100)]
    assert (found.count("a"), found.count("b")) == (75, 25)
