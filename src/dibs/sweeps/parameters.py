"""Parse typed parameters: `lr 0.1 0.01`, `lr=0.1,0.01`, `lr=loguniform(1e-5,1e-1)`.

`-p` takes a name and its values as words, or both in one word. The functions are in the table below; any other text is
a literal value.

Pure.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dibs.errors import UserError
from dibs.sweeps import columns, templates, values
from dibs.sweeps.columns import Column, ComputedColumn, Distribution, Linear, Logarithmic, LogUniform, Normal, Uniform
from dibs.sweeps.values import Value

EXAMPLES = "-p lr 0.1 0.01, -p lr=0.1,0.01 or -p 'lr=logspace(1e-5,1e-1,5)'"
CALL = re.compile(r"\s*([A-Za-z_]+)\(([^()]*)\)\s*")
#: Maximum number of values of one parameter, a bound for the arithmetic of an iteration.
MOST = 10**12


@dataclass(frozen=True)
class Parameter:
    """A name with a column of values or a distribution."""

    name: str
    source: Column | Distribution
    #: The column can only be sampled.
    is_for_samples: bool = False


def parse(words: Sequence[str]) -> Parameter:
    """Parse the words after one `-p`."""
    if not words:
        raise UserError(f"expected a parameter such as {EXAMPLES}, got nothing.")
    name, equals, rest = words[0].partition("=")
    check_name(name)
    if not equals:
        if len(words) == 1:
            raise UserError(f"expected values for the parameter {name}, got none.", f"Write {EXAMPLES}.")
        return from_words(name, words[1:])
    if len(words) > 1:
        raise UserError(
            f'expected nothing after "{words[0]}", got "{words[1]}".', f"Write -p {name} VALUE VALUE or -p {name}=A,B."
        )
    if CALL.fullmatch(rest):
        return from_words(name, [rest])
    parts = rest.split(",")
    if not all(parts):
        raise UserError(f'expected values such as {name}=0.1,0.01, got "{words[0]}".', f"An empty one: -p {name} ''.")
    return from_words(name, parts)


def check_name(name: str) -> None:
    """Refuse a name that is not allowed in `{}`."""
    if not templates.NAME.fullmatch(name):
        raise UserError(f'expected a name of letters, digits, "_", "." and "-", got "{name}".', f"Write {EXAMPLES}.")


def from_words(name: str, words: Sequence[str]) -> Parameter:
    """Return the parameter with these values; a single word may be a function call."""
    call = CALL.fullmatch(words[0]) if len(words) == 1 else None
    if call is not None and (found := from_call(name, call[1], call[2])):
        return found
    return parameter_of_list(name, [values.value_of_word(word) for word in words])


def parameter_of_list(name: str, column: Sequence[Value]) -> Parameter:
    """Return the parameter with these values."""
    if not column:
        raise UserError(f"expected values for the parameter {name}, got none.")
    return Parameter(name, column)


def from_call(name: str, function: str, arguments: str) -> Parameter | None:
    """Return the parameter of a call such as `range(0,10,2)`; None if no function has a similar name."""
    reader = FUNCTIONS.get(function)
    if reader is None:
        near = difflib.get_close_matches(function, FUNCTIONS, 1, 0.75)
        if not near:
            return None
        raise UserError(f'expected one of {", ".join(FUNCTIONS)}, got "{function}".', f"Did you mean {near[0]}?")
    try:
        source = reader.read(*(_argument(word.strip()) for word in arguments.split(",")))
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        raise UserError(f"{name} expected {reader.usage}, got {function}({arguments}).") from None
    if isinstance(source, ComputedColumn) and not 1 <= source.size <= MOST:
        what = "no value" if not source.size else "too many values"
        raise UserError(f"{name} expected {reader.usage}, got {function}({arguments}), which has {what}.")
    return Parameter(name, source, is_for_samples=function == "randint")


def _argument(word: str) -> Fraction:
    # Only numbers that fit a float: 1e999999999 as a fraction would fill the memory.
    data = values.value_of_word(word).data
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise ValueError
    return Fraction(word) if data else Fraction(0)


@dataclass(frozen=True)
class Function:
    """A function that generates values: its usage text and the parser of its arguments."""

    usage: str
    read: Callable[..., Column | Distribution]


def _range(first: Fraction, stop: Fraction | None = None, step: Fraction = Fraction(1)) -> Column:
    return columns.steps(Fraction(0), first, step) if stop is None else columns.steps(first, stop, step)


def _logspace(low: Fraction, high: Fraction, count: Fraction) -> Column:
    _rising(0, min(low, high))
    return Logarithmic(_count(low, high, count), float(low), float(high))


def _randint(low: Fraction, high: Fraction) -> Column:
    if low.denominator != 1 or high.denominator != 1:
        raise ValueError
    return columns.steps(low, high + 1, Fraction(1))


def _count(low: Fraction, high: Fraction, count: Fraction) -> int:
    """Return how many values to compute between two bounds, which may be equal for one value only."""
    if count.denominator != 1 or count < 1 or (low == high and count > 1):
        raise ValueError
    return int(count)


def _rising(*numbers: float | Fraction) -> list[float]:
    """Return numbers as floats; raise ValueError unless each is above the one before."""
    if any(one >= other for one, other in itertools.pairwise(numbers)):
        raise ValueError
    return [float(number) for number in numbers]


FUNCTIONS = {
    "range": Function("range(STOP), range(START,STOP) or range(START,STOP,STEP), without STOP itself", _range),
    "linspace": Function(
        "linspace(LOW,HIGH,COUNT)", lambda low, high, count: Linear(_count(low, high, count), low, high)
    ),
    "logspace": Function("logspace(LOW,HIGH,COUNT) with LOW and HIGH above 0", _logspace),
    "uniform": Function("uniform(LOW,HIGH)", lambda low, high: Uniform(*_rising(low, high))),
    "loguniform": Function(
        "loguniform(LOW,HIGH) with 0 < LOW < HIGH", lambda low, high: LogUniform(*_rising(0, low, high)[1:])
    ),
    "normal": Function("normal(MEAN,DEVIATION)", lambda mean, deviation: Normal(float(mean), _rising(0, deviation)[1])),
    "randint": Function("randint(LOW,HIGH) of whole numbers, both included", _randint),
}
