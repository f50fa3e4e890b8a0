"""Parse typed parameters: `lr 0.1 0.01`, `lr=0.1,0.01`, `lr=loguniform(1e-5,1e-1)`.

`-p` takes a name and its values as words, or both in one word. The functions are in the table below; any other text is
a literal value.

Pure.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dibs.errors import UserError
from dibs.sweeps import columns, templates, values
from dibs.sweeps.columns import Column, Distribution, Linear, Logarithmic, LogUniform, Normal, Uniform
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
    words = [word.strip() for word in arguments.split(",")]
    try:
        source = reader.read([_argument(word) for word in words])
        is_for_samples = reader is FUNCTIONS["randint"]
        if not isinstance(source, Sequence):
            return Parameter(name, source)
        size = _size(source)
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        raise UserError(f"{name} expected {reader.usage}, got {function}({arguments}).") from None
    if not 1 <= size <= MOST:
        what = "no value" if not size else "too many values"
        raise UserError(f"{name} expected {reader.usage}, got {function}({arguments}), which has {what}.")
    return Parameter(name, source, is_for_samples)


def _size(column: Column) -> int:
    try:
        return len(column)
    except OverflowError:
        return MOST + 1


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
    read: Callable[[Sequence[Fraction]], Column | Distribution]


def _range(given: Sequence[Fraction]) -> Column:
    if not 1 <= len(given) <= 3:
        raise ValueError
    start, stop = (Fraction(0), given[0]) if len(given) == 1 else (given[0], given[1])
    return columns.steps(start, stop, given[2] if len(given) == 3 else Fraction(1))


def _linspace(given: Sequence[Fraction]) -> Column:
    low, high, count = given
    if low == high and count > 1:
        raise ValueError
    return Linear(_count(count), low, high)


def _logspace(given: Sequence[Fraction]) -> Column:
    low, high, count = given
    _check_order(Fraction(0), min(low, high))
    if low == high and count > 1:
        raise ValueError
    return Logarithmic(_count(count), float(low), float(high))


def _count(number: Fraction) -> int:
    if number.denominator != 1 or number < 1:
        raise ValueError
    return int(number)


def _uniform(given: Sequence[Fraction]) -> Distribution:
    low, high = given
    _check_order(low, high)
    return Uniform(_float(low), _float(high))


def _loguniform(given: Sequence[Fraction]) -> Distribution:
    low, high = given
    _check_order(Fraction(0), low, high)
    return LogUniform(_float(low), _float(high))


def _normal(given: Sequence[Fraction]) -> Distribution:
    mean, deviation = given
    _check_order(Fraction(0), deviation)
    return Normal(_float(mean), _float(deviation))


def _randint(given: Sequence[Fraction]) -> Column:
    low, high = given
    if low.denominator != 1 or high.denominator != 1:
        raise ValueError
    return columns.steps(low, high + 1, Fraction(1))


def _check_order(*numbers: Fraction) -> None:
    if any(one >= other for one, other in itertools.pairwise(numbers)):
        raise ValueError


def _float(number: Fraction) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError
    return found


FUNCTIONS = {
    "range": Function("range(STOP), range(START,STOP) or range(START,STOP,STEP), without STOP itself", _range),
    "linspace": Function("linspace(LOW,HIGH,COUNT)", _linspace),
    "logspace": Function("logspace(LOW,HIGH,COUNT) with LOW above 0", _logspace),
    "uniform": Function("uniform(LOW,HIGH)", _uniform),
    "loguniform": Function("loguniform(LOW,HIGH) with LOW above 0", _loguniform),
    "normal": Function("normal(MEAN,DEVIATION)", _normal),
    "randint": Function("randint(LOW,HIGH) of whole numbers, both included", _randint),
}
