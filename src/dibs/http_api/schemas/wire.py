"""Convert JSON and queries to typed Structs; errors name the option that the user typed."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from dibs.errors import UserError
from dibs.model import fields

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

#: The option that sets a field.
OPTION_OF = {field.key: field.options[0] for field in fields.ALL if field.options}
#: Phrases of msgspec and their replacements.
WIRE_WORDS = (
    (r" \| null`", "`"),
    (r"`str` of length <= (\d+)", r"at most \1 characters"),
    (r"`str` of length >= 1\b", "a text that is not empty"),
    (r"`str` of length >= (\d+)", r"at least \1 characters"),
    (r"`str` matching regex '\^\((\w+)\|(\w+)\)\??\$'", r"\1 or \2"),
    # The limits of SQLite say nothing to a user.
    (rf"`int` [<>]=? -?{2**62 - 1}", "a whole number"),
    (r"`(?:int|float)` <= ([\d.e+]+)", r"a number up to \1"),
    (r"`(?:int|float)` < ([\d.e+]+)", r"a number below \1"),
    (r"`(?:int|float)` >= (-?[\d.e+]+)", r"a number from \1 up"),
    (r"`(?:int|float)` > (-?[\d.e+]+)", r"a number above \1"),
    (r"`int`", "a whole number"),
    (r"`float`", "a number"),
    (r"`str`", "a text"),
    (r"`bool`", "true or false"),
    (r"`null`", "nothing"),
    (r"`array`", "a list"),
    (r"`object`", "an object"),
)


def convert(value: Any, kind: type[T], *, is_text: bool = False) -> T:
    """Return a value as an instance of `kind`; raise UserError if it does not fit.

    With `is_text` numbers and booleans are strings, as in a query.
    """
    try:
        return msgspec.convert(value, kind, strict=not is_text)
    except msgspec.ValidationError as error:
        raise UserError(_in_our_words(str(error), value)) from None


def fill(kind: type[S], source: object, /, **more: Any) -> S:
    """Return a Struct with the attributes of `source` that have the names of its fields, and with `more`."""
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__ if name not in more}, **more)


def _in_our_words(text: str, value: Any) -> str:
    """Return the text of a validation error with the option's name and plain names of types."""
    what, _, path = text.partition(" - at ")
    name = path.strip("`").removeprefix("$.").removeprefix("$") or "the request"
    if isinstance(value, dict) and isinstance(value.get(name), str):
        # All values of a query are strings, so "got `str`" would not help.
        what = what.removesuffix(", got `str`")
    for wire, ours in WIRE_WORDS:
        what = re.sub(wire, ours, what)
    got = (
        f", got {str(value[name])[:80] or 'nothing'}"
        if isinstance(value, dict) and name in value and "got" not in what
        else ""
    )
    # A part of a field, such as one tag of several, has the option of the whole.
    option = OPTION_OF.get(re.split(r"[\[.]", name)[0], name)
    return f"{option}: {what[:1].lower()}{what[1:]}{got}."
