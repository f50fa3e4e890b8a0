"""A parameter value in two forms: the data that programs and conditions read, and the text as typed.

`1e-5` on a command line is the number 0.00001 in DIBS_PARAMS and in the identity of a point, and stays `1e-5` in the
command. Computed numbers (such as those of `linspace`) are written as short as possible.

Pure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

#: The types of JSON.
Data = str | int | float | bool | None | list["Data"] | dict[str, "Data"]

#: A JSON number, or nearly one (`.5`, `1.`); never `007` or `1_000`, which are meant as text.
NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
WORDS: dict[str, bool] = {"true": True, "True": True, "false": False, "False": False}
#: Maximum length of a text that counts as a number. Longer ones are hashes or ids.
LONGEST_NUMBER = 40
#: Up to here every whole number has an exact float.
EXACT = 2**53


class Value(NamedTuple):
    """A value as data, and as text for a command."""

    data: Data
    text: str


def value_of_word(word: str) -> Value:
    """Return the value of a word from a command line or a table: a number or a boolean if it looks like one."""
    if word in WORDS:
        return Value(WORDS[word], word)
    number = _number(word)
    return Value(word if number is None else number, word)


def _number(word: str) -> int | float | None:
    if len(word) > LONGEST_NUMBER or not NUMBER.fullmatch(word):
        return None
    if word.lstrip("-").isdigit():
        return int(word)
    number = float(word)
    return number if math.isfinite(number) else None


def value_of_data(data: Data) -> Value:
    """Return the value of data from a file or from Python."""
    if isinstance(data, float) and not math.isfinite(data):
        # JSON has no such numbers; pass them as text.
        return Value(repr(data), repr(data))
    return Value(data, write(data))


def write(data: Data) -> str:
    """Return the spelling in a command: text unchanged, numbers short, anything else as JSON."""
    match data:
        case str():
            return data
        case bool() | None:
            return json.dumps(data)
        case int():
            return str(int(data))
        case float():
            return write_number(data)
        case _:
            return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def write_number(number: float) -> str:
    """Return the shortest text of a number: `0.1`, `1e-5`, `25` instead of `25.0`."""
    if number == int(number) and abs(number) < EXACT:
        return str(int(number))
    digits, e, exponent = repr(float(number)).partition("e")
    return f"{digits}e{int(exponent)}" if e else digits


def value_of_number(number: float) -> Value:
    """Return the value of a computed number."""
    return Value(_whole(number), write_number(number))


def identity(parameters: Mapping[str, Data]) -> str:
    """Return a text that identifies these parameters, independent of order and spelling.

    It is JSON with sorted names and without blanks, and `1.0` is `1`: the key under which a point counts as done.
    """
    plain = {name: _normal(data) for name, data in parameters.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _normal(data: Data) -> Data:
    match data:
        case float():
            return _whole(data)
        case list():
            return [_normal(one) for one in data]
        case dict():
            return {name: _normal(one) for name, one in data.items()}
        case _:
            return data


def _whole(number: float) -> int | float:
    return int(number) if number == int(number) and abs(number) < EXACT else number
