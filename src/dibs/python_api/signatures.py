"""Signatures and help at run time for functions that take options as keywords.

A type checker reads `keywords.Options`. `inspect.signature`, `help`, IPython and Jupyter see what `describe` makes of
the table of options: each keyword with its type, and its meaning in the docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

from dibs.python_api import keywords
from dibs.submission.options import Option

F = TypeVar("F", bound=Callable[..., Any])
KEYWORD = inspect.Parameter.KEYWORD_ONLY
#: The heading of the list of options in a docstring.
HEADING = "Options:"


def describe(
    known: Iterable[Option[object]], types: type = keywords.ManyOptions, more: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """Return a decorator that lists the options in the signature and in the docstring.

    `types` has the types of keywords; `more` has keywords that are not options, with their meanings.
    """
    meanings = dict(more or {}) | meanings_of(known)

    def decorate(function: F) -> F:
        own = inspect.signature(function, eval_str=True)
        named = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = own.parameters.keys()
        hints = _hints(types)
        given = [
            inspect.Parameter(name, KEYWORD, default=None, annotation=hints.get(name, bool | None))
            for name in meanings
            if name not in taken
        ]
        function.__signature__ = own.replace(parameters=[*named, *given])  # type: ignore[attr-defined]
        listed = "\n".join(f"    {name}: {meaning}" for name, meaning in meanings.items() if name not in taken)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{HEADING}\n{listed}\n"
        return function

    return decorate


def meanings_of(known: Iterable[Option[object]]) -> dict[str, str]:
    """Return the meaning of each keyword, with keywords in place of command-line options."""
    listed = [option for option in known if option not in keywords.SHELL_ONLY]
    return {keywords.name(option): keywords.reword(option.help, listed) for option in listed}


@cache
def _hints(types: type) -> dict[str, Any]:
    return get_type_hints(types)
