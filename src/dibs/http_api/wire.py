"""Convert JSON and queries to typed Structs; errors name the option that the user typed."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from dibs.errors import UserError

S = TypeVar("S")

#: The option that sets a field.
OPTION_OF = {
    "name": "--name", "project": "--project", "priority": "--priority", "gpus": "--gpus", "gpu_type": "--gpu-type",
    "gpu_ids[...]": "--gpu-ids", "prefer[...]": "--prefer", "cpus": "--cpus", "mem": "--mem", "vram": "--vram",
    "time_limit_s": "--time", "retries": "--retries", "output": "--output", "stderr": "--stderr", "tags[...]": "--tag",
    "cwd": "--chdir",
    "warn.before_s": "--signal", "after[...].select": "--after",
}  # fmt: skip
#: Phrases of msgspec and their replacements.
WIRE_WORDS = (
    (r" \| null`", "`"),
    (r"`str` of length <= (\d+)", r"at most \1 characters"),
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


def convert(value: Any, kind: type[S], *, is_text: bool = False) -> S:
    """Return a value as an instance of `kind`; raise UserError if it does not fit.

    With `is_text` numbers and booleans are strings, as in a query.
    """
    try:
        return msgspec.convert(value, kind, strict=not is_text)
    except msgspec.ValidationError as error:
        raise UserError(_in_our_words(str(error), value)) from None


def _in_our_words(text: str, value: Any) -> str:
    """Return the text of a validation error with the option's name and plain names of types."""
    what, _, path = text.partition(" - at ")
    name = path.strip("`").removeprefix("$.").removeprefix("$") or "the request"
    if isinstance(value, dict) and isinstance(value.get(name), str):
        # All values of a query are strings, so "got `str`" would not help.
        what = what.removesuffix(", got `str`")
    for wire, ours in WIRE_WORDS:
        what = re.sub(wire, ours, what)
    got = f", got {str(value[name])[:80]}" if isinstance(value, dict) and name in value and "got" not in what else ""
    return f"{OPTION_OF.get(name, name)}: {what[:1].lower()}{what[1:]}{got}."
